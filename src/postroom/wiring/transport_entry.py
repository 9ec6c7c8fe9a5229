"""What every transport says about itself: the form of an entry in the registry of transports."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from postroom.clock import Clock
from postroom.domain.doctor import Check
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
        """Whether mails could leave this way; sends nothing."""
