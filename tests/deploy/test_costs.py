"""The table of costs is what the data file gives, and the data file is what is deployed."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest

from tests.deploy.cost_table import as_markdown, month, variants
from tests.deploy.reading import DEPLOY, ROLES_BICEP, ROOT

BEGIN, END = "<!-- costs: made from azure-costs.toml -->", "<!-- end of costs -->"


def costs() -> dict[str, Any]:
    return tomllib.loads((ROOT / "docs" / "azure-costs.toml").read_text(encoding="utf-8"))


def test_the_table_is_what_the_figures_give() -> None:
    page = (ROOT / "docs" / "azure.md").read_text(encoding="utf-8")
    shown = page.partition(BEGIN)[2].partition(END)[0].strip()
    assert shown == as_markdown(costs()), f"put this there:\n\n{as_markdown(costs())}"


@pytest.mark.parametrize("role", ["web", "scheduler", "sender", "drain"])
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
    for role in ("web", "scheduler", "sender"):
        assert sum(calls["idle_minute"][role].values()) <= 10


def test_every_price_has_a_source_and_a_day_or_is_called_an_estimate() -> None:
    prices = {name: each for name, each in costs()["prices"].items() if isinstance(each, dict)}
    table = as_markdown(costs())
    estimates = table.partition("**estimates, not looked up**: ")[2]
    for name, each in prices.items():
        assert (set(each) == {"usd"}) is (f"`{name}`" in estimates)
        assert set(each) in ({"usd"}, {"usd", "source", "on"})
        assert each.get("source") in {None, *costs()["sources"]}


def test_private_endpoints_are_as_many_as_are_deployed() -> None:
    network = (DEPLOY / "azure" / "network.bicep").read_text(encoding="utf-8")
    assert costs()["service"]["endpoints"] == len(re.findall(r"    part: '", network))


def test_the_table_follows_the_figures() -> None:
    known = costs()
    known["prices"]["queue_10k_calls"]["usd"] = 2.0
    known["calls"]["per_mail"] = {"table": 0.0, "queue": 0.1, "blob": 0.0}
    assert "| storage calls ≈ | 100,000 | $20.00 |" in as_markdown(known)
    known["service"]["web"]["replicas"] = 3
    assert "| web role | 3 × 0.5 vCPU, 1 GiB | $47.30 | $165.56 |" in as_markdown(known)


def test_what_is_described_has_a_line() -> None:
    lines = [line.words for line in month(costs())]
    for words in ("web role", "scheduler role", "sender role", "storage calls", "SendGrid"):
        assert words in lines
    assert {"stored data, traces included", "bandwidth out"} < set(lines)


def test_variants_cost_what_they_leave_out() -> None:
    whole = sum(line.dollars for line in month(costs()))
    cost = {
        words: sum(line.dollars for line in month(changed))
        for words, changed in variants(costs()).items()
    }
    without = next(each for words, each in cost.items() if "isolated=false`)" in words)
    assert whole - without == pytest.approx(4 * 730 * 0.01 + 4 * 0.5)
    assert min(cost, key=lambda words: cost[words]) == "both: `work=job isolated=false`"
