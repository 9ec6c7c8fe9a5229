"""The tables of costs in docs/azure.md, made of docs/azure-costs.toml."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

MILLION = 1_000_000
MINUTES_AN_HOUR = 60
SECONDS_AN_HOUR = 3600
ROLES = ("web", "scheduler", "sender")

Costs = dict[str, Any]


@dataclass(frozen=True)
class Line:
    words: str
    amount: str
    dollars: float
    prices: tuple[str, ...]  # their names; empty where nothing is paid
    dollars_busy: float | None = None  # where replicas are billed as active all the time

    @property
    def busy(self) -> float:
        return self.dollars if self.dollars_busy is None else self.dollars_busy


def as_markdown(costs: Costs) -> str:
    basis = "counted" if costs["calls"]["counted"] else "promised bound, not counted yet"
    prices = costs["prices"]
    return "\n".join(
        [
            f"List prices in US dollars, {prices['region']}, noted on {prices['noted_on']}. "
            f"Storage calls: {basis}. Lines marked ≈ contain estimates: see below.",
            "",
            "| a month, nothing to send | amount | billed as idle | billed as active |",
            "|---|---|---|---|",
            *_rows(costs, list(month(costs))),
            "",
            "| a million emails | amount | price |",
            "|---|---|---|",
            *_rows(costs, list(million_mails(costs)), busy=False),
            "",
            "| cheaper, or different | billed as idle | billed as active |",
            "|---|---|---|",
            *_variants(costs),
            "",
            *_sources(costs),
        ]
    )


def _rows(costs: Costs, lines: list[Line], *, busy: bool = True) -> Iterator[str]:
    for line in lines:
        mark = " ≈" if any("on" not in costs["prices"][name] for name in line.prices) else ""
        yield _row(line.words + mark, line.amount, line.dollars, line.busy if busy else None)
    whole, active = sum(x.dollars for x in lines), sum(x.busy for x in lines)
    yield _row("**together** ≈", "", whole, active if busy else None)


def _row(words: str, amount: str, dollars: float, busy: float | None) -> str:
    last = "" if busy is None else f" {_price(busy)} |"
    return f"| {words} | {amount} | {_price(dollars)} |{last}"


def _price(dollars: float) -> str:
    if dollars < 0:
        return f"−${-dollars:,.2f}"
    return f"${dollars:,.2f}" if dollars >= 0.005 or dollars == 0 else "under $0.01"


# --- A month --------------------------------------------------------------------------------------


def month(costs: Costs) -> Iterator[Line]:
    yield from _compute(costs)
    yield from _storage(costs)
    yield from _traffic(costs)
    if endpoints := costs["service"]["endpoints"]:
        hours = endpoints * costs["service"]["month_hours"]
        dollars = hours * _usd(costs, "endpoint_hour") + endpoints * _usd(costs, "zone_month")
        yield Line(
            "network isolation",
            f"{endpoints} private endpoints and DNS zones",
            dollars,
            ("endpoint_hour", "zone_month"),
        )
    log_gb = costs["assumed"]["log_gb_month"]
    paid_gb = max(0.0, log_gb - costs["free"]["log_gb"])
    yield Line("logs", f"{log_gb:g} GB", paid_gb * _usd(costs, "log_gb"), ())
    yield Line("registry", "Basic", _usd(costs, "registry_month"), ("registry_month",))
    emails = costs["assumed"]["sendgrid_emails"]
    plan = "sendgrid_essentials_month"
    yield Line("SendGrid", f"Essentials, {emails:,} emails", _usd(costs, plan), (plan,))


def _compute(costs: Costs) -> Iterator[Line]:
    service = costs["service"]
    seconds = service["month_hours"] * SECONDS_AN_HOUR
    used = {"vcpu": 0.0, "gib": 0.0}
    for role in ROLES:
        each = service[role]
        if not each["replicas"]:
            continue
        vcpu_s = seconds * each["replicas"] * each["vcpu"]
        gib_s = seconds * each["replicas"] * each["gib"]
        used = {"vcpu": used["vcpu"] + vcpu_s, "gib": used["gib"] + gib_s}
        size = f"{each['replicas']} × {each['vcpu']:g} vCPU, {each['gib']:g} GiB"
        yield _replicas(costs, f"{role} role", size, vcpu_s, gib_s)
    if "job" in service:
        runs = service["month_hours"] * MINUTES_AN_HOUR / service["drain_every_minutes"]
        busy_s, each = runs * costs["assumed"]["drain_run_s"], service["drain"]
        rate = each["vcpu"] * _usd(costs, "vcpu_s_active") + each["gib"] * _usd(costs, "gib_s")
        amount = f"{runs:,.0f} runs of {costs['assumed']['drain_run_s']} s"
        yield Line("job", amount, busy_s * rate, ("vcpu_s_active", "gib_s"))
    free_vcpu_s = min(used["vcpu"], costs["free"]["vcpu_s"])
    free_gib_s = min(used["gib"], costs["free"]["gib_s"])
    if free_vcpu_s:
        amount = f"{free_vcpu_s:,.0f} vCPU s, {free_gib_s:,.0f} GiB s"
        yield _replicas(costs, "free grant", amount, -free_vcpu_s, -free_gib_s)
    if site := service.get("site"):
        hours = site * service["month_hours"]
        dollars = hours * _usd(costs, "site_hour")
        yield Line("web role", f"{site} × App Service P0v3", dollars, ("site_hour",))


def _replicas(costs: Costs, words: str, amount: str, vcpu_s: float, gib_s: float) -> Line:
    memory = gib_s * _usd(costs, "gib_s")
    return Line(
        words,
        amount,
        vcpu_s * _usd(costs, "vcpu_s_idle") + memory,
        ("vcpu_s_idle", "vcpu_s_active", "gib_s"),
        vcpu_s * _usd(costs, "vcpu_s_active") + memory,
    )


def _storage(costs: Costs) -> Iterator[Line]:
    service, assumed = costs["service"], costs["assumed"]
    minutes = service["month_hours"] * MINUTES_AN_HOUR
    parts = [
        _times(costs["calls"]["idle_minute"][role], minutes * service[role]["replicas"])
        for role in ROLES
    ]
    if "job" in service:
        parts.append(_times(costs["calls"]["drain_run"], minutes / service["drain_every_minutes"]))
    else:
        parts.append(_times(costs["calls"]["scaler_minute"], minutes))
    yield _calls(costs, parts)
    table_gb, blob_gb = assumed["table_gb"], assumed["blob_gb"]
    yield Line(
        "stored data, traces included",
        f"{table_gb:g} GB of tables, {blob_gb:g} GB of blobs",
        table_gb * _usd(costs, "table_gb_month") + blob_gb * _usd(costs, "blob_gb_month"),
        ("table_gb_month", "blob_gb_month"),
    )


def _traffic(costs: Costs) -> Iterator[Line]:
    """Requests and bandwidth of people's pages; both have a free share."""
    assumed, free = costs["assumed"], costs["free"]
    for words, name, unit in (
        ("requests", "requests_million", "million"),
        ("bandwidth out", "egress_gb", "GB"),
    ):
        paid = max(0.0, assumed[name] - free[name])
        amount = f"{assumed[name]:g} {unit}; {free[name]:g} are free"
        yield Line(words, amount, paid * _usd(costs, name), (name,))


