"""How a connection to a mail server is encrypted, and which hosts are this machine."""

from __future__ import annotations

import ipaddress
from enum import StrEnum


class Tls(StrEnum):
    """How the connection is encrypted; the certificate is always verified."""

    REQUIRE = "require"  # STARTTLS, or nothing is sent (RFC 3207, RFC 9051)
    IMPLICIT = "implicit"  # TLS from the first octet (RFC 8314)
    NONE = "none"  # unencrypted, on request or on this machine


def is_loopback(host: str) -> bool:
    """Whether the name or address means this machine; resolves nothing."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
