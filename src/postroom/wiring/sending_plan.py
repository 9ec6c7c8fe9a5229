"""How emails from a domain are sent, according to the settings, for `postroom doctor --domain`."""

from __future__ import annotations

import socket

from postroom.deliverability.checks import SendingPlan
from postroom.domain.tls import is_loopback
from postroom.settings import Settings
from postroom.wiring.dkim import dkim_keys_of
from postroom.wiring.transports import transport_of


def sending_plan(settings: Settings, domain: str) -> SendingPlan:
    transport = transport_of(settings)
    return SendingPlan(
        domain=domain,
        bounce_domain=settings.bounce_domain or domain,
        keys=tuple(key for key in dkim_keys_of(settings) if key.domain == domain),
        relay=transport.host,
        is_relay_local=is_loopback(transport.host),
        host=transport.ehlo_name or socket.getfqdn(),
        url=settings.url,
    )
