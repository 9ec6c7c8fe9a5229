"""The form of an entry in the registry of transports."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from postroom.clock import Clock
from postroom.domain.doctor import Check, CheckResult
from postroom.settings import Settings
from postroom.storage.port import Storage
from postroom.transport.capabilities import Capabilities
from postroom.transport.port import Transport


class TransportEntry(ABC):
    """One transport, as the settings name it.

    Creating an entry checks the settings: ValueError, whose text never contains the password.
    """

    form: ClassVar[str]  # of its addresses, for people
    capabilities: ClassVar[Capabilities]
    leaves_the_machine: ClassVar[bool] = True  # False: mails are only kept for people to read
    server: str = ""  # host and port, if mails go to one
    host: str = ""  # the host alone
    settles_doubts: bool = False  # by events, which the settings let us receive
    ehlo_name: str = ""  # how we introduce ourselves there, if the settings say so

    @abstractmethod
    def __init__(self, settings: Settings) -> None: ...

    @abstractmethod
    def open(self, storage: Storage, clock: Clock) -> Transport: ...

    @property
    @abstractmethod
    def description(self) -> str:
        """For people; without secrets."""

    @abstractmethod
    async def examine(self) -> Check:
        """Check whether mails could be sent this way; sends nothing."""

    async def examine_tls(self) -> Check:
        """Check whether mails leave this machine encrypted; sends nothing."""
        return Check(CheckResult.NOTE, "tls", self.description)
