"""The compose file: as its specification says, and with what each role needs."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import pytest
import yaml

from postroom.settings import Settings
from postroom.storage.azure.account import parse_account
from postroom.supervisor import KILL_AFTER_S
from tests.deploy.reading import COMPOSE, compose, schema

ROLES = ["serve", "web", "scheduler", "sender"]


def mistakes(document: Any) -> list[str]:
    validator = jsonschema_rs.validator_for(schema("compose-spec.json"))
    return [error.message for error in validator.iter_errors(document)]


def test_the_file_is_as_the_specification_says() -> None:
    assert mistakes(yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))) == []
    assert mistakes(compose()) == []


@pytest.mark.parametrize(
    "wrong",
    [{"services": {"a": {"comand": ["web"]}}}, {"services": {"a": {"ports": "8025"}}}],
)
def test_a_file_that_is_not_is_found(wrong: Any) -> None:
    assert mistakes(wrong)


@pytest.mark.parametrize("role", ROLES)
def test_a_role_may_write_nowhere_but_to_its_machine(role: str) -> None:
    service = compose()["services"][role]
    assert service["read_only"] is True
    assert service["tmpfs"] == ["/tmp"]
    assert service["cap_drop"] == ["ALL"]
    assert service["volumes"] == ["data:/data"]


@pytest.mark.parametrize("role", ROLES)
def test_a_role_has_longer_to_stop_than_it_takes(role: str) -> None:
    service = compose()["services"][role]
    takes_s = float(service["environment"]["POSTROOM_STOP_GRACE_S"]) + KILL_AFTER_S
    assert service["stop_signal"] == "SIGTERM"
    assert int(service["stop_grace_period"].removesuffix("s")) > takes_s


def test_only_roles_that_answer_http_are_asked_whether_they_are_ready() -> None:
    services = compose()["services"]
    asked = {name for name, service in services.items() if "healthcheck" in service}
    assert asked == {"serve", "web"}
    assert all(":8025/readyz" in str(services[name]["healthcheck"]["test"]) for name in asked)


def test_nothing_is_open_to_the_network_without_a_proxy() -> None:
    services = compose()["services"].values()
    ports = [port for service in services for port in service.get("ports", [])]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_without_a_setting_the_roles_use_the_emulator_of_the_same_file() -> None:
    storage = compose()["services"]["sender"]["environment"]["POSTROOM_STORAGE"]
    account = parse_account(storage.removeprefix("azure:"))
    assert account.is_emulator
    urls = {account.blob_url, account.queue_url, account.table_url}
    assert urls == {f"http://azurite:{port}/devstoreaccount1" for port in (10000, 10001, 10002)}
    assert "azurite" in compose()["services"]


def test_a_profile_starts_either_everything_in_one_or_each_role() -> None:
    profiles = {name: service["profiles"] for name, service in compose()["services"].items()}
    assert profiles == {
        "serve": ["serve"],
        "web": ["roles"],
        "scheduler": ["roles"],
        "sender": ["roles"],
        "azurite": ["emulator"],
    }


def test_the_grace_here_is_the_default() -> None:
    default = Settings.model_fields["stop_grace_s"].default
    assert float(compose()["services"]["web"]["environment"]["POSTROOM_STOP_GRACE_S"]) == default
