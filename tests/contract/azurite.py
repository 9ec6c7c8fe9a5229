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
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from postroom.storage.azure.account import Account, parse_account

ROOT = Path(__file__).parents[2]
TOOLS = ROOT / ".tools"
PROGRAM = TOOLS / "azurite" / "node_modules" / "azurite" / "dist" / "src" / "azurite.js"
CLOCK = ROOT / "tests" / "azurite" / "standing_clock.js"
LISTENING = re.compile(r"Azurite (\w+) service is successfully listening at \S+:(\d+)")
SERVICES = 3
LINES_MAX = 50  # of what it says before it is ready
OPTIONS = ("--silent", "--disableTelemetry", "--skipApiVersionCheck")
STOP_S = 120.0  # it writes everything down first


class Azurite:
    """A running emulator, its clock standing still and everything in memory."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            _command("--require", str(CLOCK), options=(*OPTIONS, "--inMemoryPersistence")),
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
        try:
            return parse_account(_address(_ports(self._process)))
        except AssertionError:
            self.stop()
            raise


class AzuriteOnDisk:
    """An emulator on the real clock that can be stopped and started again with what it kept."""

    def __init__(self, folder: Path, *, blob: int, queue: int, table: int) -> None:
        self._folder = folder
        self._ports = {"blob": str(blob), "queue": str(queue), "table": str(table)}
        self._process: subprocess.Popen[str] | None = None

    @property
    def address(self) -> str:
        """As POSTROOM_STORAGE wants it."""
        return f"azure:{_address(self._ports)}"

    def start(self) -> None:
        """Always at the same ports."""
        options = (*OPTIONS, "--location", str(self._folder))
        self._process = subprocess.Popen(
            _command(options=options, ports=self._ports),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=TOOLS,
        )
        assert _ports(self._process) == self._ports

    def stop(self) -> None:
        """As a planned stop of the service: it writes down what it has in memory."""
        if self._process:
            self._process.terminate()
            self._process.communicate(timeout=STOP_S)
            self._process = None


def _ports(process: subprocess.Popen[str]) -> dict[str, str]:
    """Where its services listen, once all do."""
    assert process.stdout is not None
    ports: dict[str, str] = {}
    said = ""
    for _ in range(LINES_MAX):
        said += (line := process.stdout.readline())
        if found := LISTENING.search(line):
            ports[found[1].lower()] = found[2]
        if len(ports) == SERVICES:
            return ports
    raise AssertionError(f"Azurite does not start: {said.strip() or 'it says nothing'}")


def _address(ports: Mapping[str, str]) -> str:
    return "emulator?" + "&".join(f"{service}={port}" for service, port in ports.items())


@lru_cache(maxsize=1)
def azurite() -> Azurite:
    """The one of this test process; started when first asked for."""
    started = Azurite()
    atexit.register(started.stop)
    return started


def _command(
    *node_options: str, options: Sequence[str], ports: Mapping[str, str] | None = None
) -> list[str]:
    where = [f"--{service}Host=127.0.0.1" for service in ("blob", "queue", "table")]
    where += [f"--{name}Port={(ports or {}).get(name, 0)}" for name in ("blob", "queue", "table")]
    if not PROGRAM.exists():
        raise AssertionError("Azurite is not installed: ./dev test fetches it into .tools/azurite.")
    return [_node(), *node_options, str(PROGRAM), *options, *where]


def _node() -> str:
    """What ./dev found, else what is on the path."""
    node = os.environ.get("NODE") or shutil.which("node")
    if node is None:
        raise AssertionError("Node is missing: install Node 20 or newer, or run ./dev test.")
    return node
