"""Roles forked by the nursery: their environment, their end, and the end of the nursery."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from postroom.cli import exit_codes, running

ROOT = Path(__file__).parents[2]

# A process of its own, because a test run has threads, and nothing with threads may be forked.
PROGRAM = """
    import asyncio, os, signal, socket, sys, time
    from pathlib import Path
    from postroom import nursery

    def run(role):
        if role == "tells":
            told = os.environ.get("NUMBER"), os.environ.get("NUMBER_FILE"), os.environ.get("KEPT")
            os.write(0, repr((told, os.getsid(0) == os.getpid())).encode())
            return 7
        if role == "raises":
            raise RuntimeError("a bug")
        os.write(0, str(os.getppid()).encode())
        signal.pause()

    os.environ.update(NUMBER="1", NUMBER_FILE="/run/number", KEPT="2")
    forked = nursery.fork_nursery(run)

    async def start(role):
        ours, theirs = socket.socketpair()
        ours.settimeout(60)
        process = await forked.start(role, {"NUMBER": "5"}, theirs.fileno())
        theirs.close()
        return process, ours

    async def main():
        loop = asyncio.get_running_loop()
        TEST

    asyncio.run(main())
"""
pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs pidfds")


def told_by(test: str) -> str:
    body = textwrap.indent(textwrap.dedent(test).strip(), " " * 4)
    return _printed_by(textwrap.dedent(PROGRAM).replace("    TEST", body))


def _printed_by(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_role_has_its_settings_its_own_session_and_an_exit_code() -> None:
    told = told_by(
        """
        process, pipe = await start("tells")
        print(await process.wait(), process.returncode, pipe.recv(1000).decode())
        """
    )
    assert told == "7 7 (('5', None, '2'), True)"


def test_a_bug_in_a_role_ends_that_role_alone() -> None:
    told = told_by(
        """
        process, pipe = await start("raises")
        print(await process.wait())
        again, pipe = await start("tells")
        print(await again.wait())
        """
    )
    assert told.split() == ["1", "7"]


def test_signals_reach_the_role_and_a_kill_is_reported() -> None:
    told = told_by(
        """
        for number in (signal.SIGTERM, signal.SIGKILL):
            process, pipe = await start("waits")
            pipe.recv(100)
            process.send_signal(number)
            print(await process.wait())
            process.send_signal(number)  # too late: nobody else is hit
        """
    )
    assert told.split() == [str(-signal.SIGTERM), str(-signal.SIGKILL)]


def test_roles_outlive_the_nursery_and_are_still_watched() -> None:
    told = told_by(
        """
        process, pipe = await start("waits")
        os.kill(int(pipe.recv(100)), signal.SIGKILL)
        while forked.is_alive:
            await asyncio.sleep(0)
        print(process.returncode)
        try:
            await start("tells")
        except OSError:
            print("gone")
        process.send_signal(signal.SIGKILL)
        print(await process.wait())
        """
    )
    assert told.split() == ["None", "gone", "-1"]


def test_the_nursery_ends_with_its_supervisor() -> None:
    told = told_by(
        """
        process, pipe = await start("waits")
        print(pipe.recv(100).decode(), process.pid, flush=True)
        process.send_signal(signal.SIGKILL)
        await process.wait()
        """
    )
    nursery, _role = map(int, told.split())
    until = time.monotonic() + 60
    while Path(f"/proc/{nursery}").exists() and time.monotonic() < until:
        os.sched_yield()
    assert not Path(f"/proc/{nursery}").exists()


# Native libraries that only some pages, settings or commands need. Each takes 1 to 8 MB of every
# `serve` once it is imported, so the function that needs it imports it.
SELDOM_NEEDED = (
    *("PIL", "aiohttp", "azure", "cryptography", "css_inline", "dns", "httpx2"),
    *("imaplib", "minijinja", "mjml", "opentelemetry.sdk", "rich"),
)


def test_roles_are_forked_with_everything_they_need_and_nothing_that_is_seldom_needed() -> None:
    program = """
        import sys
        from postroom import nursery
        from postroom.cli import running

        nursery.fork_nursery = lambda run: print(*sys.modules)
        running._fork_nursery()
    """
    imported = set(_printed_by(textwrap.dedent(program)).split())
    assert {"postroom.wiring.roles", "postroom.web.app", "uvloop"} <= imported
    assert not imported & set(SELDOM_NEEDED)


def test_a_forked_role_explains_its_failure_as_its_command_does(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("POSTROOM_STORAGE", "nonsense:")
    assert running._run_forked("sender") == exit_codes.USAGE
    assert "POSTROOM_STORAGE" in capsys.readouterr().err
