"""A whole Postroom for the browser to visit: `postroom serve`, a file, the outbox."""

from __future__ import annotations

import asyncio
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from pathlib import Path
from typing import Any

from postroom.flow.render import Site
from postroom.records.secrets import installation_secret
from postroom.storage.port import KeysWithin
from postroom.transport import outbox
from postroom.wiring import Parts
from postroom_bench.installation import Installation, until
from tests.process.test_cli import Folder

START_S = 120.0
STOP_S = 120.0
MAILS_MAX = 100


@dataclass(frozen=True)
class RunningSite:
    url: str  # http://127.0.0.1:port
    folder: Path
    parts: Parts  # the storage that the site works on, opened a second time
    links: Site  # what links in its mails look like
    terminal: Folder

    async def run(self, *arguments: str) -> str:
        """What `postroom …` prints; it must succeed."""
        return await asyncio.to_thread(self.terminal.run, *arguments)

    async def json(self, *arguments: str) -> Any:
        return await asyncio.to_thread(self.terminal.json, *arguments)

    async def mails(self) -> list[EmailMessage]:
        """The newest in the outbox, newest first."""
        storage = self.parts.storage
        keys = KeysWithin(outbox.PARTITION)
        found = await storage.tables.scan(outbox.TABLE, keys, limit=MAILS_MAX)
        sources = [await storage.blobs.get(f"outbox/{row.key}.eml") for row in found.rows]
        return [message_from_bytes(source or b"", policy=default) for source in sources]


@asynccontextmanager
async def running_site(folder: Path, port: int) -> AsyncIterator[RunningSite]:
    url = f"http://127.0.0.1:{port}"
    async with Installation(folder) as installation:
        installation.overrides |= {
            "POSTROOM_BIND": f"127.0.0.1:{port}",
            "POSTROOM_URL": url,
            "POSTROOM_TRANSPORT": "outbox:",
            "POSTROOM_SENDERS_MAX": "1",
        }
        serve = await installation.start("serve")
        await until(lambda: asyncio.to_thread(is_ready, url), within_s=START_S)
        terminal = Folder(folder)
        terminal.environ |= installation.environ | {"POSTROOM_LOG_LEVEL": "error"}
        async with installation.parts() as parts:
            links = Site(url, await installation_secret(parts.storage.tables))
            yield RunningSite(url, folder, parts, links, terminal)
        assert await serve.terminate(within_s=STOP_S) == 0, serve.log.read_text()[-2000:]


def is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/readyz", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
