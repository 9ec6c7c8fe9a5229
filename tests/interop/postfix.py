"""A real Postfix with its own configuration, queue and ports, and a place to count behind it.

Mail for contoso.edu is taken in on three ports, which offer less and less (CHUNKING, PIPELINING,
neither), and is relayed to a next hop that keeps it. The log comes through standard output.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import socket
from asyncio import create_subprocess_exec
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import trustme
from aiosmtpd.smtp import SMTP

WAIT_S_MAX = 30.0
STOP_S_MAX = 20.0
SIZE_BYTES_MAX = 100_000
LOG_LINE_BYTES_MAX = 65_536

MAIN = """
compatibility_level = 3.6
queue_directory = {folder}/queue
data_directory = {folder}/data
maillog_file = /dev/stdout
myhostname = relay.contoso.edu
mynetworks = 127.0.0.0/8
inet_interfaces = 127.0.0.1
inet_protocols = ipv4
alias_maps =
mydestination =
local_recipient_maps =
relay_domains = contoso.edu
relay_recipient_maps = regexp:{folder}/config/recipients
relay_transport = smtp:[127.0.0.1]:{next_hop}
smtpd_recipient_restrictions =
    check_recipient_access regexp:{folder}/config/refusals, permit_mynetworks, reject
smtputf8_enable = yes
message_size_limit = {size_max}
smtpd_tls_security_level = may
smtpd_tls_chain_files = {folder}/config/server.pem
smtpd_tls_loglevel = 1
# Every mail counts here, not the load: no pause on input, and no wait between tries.
in_flow_delay = 0
"""

MASTER = """
127.0.0.1:{chunking} inet n - n - - smtpd
127.0.0.1:{pipelining} inet n - n - - smtpd
    -o smtpd_discard_ehlo_keywords=chunking
127.0.0.1:{plain} inet n - n - - smtpd
    -o smtpd_discard_ehlo_keywords=chunking,pipelining,8bitmime,smtputf8
pickup   unix       n - n 60   1 pickup
cleanup  unix       n - n -    0 cleanup
qmgr     unix       n - n 300  1 qmgr
tlsmgr   unix       - - n 1000 1 tlsmgr
rewrite  unix       - - n -    - trivial-rewrite
bounce   unix       - - n -    0 bounce
defer    unix       - - n -    0 bounce
trace    unix       - - n -    0 bounce
flush    unix       n - n 1000 0 flush
proxymap unix       - - n -    - proxymap
smtp     unix       - - n -   10 smtp
error    unix       - - n -    - error
retry    unix       - - n -    - error
discard  unix       - - n -    - discard
anvil    unix       - - n -    1 anvil
scache   unix       - - n -    1 scache
postlog  unix-dgram n - n -    1 postlogd
"""

RECIPIENTS = (
    "/^(student|schüler)[0-9]+@contoso\\.edu$/ ok\n/^(busy|blocked|closing)@contoso\\.edu$/ ok\n"
)
REFUSALS = (
    "/^busy@/ 450 4.2.1 the mailbox is busy\n"
    "/^blocked@/ 550 5.7.1 this sender is not welcome\n"
    "/^closing@/ 421 4.7.0 too busy to go on\n"
)


class Log:
    """The lines a process prints, and a way to wait for one."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._grown = asyncio.Condition()

    async def follow(self, stream: asyncio.StreamReader) -> None:
        while line := await stream.readline():
            self.lines.append(line.decode(errors="replace").rstrip())
            async with self._grown:
                self._grown.notify_all()

    async def until_each(self, patterns: Iterable[str], *, since: int = 0) -> None:
        """Wait until every pattern was found in some line after the first `since` ones."""
        missing = {pattern: re.compile(pattern) for pattern in patterns}
        try:
            async with asyncio.timeout(WAIT_S_MAX):
                await self._until_none(missing, since)
        except TimeoutError:
            tail = "\n".join(self.lines[-20:])
            raise AssertionError(f"the log does not show {list(missing)}:\n{tail}") from None

    async def _until_none(self, missing: dict[str, re.Pattern[str]], seen: int) -> None:
        async with self._grown:
            while True:
                text = "\n".join(self.lines[seen:])
                seen = len(self.lines)
                for name in [name for name, regex in missing.items() if regex.search(text)]:
                    del missing[name]
                if not missing:
                    return
                await self._grown.wait()


