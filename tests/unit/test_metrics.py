"""What a role shows to Prometheus."""

from __future__ import annotations

from datetime import UTC, datetime

from prometheus_client import CollectorRegistry, generate_latest

from postroom import metrics
from postroom.domain.breaker import Breaker, MailHealth
from postroom.domain.message import Books, Message, Status
from postroom.domain.outcome import Deferred, Scope, Sent
from postroom.records import messages
from postroom.records.names import MAIL_QUEUE, STORAGE_NAMES
from postroom.storage.memory import MemoryStorage
from tests.clock import START, MovableClock

NOW = datetime(2026, 11, 15, 9, 0, tzinfo=UTC)


def shown(role: str, health: MailHealth | None) -> str:
    registry = CollectorRegistry()
    counted = metrics.RoleCollector(role, lambda: {"get": 3}, dict, lambda: {"refused": 1}, health)
    registry.register(counted)
    return generate_latest(registry).decode()


def test_a_sender_shows_mails_by_outcome_and_the_mail_servers_health() -> None:
    health, breaker = MailHealth("mail.contoso.edu:587"), Breaker()
    health.note([Sent("250 ok"), Sent("250 ok"), Deferred("535 no", Scope.PROVIDER, False)])
    health.failed(breaker, NOW, NOW.timestamp(), 10.0)
    page = shown("sender", health)
    assert 'postroom_mails_total{outcome="sent",role="sender"} 2.0' in page
    assert 'postroom_mails_total{outcome="deferred",role="sender"} 1.0' in page
    assert 'postroom_mail_server_faults_total{kind="login",role="sender"} 1.0' in page
    assert 'postroom_mail_server_faults_total{kind="connect",role="sender"} 0.0' in page
    assert 'postroom_mail_server_trouble{role="sender"} 1.0' in page
    assert 'postroom_breaker_faults{role="sender"} 1.0' in page
    health.worked()
    assert 'postroom_mail_server_trouble{role="sender"} 0.0' in shown("sender", health)


async def test_the_scheduler_shows_what_waits_and_for_how_long() -> None:
    clock = MovableClock()
    storage = MemoryStorage(clock, STORAGE_NAMES)
    service = metrics.ServiceCollector(storage, clock)
    await storage.queues.put(MAIL_QUEUE, "one", "two")
    late = Message(
        ref="",
        list_name="news",
        list_created_at=START,
        subject="News",
        sender="a@contoso.edu",
        created_at=START,
        due_at=START,
        status=Status.PENDING,
        books=Books(held=3, doubts=4),
    )
    message, _etag = await messages.reserve(storage.tables, late)
    await messages.put_due(storage.tables, message, START)
    await service.sample()
    clock.move(30)
    await service.sample()
    assert (service.items[MAIL_QUEUE], service.ages_s[MAIL_QUEUE]) == (2, 30)
    assert service.due_lag_s == 30
    assert service.deliveries == {"queued": 0, "sending": 0, "held": 3, "doubts": 4}
    (claim,) = await storage.queues.claim(MAIL_QUEUE, limit=1, lease_s=60)
    await service.sample()
    assert service.ages_s[MAIL_QUEUE] == 0  # the next one has just become the first
    await storage.queues.complete(claim)
    page = "".join(str(family.samples) for family in service.collect())
    assert "postroom_queue_wait_seconds" in page


def test_other_roles_show_storage_alone() -> None:
    page = shown("web", None)
    assert 'postroom_storage_calls_total{kind="get",role="web"} 3.0' in page
    assert "postroom_mail" not in page
