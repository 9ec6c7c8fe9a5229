"""A DNS server on loopback with the zone that a test gives it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.rdataclass
import dns.rdatatype
import dns.rrset

Zone = Mapping[tuple[str, str], Sequence[str]]  # records in zone file form, by name and type


@dataclass
class LoopbackDns(asyncio.DatagramProtocol):
    """Answers from the zone; a name with no record of any type does not exist."""

    zone: Zone
    broken: frozenset[str] = frozenset()  # names that are answered with SERVFAIL
    asked: list[tuple[str, str]] = field(default_factory=list)
    port: int = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)  # uvloop's is not a subclass

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self._transport.sendto(self.answer(dns.message.from_wire(data)).to_wire(), addr)

    def answer(self, query: dns.message.Message) -> dns.message.Message:
        [question] = query.question
        name = question.name.to_text().rstrip(".").lower()
        kind = dns.rdatatype.to_text(question.rdtype)
        self.asked.append((name, kind))
        response = dns.message.make_response(query)
        response.flags |= dns.flags.RA
        if name in self.broken:
            response.set_rcode(dns.rcode.SERVFAIL)
        elif records := self.zone.get((name, kind)):
            response.answer.append(
                dns.rrset.from_text_list(question.name, 60, "IN", kind, list(records))
            )
        elif not any(f".{each}".endswith(f".{name}") for each, _ in self.zone):
            response.set_rcode(dns.rcode.NXDOMAIN)
        return response


@contextlib.asynccontextmanager
async def dns_server(zone: Zone, *broken: str) -> AsyncIterator[LoopbackDns]:
    server = LoopbackDns(zone, frozenset(broken))
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(lambda: server, ("127.0.0.1", 0))
    server.port = transport.get_extra_info("sockname")[1]
    try:
        yield server
    finally:
        transport.close()