@dataclass
class NextHop:
    """Takes whatever Postfix relays, and keeps it."""

    contents: dict[str, list[bytes]] = field(default_factory=dict)  # by envelope recipient

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:  # noqa: N802
        for recipient in envelope.rcpt_tos:
            self.contents.setdefault(recipient, []).append(envelope.content)
        return "250 2.0.0 kept"

    def counts(self, recipients: Iterable[str]) -> Counter[str]:
        return Counter({name: len(self.contents.get(name, [])) for name in recipients})


@dataclass(frozen=True)
class Postfix:
    """A running Postfix."""

    chunking_port: int
    pipelining_port: int
    plain_port: int
    ca_file: str
    log: Log
    next_hop: NextHop

    async def has_relayed(self, words: Iterable[str]) -> None:
        """Wait until every mail that was taken with these words has left the queue."""
        taken = (re.search(r"queued as (\w+)", line) for line in words)
        await self.log.until_each(rf"\b{found[1]}: removed" for found in taken if found)


@asynccontextmanager
async def running_postfix(ca: trustme.CA) -> AsyncIterator[Postfix]:
    """Start it, wait until it takes connections, and stop it at the end."""
    folder = Path(mkdtemp(prefix="postroom-postfix-"))
    next_hop = NextHop()
    server = await asyncio.get_running_loop().create_server(
        lambda: SMTP(next_hop, enable_SMTPUTF8=True), "127.0.0.1", 0
    )
    chunking, pipelining, plain = free_ports(3)
    configure(
        folder,
        ca,
        next_hop=server.sockets[0].getsockname()[1],
        chunking=chunking,
        pipelining=pipelining,
        plain=plain,
    )
    log = Log()
    try:
        async with started(folder / "config", log):
            yield Postfix(chunking, pipelining, plain, f"{folder}/ca.pem", log, next_hop)
    finally:
        server.close()
        shutil.rmtree(folder)


@asynccontextmanager
async def started(config: Path, log: Log) -> AsyncIterator[None]:
    process = await create_subprocess_exec(
        *("postfix", "-c", str(config), "start-fg"),
        stdout=PIPE,
        stderr=STDOUT,
        limit=LOG_LINE_BYTES_MAX,
        start_new_session=True,
    )
    assert process.stdout
    reading = asyncio.create_task(log.follow(process.stdout))
    try:
        async with stopped_with_us(config):
            await log.until_each([r"daemon started"])
            yield
    finally:
        async with asyncio.timeout(STOP_S_MAX):
            await process.wait()
            await reading


@asynccontextmanager
async def stopped_with_us(config: Path) -> AsyncIterator[None]:
    """A keeper that stops Postfix when our end of its pipe closes, even if we are killed."""
    keeper = await create_subprocess_exec(
        *("sh", "-c", 'read -r _; exec postfix -c "$0" stop', str(config)),
        stdin=PIPE,
        stdout=DEVNULL,
        stderr=DEVNULL,
        start_new_session=True,
    )
    assert keeper.stdin
    try:
        yield
    finally:
        keeper.stdin.close()
        async with asyncio.timeout(STOP_S_MAX):
            await keeper.wait()


def configure(folder: Path, ca: trustme.CA, **ports: int) -> None:
    config = folder / "config"
    folder.chmod(0o755)  # its daemons run as another user
    for name in ("config", "queue", "data"):
        (folder / name).mkdir(mode=0o755)
    shutil.chown(folder / "data", "postfix")
    values = {"folder": folder, "size_max": SIZE_BYTES_MAX, **ports}
    (config / "main.cf").write_text(MAIN.format(**values), encoding="utf-8")
    (config / "master.cf").write_text(MASTER.format(**values), encoding="utf-8")
    (config / "recipients").write_text(RECIPIENTS, encoding="utf-8")
    (config / "refusals").write_text(REFUSALS, encoding="utf-8")
    ca.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(config / "server.pem")
    ca.cert_pem.write_to_path(folder / "ca.pem")


def free_ports(count: int) -> list[int]:
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]
    finally:
        for probe in probes:
            probe.close()
