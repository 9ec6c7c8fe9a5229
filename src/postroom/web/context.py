"""What every page and every call of the web service works with."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from ipaddress import IPv4Network, IPv6Network, ip_address
from typing import ParamSpec, TypeVar, cast

from starlette.applications import Starlette
from starlette.requests import Request

from postroom.act import Act
from postroom.clock import Clock
from postroom.domain.consent import Trace
from postroom.flow.render import Site
from postroom.storage.port import Storage
from postroom.wakeup import SCHEDULER, WakeUps

NOWHERE = "0.0.0.0"
PROXIES_MAX = 10  # entries of X-Forwarded-For that are looked at
# An address as proxies write it: some add the port, and then bracket one that has colons itself.
_FORWARDED = re.compile(r"\[([0-9A-Fa-f:.]+)\](?::[0-9]+)?|([0-9.]+):[0-9]+")

Networks = tuple[IPv4Network | IPv6Network, ...]
P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class WebContext:
    storage: Storage
    clock: Clock
    wakeups: WakeUps
    site: Site
    trusted_proxies: Networks = ()  # whose X-Forwarded-For is believed
    admin_networks: Networks = ()  # that may open the admin pages; empty for all
    is_url_given: bool = True  # by a setting; otherwise it follows the bound address
    has_outbox: bool = False  # test mode: emails go to the outbox, shown as the test mailbox
    has_kept_mails: bool = False  # at the start: they can be read and deleted
    mail_server: str = ""  # host:port; empty in test mode

    @property
    def is_https(self) -> bool:
        return self.site.url.startswith("https://")

    def act(self, trace: Trace, now: datetime | None = None) -> Act:
        """The context of a use case; `now` is the time of the first try of a repeated call."""
        return Act(self.storage, self.clock, now or self.clock.now(), trace, self.wakeups.ring)

    def wake_scheduler(self) -> None:
        self.wakeups.ring(SCHEDULER)


class TestMailbox:
    """Whether this process has seen the test mailbox emptied."""

    is_emptied = False


def has_mailbox(request: Request) -> bool:
    """Whether the test mailbox is in the menu: in test mode, and until it is emptied."""
    context = context_of(request)
    is_left = context.has_kept_mails and not one_per_app(request.app, TestMailbox).is_emptied
    return context.has_outbox or is_left


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
    before the first address that is not a trusted proxy may be made up. Where a proxy wrote
    something that is not an address, the proxy's own address counts.
    """
    context = context_of(request)
    client = request.client.host if request.client else NOWHERE
    told = ",".join(request.headers.getlist("x-forwarded-for")).split(",")
    for each in reversed(told[-PROXIES_MAX:]):
        address = _without_port(each.strip())
        if not _is_address(address) or not is_within(client, context.trusted_proxies):
            break
        client = address
    return client if _is_address(client) else NOWHERE


def _without_port(text: str) -> str:
    found = _FORWARDED.fullmatch(text)
    return found[1] or found[2] if found else text


def is_within(address: str, networks: Networks) -> bool:
    if not _is_address(address):
        return False
    found = ip_address(address)
    mapped = getattr(found, "ipv4_mapped", None)  # ::ffff:10.0.0.1 on a socket for both
    return any((mapped or found) in network for network in networks)


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
