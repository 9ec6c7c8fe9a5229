"""The table of costs is what the data file gives, and the data file is what is deployed."""

from __future__ import annotations

import copy
import re
import tomllib
from typing import Any

import pytest

from tests.deploy.cost_table import as_markdown
from tests.deploy.reading import ROLES_BICEP, ROOT

BEGIN, END = "<!-- costs: made from azure-costs.toml -->", "<!-- end of costs -->"


def costs() -> dict[str, Any]:
    return tomllib.loads((ROOT / "docs" / "azure-costs.toml").read_text(encoding="utf-8"))


def test_the_table_is_what_the_figures_give() -> None:
    page = (ROOT / "docs" / "azure.md").read_text(encoding="utf-8")
    shown = page.partition(BEGIN)[2].partition(END)[0].strip()
    assert shown == as_markdown(costs()), f"put this there:\n\n{as_markdown(costs())}"


@pytest.mark.parametrize("role", ["web", "scheduler", "sender"])
def test_what_is_reckoned_with_is_what_is_deployed(role: str) -> None:
    found = re.findall(
        rf"args: \['{role}'\].*?cpu: json\('([\d.]+)'\)\s+memory: '([\d.]+)Gi'",
        ROLES_BICEP.read_text(encoding="utf-8"),
        re.DOTALL,
    )
    reckoned = costs()["service"][role]
    assert [(float(vcpu), float(gib)) for vcpu, gib in found] == [
        (reckoned["vcpu"], reckoned["gib"])
    ]


def test_the_bounds_that_were_promised_are_not_exceeded() -> None:
    calls = costs()["calls"]
    assert sum(calls["per_mail"].values()) <= 0.15
    assert sum(calls["idle_minute_per_role"].values()) <= 10


def test_the_table_follows_the_figures() -> None:
    known = costs()
    known["prices"] |= {"queue_10k_calls": 2.0, "free_vcpu_s_month": 0, "free_gib_s_month": 0}
    known["calls"] = {
        "counted": True,
        "per_mail": {"table": 0.0, "queue": 0.1, "blob": 0.0},
        "idle_minute_per_role": {"table": 0.0, "queue": 0.0, "blob": 0.0},
        "scaler_minute": 0.0,
    }
    table = as_markdown(known)
    assert table.startswith("Storage calls: counted. ")
    assert "| storage calls | 100,000 | $20.00 |" in table
    more = copy.deepcopy(known)
    more["service"]["web"]["replicas"] = 3
    assert "5 replicas" in as_markdown(more)
