"""The table of costs in docs/azure.md, made of docs/azure-costs.toml."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

MILLION = 1_000_000
MINUTES_AN_HOUR = 60
SECONDS_AN_HOUR = 3600
ROLES = ("web", "scheduler", "sender")


@dataclass(frozen=True)
class Line:
    words: str
    amount: str
    dollars: float
    dollars_busy: float  # where replicas are billed as active all the time


def as_markdown(costs: dict[str, Any]) -> str:
    basis = "counted" if costs["calls"]["counted"] else "promised bound, not counted yet"
    return "\n".join(
        [
            f"Storage calls: {basis}. List prices in US dollars, West Europe, LRS, "
            f"noted on {costs['prices']['noted_on']}: check before relying on them.",
            "",
            "| a month, idle | amount | billed as idle | billed as active |",
            "|---|---|---|---|",
            *_rows(list(_idle_month(costs))),
            "",
            "| a million mails | amount | price |",
            "|---|---|---|",
            *_rows(list(_million_mails(costs)), busy=False),
        ]
    )


def _rows(lines: list[Line], *, busy: bool = True) -> Iterator[str]:
    total = Line(
        "**together**", "", sum(x.dollars for x in lines), sum(x.dollars_busy for x in lines)
    )
    for line in [*lines, total]:
        last = f" {_price(line.dollars_busy)} |" if busy else ""
        yield f"| {line.words} | {line.amount} | {_price(line.dollars)} |{last}"


def _price(dollars: float) -> str:
    return f"${dollars:,.2f}" if dollars >= 0.005 or dollars == 0 else "under $0.01"


def _idle_month(costs: dict[str, Any]) -> Iterator[Line]:
    prices, service, assumed = costs["prices"], costs["service"], costs["assumed"]
    seconds = service["month_hours"] * SECONDS_AN_HOUR
    roles = [service[role] for role in ROLES]
    replicas = sum(role["replicas"] for role in roles)
    vcpu_s = seconds * sum(role["replicas"] * role["vcpu"] for role in roles)
    gib_s = seconds * sum(role["replicas"] * role["gib"] for role in roles)
    paid_vcpu_s = max(0.0, vcpu_s - prices["free_vcpu_s_month"])
    paid_gib_s = max(0.0, gib_s - prices["free_gib_s_month"])
    memory = paid_gib_s * prices["gib_s"]
    yield Line(
        f"{replicas} replicas, after the free grant",
        f"{paid_vcpu_s:,.0f} vCPU s, {paid_gib_s:,.0f} GiB s",
        paid_vcpu_s * prices["vcpu_s_idle"] + memory,
        paid_vcpu_s * prices["vcpu_s_active"] + memory,
    )
    minutes = service["month_hours"] * MINUTES_AN_HOUR
    calls = _times(costs["calls"]["idle_minute_per_role"], replicas * minutes)
    calls["queue"] += costs["calls"]["scaler_minute"] * minutes
    yield _same("storage calls", f"{sum(calls.values()):,.0f}", _price_of_calls(calls, prices))
    log_gb = max(0.0, assumed["log_gb_month"] - prices["free_log_gb_month"])
    yield _same("logs", f"{assumed['log_gb_month']:g} GB", log_gb * prices["log_gb"])
    yield _same("registry for the image", "Basic", prices["registry_month"])


def _million_mails(costs: dict[str, Any]) -> Iterator[Line]:
    prices, sender, assumed = costs["prices"], costs["service"]["sender"], costs["assumed"]
    calls = _times(costs["calls"]["per_mail"], MILLION)
    yield _same("storage calls", f"{sum(calls.values()):,.0f}", _price_of_calls(calls, prices))
    seconds = MILLION / assumed["mails_per_second_per_sender"]
    rate = sender["vcpu"] * prices["vcpu_s_active"] + sender["gib"] * prices["gib_s"]
    yield _same("senders at work", f"{seconds:,.0f} s of one", seconds * rate)
    archive_gb = MILLION * assumed["archive_bytes_per_mail"] / 1e9
    yield _same(
        "archive, each month it is kept",
        f"{archive_gb:g} GB",
        archive_gb * prices["table_gb_month"],
    )


def _same(words: str, amount: str, dollars: float) -> Line:
    return Line(words, amount, dollars, dollars)


def _times(calls: dict[str, float], factor: float) -> dict[str, float]:
    return {kind: count * factor for kind, count in calls.items()}


def _price_of_calls(calls: dict[str, float], prices: dict[str, Any]) -> float:
    return sum(float(prices[f"{kind}_10k_calls"]) * n / 10_000 for kind, n in calls.items())
