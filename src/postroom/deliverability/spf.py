"""Read SPF records as a receiver does (RFC 7208): syntax, number of lookups, who may send."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address

import msgspec

from postroom.deliverability.dns import DnsAnswer, DnsClient, RecordType

LOOKUPS_MAX = 10  # RFC 7208 4.6.4: with more, receivers treat the record as broken
VOID_LOOKUPS_MAX = 2  # the same section: lookups without an answer
MX_HOSTS_MAX = 10  # the same section
COUNTED_MAX = 40  # lookups after which counting stops: enough to say how far over it is
VERSION = "v=spf1"

IpAddress = IPv4Address | IPv6Address
_MECHANISM = re.compile(
    r"(?P<qualifier>[+?~-]?)(?P<name>all|include|exists|ptr|mx|a|ip4|ip6)(?::(?P<value>[^/\s]+"
    r"(?:/[0-9/]+)?))?(?P<length>/[0-9]{1,3}(?://[0-9]{1,3})?|//[0-9]{1,3})?",
    re.IGNORECASE,
)
_MODIFIER = re.compile(r"(?P<name>[A-Za-z][A-Za-z0-9._-]*)=(?P<value>\S*)")
_NEEDS_VALUE = {"include", "exists", "ip4", "ip6"}
_TAKES_NO_VALUE = {"all"}
_COSTS_A_LOOKUP = {"include", "exists", "ptr", "mx", "a", "redirect"}


class SpfTerm(msgspec.Struct, frozen=True):
    """One mechanism or modifier of a record."""

    name: str
    value: str = ""
    qualifier: str = "+"  # + pass, - fail, ~ softfail, ? neutral
    prefix_four: int = 32
    prefix_six: int = 128


def parse_spf(record: str) -> list[SpfTerm]:
    """The terms of a record in order; ValueError names the first that is wrong."""
    return [_parse_term(word) for word in record.split()[1:]]


def is_spf(record: str) -> bool:
    return record.split(" ", 1)[0].lower() == VERSION


def _parse_term(word: str) -> SpfTerm:
    found = _MECHANISM.fullmatch(word)
    if found is None:
        modifier = _MODIFIER.fullmatch(word)
        if modifier is None:
            raise ValueError(f"“{word[:60]}” is not an SPF term")
        return SpfTerm(modifier["name"].lower(), modifier["value"])
    name = found["name"].lower()
    value = found["value"] or ""
    if bool(value) != (name in _NEEDS_VALUE) and name in _NEEDS_VALUE | _TAKES_NO_VALUE:
        raise ValueError(f"“{word[:60]}” is an incomplete SPF term")
    if name in ("ip4", "ip6"):
        network = f"{value}{found['length'] or ''}"
        try:
            parsed = ipaddress.ip_network(network, strict=False)
        except ValueError:
            raise ValueError(f"“{word[:60]}” names no network") from None
        if parsed.version != int(name[2]):
            raise ValueError(f"“{word[:60]}” has an address of the wrong IP version")
        return SpfTerm(name, str(parsed), found["qualifier"] or "+")
    value, _, in_value = value.partition("/")
    length = f"/{in_value}" if in_value else found["length"] or ""
    four, _, six = length.removeprefix("/").partition("//" if length[:2] != "//" else "/")
    prefix_four, prefix_six = int(four or 32), int(six or 128)
    if prefix_four > 32 or prefix_six > 128:
        raise ValueError(f"“{word[:60]}” names no network")
    return SpfTerm(name, value, found["qualifier"] or "+", prefix_four, prefix_six)


@dataclass
class SpfReading:
    """A record with everything it includes, read to its end to count all lookups."""

    terms: list[SpfTerm] = field(default_factory=list)  # of the record itself
    record: str = ""
    lookups: int = 0
    void_lookups: int = 0
    included: set[str] = field(default_factory=set)  # domains, at any depth
    mistakes: list[str] = field(default_factory=list)
    results: dict[IpAddress, str] = field(default_factory=dict)  # qualifier by address
    has_macros: bool = False  # so it may cover addresses that we cannot tell

    def covers(self, address: IpAddress) -> bool:
        return self.results.get(address) == "+"


class SpfReader:
    """Reads the record of one domain for the addresses that send its mail."""

    def __init__(self, dns: DnsClient, addresses: Iterable[IpAddress]) -> None:
        self._dns = dns
        self._addresses = tuple(addresses)
        self.reading = SpfReading()

    async def read(self, domain: str) -> SpfReading:
        reading = self.reading
        reading.results = await self._evaluate(domain, ())
        if reading.lookups > LOOKUPS_MAX:
            reading.mistakes.append(
                f"it needs {reading.lookups} DNS lookups, and receivers stop at {LOOKUPS_MAX}"
            )
        if reading.void_lookups > VOID_LOOKUPS_MAX:
            reading.mistakes.append(
                f"{reading.void_lookups} of its lookups find nothing, and receivers stop after "
                f"{VOID_LOOKUPS_MAX}"
            )
        return reading

    async def _evaluate(self, domain: str, above: tuple[str, ...]) -> dict[IpAddress, str]:
        """The qualifier of the first term that matches, by address."""
        reading = self.reading
        if domain in above:
            reading.mistakes.append(f"the record of {domain} includes itself")
            return {}
        terms = await self._terms(domain, is_included=bool(above))
        if not above:
            reading.terms = terms
        results: dict[IpAddress, str] = {}
        has_all = any(term.name == "all" for term in terms)
        for term in terms:
            if term.name in _COSTS_A_LOOKUP and not (term.name == "redirect" and has_all):
                reading.lookups += 1
                if reading.lookups > COUNTED_MAX:
                    break
            if term.name == "redirect":
                if not has_all and (target := self._target(term, domain)):
                    redirected = await self._evaluate(target, (*above, domain))
                    results = redirected | results
                continue
            for address in await self._matches(term, domain, above):
                results.setdefault(address, term.qualifier)
            if term.name == "all":
                break
        return results

    async def _terms(self, domain: str, *, is_included: bool) -> list[SpfTerm]:
        reading = self.reading
        answer = await self._dns.ask(domain, RecordType.TXT)
        records = [record for record in answer.records if is_spf(record)]
        if answer.fault:
            reading.mistakes.append(f"{domain}: {answer.fault}")
        elif len(records) > 1:
            reading.mistakes.append(
                f"{domain} has {len(records)} SPF records, but only one is allowed"
            )
        elif is_included and not records:
            reading.mistakes.append(f"it includes {domain}, which has no SPF record")
        if len(records) != 1:
            return []
        if not is_included:
            reading.record = records[0]
        try:
            return parse_spf(records[0])
        except ValueError as error:
            whose = f" of {domain}, which it includes" if is_included else ""
            reading.mistakes.append(f"{error} in the record{whose}")
            return []

    def _target(self, term: SpfTerm, domain: str) -> str:
        """The domain that a term names; empty if only an email could tell."""
        if "%" in term.value:
            self.reading.has_macros = True
            return ""
        return (term.value or domain).rstrip(".").lower()

    async def _matches(
        self, term: SpfTerm, domain: str, above: tuple[str, ...]
    ) -> Iterable[IpAddress]:
        if term.name == "all":
            return self._addresses
        if term.name in ("ip4", "ip6"):
            network = ipaddress.ip_network(term.value)
            return [each for each in self._addresses if each in network]
        target = self._target(term, domain)
        if not target or term.name not in ("include", "a", "mx"):
            return []
        if term.name == "include":
            self.reading.included.add(target)
            inside = await self._evaluate(target, (*above, domain))
            return [each for each, qualifier in inside.items() if qualifier == "+"]
        hosts = [target]
        if term.name == "mx":
            answer = await self._dns.ask(target, RecordType.MX)
            self._count_void(answer)
            hosts = list(answer.records[:MX_HOSTS_MAX])
        return await self._addresses_of(hosts, term)

    async def _addresses_of(self, hosts: Iterable[str], term: SpfTerm) -> list[IpAddress]:
        found: list[IpAddress] = []
        for host in hosts:
            answer = await self._dns.addresses(host)
            self._count_void(answer)
            for text in answer.records:
                prefix = term.prefix_six if ":" in text else term.prefix_four
                network = ipaddress.ip_network(f"{text}/{prefix}", strict=False)
                found += [each for each in self._addresses if each in network]
        return found

    def _count_void(self, answer: DnsAnswer) -> None:
        if not answer.records and not answer.fault:
            self.reading.void_lookups += 1
