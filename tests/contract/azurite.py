"""Azurite, the emulator of Azure Storage: one a test process, in memory, on this machine alone.

Its clock stands still until a test moves it (tests/azurite/standing_clock.js). Where it is known
to differ from the service:

- It shows the length of a queue exactly and at once; the service approximately.
- It hands out items strictly by the time they became visible; the service as a rule.
- It finds entities in a batch by patterns, so line separators are spelt out (azure_rows.py).
- It fails on comparing an Int64 with a row of another type (Account.is_emulator, azure_rows.py).
- It takes a comma at the beginning of a row key for the end of the partition key, so such rows can
  be inserted and read but not changed (Account.is_emulator, azure_rows.py).
- It hangs up after five idle seconds (Account.is_emulator, azure_line.py).
- It never throttles and never sends a short page: tests/contract/faulty_azure.py does.
- It does not decode the path of a request twice, as the service does (azure_rows.py).
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import subprocess
from functools import lru_cache
from pathlib import Path

from postroom.storage.azure_account import Account, parse_account

ROOT = Path(__file__).parents[2]
TOOLS = ROOT / ".tools"
PROGRAM = TOOLS / "azurite" / "node_modules" / "azurite" / "dist" / "src" / "azurite.js"
CLOCK = ROOT / "tests" / "azurite" / "standing_clock.js"
LISTENING = re.compile(r"Azurite (\w+) service is successfully listening at \S+:(\d+)")
SERVICES = 3
LINES_MAX = 50  # of what it says before it is ready
OPTIONS = ("--silent", "--inMemoryPersistence", "--disableTelemetry", "--skipApiVersionCheck")


class Azurite:
    """A running emulator."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            _command(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=TOOLS,
        )
        self.account = self._wait_until_it_listens()

    def move(self, seconds: float) -> None:
        """Move its clock ahead."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{seconds * 1000:.0f}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer == "moved\n", answer

    def stop(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _wait_until_it_listens(self) -> Account:
        assert self._process.stdout is not None
        ports: dict[str, str] = {}
        said = ""
        for _ in range(LINES_MAX):
            said += (line := self._process.stdout.readline())
            if found := LISTENING.search(line):
                ports[found[1].lower()] = found[2]
            if len(ports) == SERVICES:
                options = "&".join(f"{service}={port}" for service, port in ports.items())
                return parse_account(f"emulator?{options}")
        self.stop()
        raise AssertionError(f"Azurite does not start: {said.strip() or 'it says nothing'}")


@lru_cache(maxsize=1)
def azurite() -> Azurite:
    """The one of this test process; started when first asked for."""
    started = Azurite()
    atexit.register(started.stop)
    return started


def _command() -> list[str]:
    hosts = [f"--{service}Host=127.0.0.1" for service in ("blob", "queue", "table")]
    ports = [f"--{service}Port=0" for service in ("blob", "queue", "table")]
    if not PROGRAM.exists():
        raise AssertionError("Azurite is not installed: ./dev test fetches it into .tools/azurite.")
    return [_node(), "--require", str(CLOCK), str(PROGRAM), *OPTIONS, *hosts, *ports]


def _node() -> str:
    """What ./dev found, else what is on the path."""
    node = os.environ.get("NODE") or shutil.which("node")
    if node is None:
        raise AssertionError("Node is missing: install Node 20 or newer, or run ./dev test.")
    return node