# --- A million emails -----------------------------------------------------------------------------


def million_mails(costs: Costs) -> Iterator[Line]:
    sender, assumed = costs["service"]["sender"], costs["assumed"]
    yield _calls(costs, [_times(costs["calls"]["per_mail"], MILLION)])
    seconds = MILLION / assumed["mails_per_second_per_sender"]
    rate = sender["vcpu"] * _usd(costs, "vcpu_s_active") + sender["gib"] * _usd(costs, "gib_s")
    yield Line(
        "senders at work",
        f"{seconds:,.0f} s of one",
        seconds * rate,
        ("vcpu_s_active", "gib_s"),
    )
    archive_gb = MILLION * assumed["archive_bytes_per_mail"] / 1e9
    yield Line(
        "archive, each month it is kept",
        f"{archive_gb:g} GB",
        archive_gb * _usd(costs, "table_gb_month"),
        ("table_gb_month",),
    )
    egress_gb = MILLION * assumed["mail_bytes"] / 1e9
    yield Line(
        "bandwidth out, if the free share is used up",
        f"{egress_gb:g} GB",
        egress_gb * _usd(costs, "egress_gb"),
        ("egress_gb",),
    )
    more = MILLION - assumed["sendgrid_pro_emails"]
    yield Line(
        "SendGrid, at most",
        f"smallest Pro plan, and {more:,} more",
        _usd(costs, "sendgrid_pro_month") + more * _usd(costs, "sendgrid_pro_more"),
        ("sendgrid_pro_month", "sendgrid_pro_more"),
    )


