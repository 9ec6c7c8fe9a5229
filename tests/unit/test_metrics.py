"""What a role shows to Prometheus."""

from __future__ import annotations

from datetime import UTC, datetime

from prometheus_client import CollectorRegistry, generate_latest

from postroom import metrics
from postroom.domain.breaker import Breaker, MailHealth
from postroom.domain.outcome import Deferred, Scope, Sent

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
    health.worked()
    assert 'postroom_mail_server_trouble{role="sender"} 0.0' in shown("sender", health)


def test_other_roles_show_storage_alone() -> None:
    page = shown("web", None)
    assert 'postroom_storage_calls_total{kind="get",role="web"} 3.0' in page
    assert "postroom_mail" not in page
