"""A small IMAP server for tests: folders, UIDs and flags in memory, and faults on request.

It speaks what the reader of the bounce mailbox needs, over loopback. The options say what it
offers; `faults` say what goes wrong at which command, in order: "drop", "no", "bad" or "silent".
"""

from __future__ import annotations

import asyncio
import base64
import re
import shlex
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import TracebackType
from typing import Self

USER, PASSWORD = "bounces", 'correct "horse" battery'
RECEIVED_AT = datetime(2026, 11, 14, 7, 30, tzinfo=UTC)
_LINE_BYTES_MAX = 1024 * 1024
_PARTIAL = re.compile(r"BODY\.PEEK\[\]<0\.(\d+)>", re.IGNORECASE)


@dataclass
class ServerMail:
    uid: int
    content: bytes
    flags: set[str] = field(default_factory=set)


@dataclass
class ServerFolder:
    validity: int = 7
    next_uid: int = 1
    mails: list[ServerMail] = field(default_factory=list)

    def add(self, content: bytes, *flags: str) -> int:
        self.mails.append(ServerMail(self.next_uid, content, set(flags)))
        self.next_uid += 1
        return self.mails[-1].uid

    @property
    def contents(self) -> list[bytes]:
        return [mail.content for mail in self.mails]


@dataclass
class ImapServer:
    capabilities: tuple[str, ...] = ("MOVE", "UIDPLUS", "AUTH=PLAIN")
    delimiter: str = "/"
    may_create: bool = True
    may_create_below: bool = True
    takes_keywords: bool = True
    is_read_only: bool = False
    tls: ssl.SSLContext | None = None
    has_implicit_tls: bool = False
    faults: dict[str, list[str]] = field(default_factory=dict)
    broken_uids: set[int] = field(default_factory=set)  # at these the connection breaks
    refused_uids: set[int] = field(default_factory=set)  # these cannot be read
    folders: dict[str, ServerFolder] = field(default_factory=lambda: {"INBOX": ServerFolder()})
    commands: list[str] = field(default_factory=list)
    connected: int = 0
    port: int = 0

    @property
    def inbox(self) -> ServerFolder:
        return self.folders["INBOX"]

    async def __aenter__(self) -> Self:
        context = self.tls if self.has_implicit_tls else None
        self._server = await asyncio.start_server(
            self._serve, "127.0.0.1", 0, ssl=context, limit=_LINE_BYTES_MAX
        )
        self.port = self._server.sockets[0].getsockname()[1]
        self._writers: set[asyncio.StreamWriter] = set()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.close()
        self.drop_connections()

    def drop_connections(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connected += 1
        self._writers.add(writer)
        try:
            await Connection(self, reader, writer).serve()
        except (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            pass  # the client is gone
        finally:
            self._writers.discard(writer)
            writer.transport.abort()


class Connection:
    def __init__(
        self, server: ImapServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._server = server
        self._reader = reader
        self._writer = writer
        self._selected = ""
        self._is_over = False

    async def serve(self) -> None:
        await self._say("* OK ready")
        while not self._is_over:
            line = (await self._reader.readline()).decode()
            if not line:
                return
            tag, _, rest = line.rstrip("\r\n").partition(" ")
            command, _, arguments = rest.partition(" ")
            if command.upper() == "UID":
                command, _, arguments = arguments.partition(" ")
            command = command.upper()
            self._server.commands.append(rest)
            waiting = self._server.faults.get(command, [])
            fault = waiting.pop(0) if waiting else ""
            if fault == "drop":
                return
            if fault == "silent":
                await self._reader.read()
                return
            answer = f"{fault.upper()} as the test says" if fault else ""
            answer = answer or await self._answer(tag, command, arguments)
            if answer:
                await self._say(f"{tag} {answer}")

    async def _say(self, line: str) -> None:
        self._writer.write(line.encode() + b"\r\n")
        await self._writer.drain()

    async def _answer(self, tag: str, command: str, arguments: str) -> str:
        match command:
            case "CAPABILITY":
                await self._say(f"* CAPABILITY IMAP4REV1 {' '.join(self._offers())}")
                return "OK done"
            case "STARTTLS":
                assert self._server.tls
                await self._say(f"{tag} OK begin")
                await self._writer.start_tls(self._server.tls)
                return ""
            case "LOGOUT":
                self._is_over = True
                return "OK done"
            case "LOGIN" | "AUTHENTICATE":
                return await self._log_in(command, arguments)
            case "SELECT":
                return await self._select(unquoted(arguments))
            case "LIST":
                name = self._server.delimiter
                await self._say(rf'* LIST (\Noselect) "{name}" ""' if name else '* LIST () NIL ""')
                return "OK done"
            case "STATUS" | "CREATE" | "SUBSCRIBE":
                return self._about_folder(command, arguments)
            case "EXPUNGE" if not arguments:
                self._expunge({mail.uid for mail in self._folder.mails})
                return "OK done"
        return await self._about_mails(command, arguments)

    def _offers(self) -> Iterator[str]:
        yield from self._server.capabilities
        if self._server.tls and not self._server.has_implicit_tls:
            yield "STARTTLS"

    async def _log_in(self, command: str, arguments: str) -> str:
        if command == "LOGIN":
            given = tuple(shlex.split(arguments))
        else:
            await self._say("+ ")
            said = base64.b64decode(await self._reader.readline()).decode()
            given = tuple(said.split("\0")[1:])
        return "OK welcome" if given == (USER, PASSWORD) else "NO [AUTHENTICATIONFAILED] Wrong"

    async def _select(self, name: str) -> str:
        folder = self._server.folders.get(name)
        if folder is None:
            return "NO [NONEXISTENT] No such folder"
        self._selected = name
        keywords = r" \*" if self._server.takes_keywords else ""
        await self._say(f"* {len(folder.mails)} EXISTS")
        await self._say(f"* OK [UIDVALIDITY {folder.validity}] valid")
        await self._say(rf"* OK [PERMANENTFLAGS (\Deleted \Seen{keywords})] flags")
        return f"OK [READ-{'ONLY' if self._server.is_read_only else 'WRITE'}] done"

    def _about_folder(self, command: str, arguments: str) -> str:
        name = unquoted(arguments.removesuffix(" (MESSAGES)"))
        if command == "CREATE":
            is_below = name.startswith("INBOX")
            allowed = self._server.may_create_below if is_below else self._server.may_create
            if not allowed or name in self._server.folders:
                return "NO not possible"
            self._server.folders[name] = ServerFolder()
        return "OK done" if name in self._server.folders else "NO no such folder"

    # --- Mails --------------------------------------------------------------------------------

    @property
    def _folder(self) -> ServerFolder:
        return self._server.folders[self._selected]

    async def _about_mails(self, command: str, arguments: str) -> str:
        if command == "SEARCH":
            found = [mail.uid for mail in self._folder.mails if matches(mail, arguments)]
            await self._say(f"* SEARCH {' '.join(map(str, found))}".rstrip())
            return "OK done"
        numbers, _, rest = arguments.partition(" ")
        uids = {int(each) for each in numbers.split(",")}
        mails = [mail for mail in self._folder.mails if mail.uid in uids]
        match command:
            case "FETCH":
                return await self._fetch(mails, rest)
            case "STORE":
                flags = set(rest.partition("(")[2].rstrip(")").split())
                for mail in mails:
                    mail.flags |= flags
                return "OK done"
            case "COPY" | "MOVE":
                target = self._server.folders.get(unquoted(rest))
                if target is None or (command == "MOVE" and not self._has("MOVE")):
                    return "NO [TRYCREATE] not possible"
                for mail in mails:
                    target.add(mail.content, *mail.flags)
                if command == "MOVE":
                    self._folder.mails = [mail for mail in self._folder.mails if mail not in mails]
                return "OK done"
            case "EXPUNGE" if self._has("UIDPLUS"):
                self._expunge(uids)
                return "OK done"
        return "BAD unknown command"

    def _has(self, capability: str) -> bool:
        return capability in self._server.capabilities

    def _expunge(self, uids: set[int]) -> None:
        folder = self._folder
        folder.mails = [
            mail for mail in folder.mails if mail.uid not in uids or r"\Deleted" not in mail.flags
        ]

    async def _fetch(self, mails: list[ServerMail], what: str) -> str:
        asked = _PARTIAL.search(what)
        assert asked, "the whole mail was asked for, or it would be marked as read"
        for mail in mails:
            if mail.uid in self._server.broken_uids:
                self._is_over = True
                return ""
            if mail.uid in self._server.refused_uids:
                return "NO [SERVERBUG] cannot read it"
            content = mail.content[: int(asked[1])]
            date = RECEIVED_AT.strftime("%d-%b-%Y %H:%M:%S +0000")
            head = f'* 1 FETCH (UID {mail.uid} INTERNALDATE "{date}" BODY[]<0> {{{len(content)}}}'
            self._writer.write(head.encode() + b"\r\n" + content + b")\r\n")
        return "OK done"


def matches(mail: ServerMail, criteria: str) -> bool:
    words = iter(criteria.split())
    for word in words:
        match word:
            case "UNDELETED" if r"\Deleted" in mail.flags:
                return False
            case "DELETED" if r"\Deleted" not in mail.flags:
                return False
            case "UNKEYWORD" if next(words) in mail.flags:
                return False
    return True


def unquoted(text: str) -> str:
    return shlex.split(text)[0] if text.startswith('"') else text