# --- Other ways to run it -------------------------------------------------------------------------


def _variants(costs: Costs) -> Iterator[str]:
    for words, changed in variants(costs).items():
        lines = list(month(changed))
        idle, active = sum(x.dollars for x in lines), sum(x.busy for x in lines)
        yield f"| {words} | {_price(idle)} | {_price(active)} |"


def variants(costs: Costs) -> dict[str, Costs]:
    """By parameters of the template."""
    none = copy.deepcopy(costs)
    none["service"]["sender"]["replicas"] = 0
    open_ = copy.deepcopy(costs)
    open_["service"]["endpoints"] = 0
    job = copy.deepcopy(none)
    job["service"]["scheduler"]["replicas"] = 0
    job["service"]["job"] = True
    cheapest = copy.deepcopy(job)
    cheapest["service"]["endpoints"] = 0
    site = copy.deepcopy(costs)
    site["service"]["site"] = site["service"]["web"]["replicas"]
    site["service"]["web"]["replicas"] = 0
    return {
        "no sender while nothing waits (`sendersMin=0`)": none,
        "without private endpoints (`isolated=false`)": open_,
        "a job every ten minutes instead of scheduler and senders (`work=job`)": job,
        "both: `work=job isolated=false`": cheapest,
        "the web role on App Service (`webOn=appService`)": site,
    }


# --- Prices ---------------------------------------------------------------------------------------


def _sources(costs: Costs) -> Iterator[str]:
    priced = {name: each for name, each in costs["prices"].items() if isinstance(each, dict)}
    yield "Where the prices come from:"
    yield ""
    for source, words in costs["sources"].items():
        found = {name: each for name, each in priced.items() if each.get("source") == source}
        days = sorted({each["on"] for each in found.values()})
        names = ", ".join(_words(name) for name in found)
        yield f"- {names}: {words} ({' and '.join(str(day) for day in days)})"
    guessed = ", ".join(_words(name) for name, each in priced.items() if "on" not in each)
    yield f"- **estimates, not looked up**: {guessed}"


def _words(name: str) -> str:
    return f"`{name}`"


def _usd(costs: Costs, name: str) -> float:
    return float(costs["prices"][name]["usd"])


def _calls(costs: Costs, parts: list[dict[str, float]]) -> Line:
    total = sum(count for part in parts for count in part.values())
    kinds = sorted({kind for part in parts for kind in part})
    prices = tuple(f"{kind}_10k_calls" for kind in kinds)
    dollars = sum(
        _usd(costs, f"{kind}_10k_calls") * count / 10_000
        for part in parts
        for kind, count in part.items()
    )
    return Line("storage calls", f"{total:,.0f}", dollars, prices)


def _times(calls: dict[str, float], factor: float) -> dict[str, float]:
    return {kind: count * factor for kind, count in calls.items()}
