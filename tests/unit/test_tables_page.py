"""docs/tables.md names every row and property that the code stores, and no other."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from postroom.domain.access_key import AccessKey
from postroom.domain.ask_job import AskJob
from postroom.domain.audit import AuditEntry
from postroom.domain.consent import Consent
from postroom.domain.delivery import Delivery, DeliveryEnd, Ledger, State
from postroom.domain.feedback import FeedbackEvent
from postroom.domain.instance import RunningInstance
from postroom.domain.mailing_list import MailingList
from postroom.domain.message import Message
from postroom.domain.message_template import MessageTemplate
from postroom.domain.picture import Picture
from postroom.domain.subscriber import Subscriber
from postroom.domain.suppression import Suppression
from postroom.domain.trace_entry import TraceEntry
from postroom.domain.trial import Trial
from postroom.domain.user import Invitation, Session, User
from postroom.importing.job import ImportJob
from postroom.migration.state import Migration
from postroom.records import archive, deliveries
from postroom.records.batches import Header
from postroom.records.counts import DailyGrowth, Delta, ListCounts
from postroom.records.feedback import (
    BounceRecord,
    CountedRecipients,
    FeedbackSummary,
    SoftBounces,
)
from postroom.records.idempotency import CallNote
from postroom.records.leases import Lease
from postroom.records.messages import DueEntry
from postroom.records.rate_limits import LimitRow
from postroom.records.rows import DESCRIBED, property_names
from postroom.records.setting_changes import SettingChanges
from postroom.storage.port import FlatRow
from postroom.storage.validation import as_properties

PAGE = Path(__file__).parents[2] / "docs" / "tables.md"
KINDS: dict[str, type[msgspec.Struct]] = {
    "`<list>` / `mailinglist`": MailingList,
    "`<list>` / `email:<address key>`": Subscriber,
    "`<list>` / `consent:<address key>:<falling time>-<nonce>`": Consent,
    "`<list>` / `delta:<time>-<nonce>`": Delta,
    "`<list>` / `count`": ListCounts,
    "`<list>` / `day:<yyyy-mm-dd>`": DailyGrowth,
    "`<list>` / `unconfirmed`": AskJob,
    "`m-<ref>` / `message`": Message,
    "`<yyyy-mm-dd>` / `message<ref>`": DueEntry,
    "`b<hh>-<ref>-<batch>` / `batch`": Header,
    "`l<hh>-<ref>-<group>` / `ledger<batch>`": Ledger,
    "`lease` / `scheduler`, `sender-<owner>`": Lease,
    "`user` / `<address key>`": User,
    "`session` / `<SHA-256>`": Session,
    "`invitation` / `<SHA-256>`": Invitation,
    "`key` / `<SHA-256>`": AccessKey,
    "`import` / `<falling time>-<nonce>`": ImportJob,
    "`idempotency-<key id>` / `<SHA-256>`": CallNote,
    "`limit` / `transport`, `domain:<domain>`": LimitRow,
    "`instance` / `<host>.<process id>`": RunningInstance,
    "`settings` / `changes`": SettingChanges,
    "`migration` / `state`": Migration,
    "`templates` / `<id>`": MessageTemplate,
    "`media` / `picture:<id>`": Picture,
    "`trial` / `<ref>:<user key>`": Trial,
    "`address` / `email:<address key>`": Suppression,
    "`in:<shard>` / `<hash of the event id>`": FeedbackEvent,
    "`m-<ref>` / `summary`": FeedbackSummary,
    "`m-<ref>` / `batch:<batch>`": CountedRecipients,
    "`m-<ref>` / `to:<batch>:<position>:<kind>`": BounceRecord,
    "`soft` / `<address key>`": SoftBounces,
    "`<level>-<falling hour>` / `<falling time>-<number>-<instance>`": TraceEntry,
    "`log` / `<falling time>-<order><nonce>`": AuditEntry,
}
DELIVERY = Delivery(0, "a@b.de", "a@b.de", "guid", {"name": "Ada"})
ENDED = DeliveryEnd(State.FAILED, "550", datetime(2026, 11, 15, tzinfo=UTC))
WRITTEN_BY_HAND: dict[str, FlatRow] = {
    "`b<hh>-<ref>-<batch>` / `to:<address key>`": deliveries.to_row(DELIVERY),
    "`b<hh>-<ref>-<batch>` / `to:<address key>` (archived)": archive._row(DELIVERY, ENDED, 1),
}


def sections() -> dict[str, str]:
    parts = PAGE.read_text().split("\n### ")[1:]
    return {part.partition("\n")[0]: part.partition("\n")[2] for part in parts}


def documented(heading: str) -> list[str]:
    text = sections()[heading].partition("Properties:")[2].partition("\n\n")[0]
    return re.findall(r"`(\w+)`", text)


@pytest.mark.parametrize("heading", KINDS)
def test_the_page_names_the_properties_of_a_struct(heading: str) -> None:
    assert documented(heading) == ["Format", *property_names(KINDS[heading]).values()]


@pytest.mark.parametrize("heading", WRITTEN_BY_HAND)
def test_the_page_names_the_properties_of_a_row_written_by_hand(heading: str) -> None:
    assert documented(heading) == list(as_properties(WRITTEN_BY_HAND[heading]))


def test_no_two_fields_have_one_property() -> None:
    for kind in KINDS.values():
        names = list(property_names(kind).values())
        assert len(names) == len(set(names)), kind


def test_every_name_of_the_description_is_in_use() -> None:
    used = {name for kind in KINDS.values() for name in property_names(kind).values()}
    assert set(DESCRIBED.values()) <= used
    names = {"Description", "FromEmailAddress", "SubscriberGUID", "Verified", "ScheduledDate"}
    assert names | {"SubjectLine", "ListName", "Status", "MessageRef", "EmailAddress"} <= used
