"""The context of every page and every call of the web service."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import ParamSpec, TypeVar, cast

from starlette.applications import Starlette
from starlette.requests import Request

from postroom.act import Act
from postroom.clock import Clock
from postroom.domain.audit import actor_of
from postroom.domain.consent import Trace
from postroom.domain.doctor import Check
from postroom.flow.render import Site
from postroom.settings import Settings
from postroom.storage.port import Storage
from postroom.wakeup import SCHEDULER, WakeUps
from postroom.web.fetching import Fetch, fetch_page
from postroom.web.webhooks.keys import NO_WEBHOOK_KEYS, WebhookKeys

NOWHERE = "0.0.0.0"
PROXIES_MAX = 10  # entries of X-Forwarded-For that are read
# An address with a port, as some proxies write it; an IPv6 address is in brackets then.
_FORWARDED = re.compile(r"\[([0-9A-Fa-f:.]+)\](?::[0-9]+)?|([0-9.]+):[0-9]+")

Networks = tuple[IPv4Network | IPv6Network, ...]
P = ParamSpec("P")
T = TypeVar("T")


@dataclass
class FullDiskNotes:
    """When another role of this machine last found no space, in seconds since the epoch."""

    heard_at: float = 0.0


@dataclass(frozen=True)
class WebContext:
    storage: Storage
    clock: Clock
    wakeups: WakeUps
    site: Site
    trusted_proxies: Networks = ()  # their X-Forwarded-For is trusted
    admin_networks: Networks = ()  # may open the admin pages; empty for all
    is_url_given: bool = True  # by a setting; otherwise it follows the bound address
    has_outbox: bool = False  # test mode: emails go to the outbox, shown as the test mailbox
    has_kept_mails: bool = False  # from an earlier test mode: they can be read and deleted
    mail_server: str = ""  # host:port; empty in test mode
    transport: str = ""  # described for people, without secrets
    examine_transport: Callable[[], Awaitable[Check]] | None = None  # sends nothing
    webhook_keys: WebhookKeys = NO_WEBHOOK_KEYS
    has_bounce_mailbox: bool = False
    fetch: Fetch = fetch_page  # for pages of Amazon SNS
    settings: Settings = field(
        default_factory=lambda: Settings.model_validate({})
    )  # as this process was started
    setting_descriptions: Mapping[str, str] = field(default_factory=dict)  # without secrets
    full_disk: FullDiskNotes = field(default_factory=FullDiskNotes)
    free_bytes: Callable[[], int | None] = lambda: None  # on the disk with the database

    @property
    def is_https(self) -> bool:
        return self.site.url.startswith("https://")

    def act(self, trace: Trace, now: datetime | None = None) -> Act:
        """The context of a use case; `now` is the time of the first try of a repeated call."""
        ring = self.wakeups.ring
        return Act(self.storage, self.clock, now or self.clock.now(), trace, ring, actor_of(trace))

    def wake_scheduler(self) -> None:
        self.wakeups.ring(SCHEDULER)


class TestMailbox:
    """Whether this process has seen the test mailbox emptied."""

    is_emptied = False


def has_mailbox(request: Request) -> bool:
    """Whether the test mailbox is in the menu: in test mode, and until it is emptied."""
    context = context_of(request)
    is_emptied = one_per_app(request.app, TestMailbox).is_emptied
    return context.has_outbox or (context.has_kept_mails and not is_emptied)


def context_of(request: Request) -> WebContext:
    context: WebContext = request.app.state.context
    return context


def one_per_app(app: Starlette, make: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
    """The result of `make`, called once per application."""
    if not hasattr(app.state, "made"):
        app.state.made = {}
    made: dict[Callable[P, T], object] = app.state.made
    if make not in made:
        made[make] = make(*args, **named)
    return cast(T, made[make])


def client_of(request: Request) -> str:
    """The IP address of the caller, seen past the trusted proxies.

    Each proxy appends the address it sees to X-Forwarded-For, so it is read backwards; anything
    before the first address that is not a trusted proxy may be forged. Where a proxy wrote
    something that is not an address, the proxy's own address counts.
    """
    context = context_of(request)
    client = request.client.host if request.client else NOWHERE
    entries = ",".join(request.headers.getlist("x-forwarded-for")).split(",")
    for entry in reversed(entries[-PROXIES_MAX:]):
        with_port = _FORWARDED.fullmatch(entry.strip())
        address = with_port[1] or with_port[2] if with_port else entry.strip()
        if parse_ip(address) is None or not is_within(client, context.trusted_proxies):
            break
        client = address
    return NOWHERE if parse_ip(client) is None else client


def is_within(address: str, networks: Networks) -> bool:
    found = parse_ip(address)
    return found is not None and any(found in network for network in networks)


def parse_ip(text: str) -> IPv4Address | IPv6Address | None:
    """The IP address; IPv4 if it is mapped, as ::ffff:10.0.0.1 on a socket for both."""
    with contextlib.suppress(ValueError):
        address = ip_address(text)
        return getattr(address, "ipv4_mapped", None) or address
    return None
