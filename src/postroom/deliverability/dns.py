"""Look up DNS records; a lookup that fails returns a value with the reason."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from enum import StrEnum
from typing import Any

import dns.asyncresolver
import dns.exception
import dns.resolver
import dns.reversename
import msgspec

from postroom.domain.errors import BadInput

TIMEOUT_S = 5.0  # for one question, over all name servers; a person waits
LOOKUPS_MAX = 200  # for one domain; the longest SPF records that work take 30
UDP_BYTES = 1232  # what arrives unfragmented everywhere; longer answers come by TCP
DNS_PORT = 53


class RecordType(StrEnum):
    A = "A"
    AAAA = "AAAA"
    MX = "MX"
    PTR = "PTR"
    SOA = "SOA"
    TXT = "TXT"


class DnsAnswer(msgspec.Struct, frozen=True):
    """The records, sorted as they should be used; none if `fault` says why nobody knows."""

    records: tuple[str, ...] = ()
    exists: bool = True  # the name itself
    fault: str = ""


# Any: the records of dnspython have the attributes of their type, which mypy cannot know.
_TEXT: dict[RecordType, Callable[[Any], str]] = {
    RecordType.TXT: lambda record: b"".join(record.strings).decode("utf-8", "replace"),
    RecordType.MX: lambda record: record.exchange.to_text().rstrip(".").lower(),
    RecordType.PTR: lambda record: record.target.to_text().rstrip(".").lower(),
    RecordType.A: lambda record: str(record.address),
    RecordType.AAAA: lambda record: str(record.address),
    RecordType.SOA: lambda record: record.mname.to_text().rstrip(".").lower(),
}


class DnsClient:
    """Asks every question once, and not more than LOOKUPS_MAX of them."""

    def __init__(self, resolver: dns.asyncresolver.Resolver) -> None:
        self._resolver = resolver
        self._answers: dict[tuple[str, RecordType], DnsAnswer] = {}

    async def ask(self, name: str, kind: RecordType) -> DnsAnswer:
        known = self._answers.get((name, kind))
        if known is None:
            if len(self._answers) >= LOOKUPS_MAX:
                return DnsAnswer(fault=f"more than {LOOKUPS_MAX} DNS lookups")
            known = self._answers[name, kind] = await self._resolve(name, kind)
        return known

    async def addresses(self, name: str) -> DnsAnswer:
        """All IPv4 and IPv6 addresses of a host."""
        four = await self.ask(name, RecordType.A)
        six = await self.ask(name, RecordType.AAAA)
        found = four.records + six.records
        return DnsAnswer(found, four.exists or six.exists, "" if found else four.fault or six.fault)

    async def names_of(self, address: str) -> DnsAnswer:
        """The names that an address has by its PTR records."""
        pointer = dns.reversename.from_address(address).to_text()
        return await self.ask(pointer, RecordType.PTR)

    async def _resolve(self, name: str, kind: RecordType) -> DnsAnswer:
        try:
            answer = await self._resolver.resolve(name, kind.value, search=False)
        except dns.resolver.NXDOMAIN:
            return DnsAnswer(exists=False)
        except dns.resolver.NoAnswer:
            return DnsAnswer()
        except dns.resolver.LifetimeTimeout:
            return DnsAnswer(fault=f"no DNS server answered within {TIMEOUT_S:g} s")
        except dns.resolver.NoNameservers:
            return DnsAnswer(fault="the DNS servers could not answer")
        except (dns.exception.DNSException, OSError, UnicodeError) as error:
            return DnsAnswer(fault=f"{type(error).__name__} for {name[:80]}")
        records = list(answer)
        if kind is RecordType.MX:
            records.sort(key=lambda record: record.preference)
        return DnsAnswer(tuple(map(_TEXT[kind], records)))


def system_resolver() -> dns.asyncresolver.Resolver:
    """The DNS servers of this machine; BadInput if it has none."""
    try:
        return _with_limits(dns.asyncresolver.Resolver())
    except dns.resolver.NoResolverConfiguration:
        raise BadInput(
            "This machine has no DNS server in /etc/resolv.conf. Name one with --dns."
        ) from None


def resolver_at(server: str) -> dns.asyncresolver.Resolver:
    """The DNS server at an IP address, with or without a port; BadInput if it is not one."""
    refusal = BadInput("A DNS server is an IP address, with or without a port: 9.9.9.9:53.")
    host = server
    port = str(DNS_PORT)
    if server.count(":") == 1 or server.startswith("["):
        host, _, port = server.rpartition(":")
    if not port.isdecimal() or not 0 < int(port) < 65536:
        raise refusal
    try:
        address = str(ipaddress.ip_address(host.strip("[]")))
    except ValueError:
        raise refusal from None
    resolver = dns.asyncresolver.Resolver(configure=False)
    resolver.nameservers = [address]
    resolver.port = int(port)
    return _with_limits(resolver)


def _with_limits(resolver: dns.asyncresolver.Resolver) -> dns.asyncresolver.Resolver:
    resolver.lifetime = TIMEOUT_S
    resolver.timeout = TIMEOUT_S / 2
    resolver.use_edns(0, 0, UDP_BYTES)
    return resolver
