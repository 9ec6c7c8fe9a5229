"""An engine or a transport is one registry entry, which every command then uses."""

from __future__ import annotations

from pathlib import Path

import pytest

from postroom.cli.doctor import examine
from postroom.clock import Clock
from postroom.domain.doctor import Check, CheckResult
from postroom.intervals import REMOTE
from postroom.records.names import STORAGE_NAMES
from postroom.settings import Settings, load
from postroom.storage.memory import MemoryStorage
from postroom.storage.port import Storage
from postroom.transport.outbox import OutboxTransport
from postroom.transport.port import Transport
from postroom.wiring import check
from postroom.wiring.engines import ENGINES, EngineEntry, engine_of, intervals_of
from postroom.wiring.transport_entry import TransportEntry
from postroom.wiring.transports import TRANSPORTS, transport_of

ENGINE_FINDING = Check(CheckResult.NOTE, "replicas", "all of them answer")
TRANSPORT_FINDING = Check(CheckResult.RIGHT, "transport", "the pigeon is fed")


class CloudEntry(EngineEntry):
    form = "cloud:name"
    intervals = REMOTE
    description = "a cloud"

    def __init__(self, settings: Settings) -> None:
        """Any name will do."""

    async def open(self, clock: Clock, *, timeout_s: float, create: bool) -> Storage:
        return MemoryStorage(clock, STORAGE_NAMES)

    async def examine(self) -> list[Check]:
        return [ENGINE_FINDING]


class PigeonEntry(TransportEntry):
    form = "pigeon:name"
    description = "a pigeon"

    def __init__(self, settings: Settings) -> None:
        """Any name will do."""

    def open(self, storage: Storage, clock: Clock) -> Transport:
        return OutboxTransport(storage, clock)

    async def examine(self) -> Check:
        return TRANSPORT_FINDING


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """An installation whose engine and transport are registered here alone."""
    monkeypatch.setitem(ENGINES, "cloud", CloudEntry)
    monkeypatch.setitem(TRANSPORTS, "pigeon", PigeonEntry)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("POSTROOM_STORAGE", "cloud:contoso")
    monkeypatch.setenv("POSTROOM_TRANSPORT", "pigeon:ada")
    return load()


def test_an_entry_in_the_registry_is_enough(settings: Settings) -> None:
    assert check(settings) == []
    assert engine_of(settings).name == "a cloud"
    assert intervals_of(settings) == REMOTE
    assert transport_of(settings).description == "a pigeon"


def test_the_doctor_examines_what_the_entries_say_and_nothing_else(settings: Settings) -> None:
    findings = {finding.about: finding for finding in examine()}
    assert findings["storage"].words == "a cloud can be opened"
    assert findings["replicas"] == ENGINE_FINDING
    assert findings["transport"] == TRANSPORT_FINDING
    assert "integrity" not in findings  # that is about SQLite's file


@pytest.mark.parametrize("address", ["nothing", "sqlite:/one-slash.db", "sqlite:///", "postgres:x"])
def test_an_unknown_address_names_all_known_forms(settings: Settings, address: str) -> None:
    environ = {"POSTROOM_STORAGE": address, "POSTROOM_TRANSPORT": "owl:"}
    mistakes = check(load(environ))
    assert mistakes == [
        "POSTROOM_STORAGE: must be sqlite:///path.db, or azure: and an account "
        "(see docs/settings.md), or cloud:name",
        "POSTROOM_TRANSPORT: must be outbox: or smtp://host:port or sendgrid: or "
        "acs:https://NAME.communication.azure.com or ses:REGION or pigeon:name",
    ]


def test_the_settings_change_the_intervals_of_the_engine(settings: Settings) -> None:
    changed = intervals_of(settings.model_copy(update={"poll_s": 0.2, "lease_s": 5.0}))
    assert (changed.poll_s, changed.schedule_s, changed.lease_s) == (0.2, 1.0, 5.0)
    assert changed.tidy_s == REMOTE.tidy_s
