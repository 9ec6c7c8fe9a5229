"""The real program, typed as people and scripts type it."""

from __future__ import annotations

import asyncio
import contextlib
import csv
import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from postroom import settings
from postroom.importing.import_people import BATCH_PEOPLE, IN_FLIGHT_MAX
from postroom.records import subscribers
from postroom.wiring import Parts, open_parts
from postroom_bench.installation import LIST, Installation, until

PROGRAM = [sys.executable, "-m", "postroom.cli"]
# More than can be under way at once, so that some are stored before the rest is read.
FIRST_PEOPLE = BATCH_PEOPLE * (IN_FLIGHT_MAX + 8)
ALL_PEOPLE = FIRST_PEOPLE + BATCH_PEOPLE * 200


class Folder:
    """An empty folder to type commands in."""

    def __init__(self, path: Path) -> None:
        self.path = path
        kept = {name: value for name, value in os.environ.items() if "POSTROOM" not in name}
        self.environ = kept | {"POSTROOM_LOG_LEVEL": "error", "POSTROOM_BIND": "127.0.0.1:0"}

    def run(self, *arguments: str, code: int = 0) -> str:
        """What it prints; on standard error it says nothing unless it fails."""
        done = subprocess.run(
            [*PROGRAM, *arguments],
            cwd=self.path,
            env=self.environ,
            capture_output=True,
            text=True,
            encoding="utf-8",
            check=False,
            timeout=120,
        )
        assert done.returncode == code, done.stderr
        assert bool(done.stderr) == bool(code), done.stderr
        return done.stderr if code else done.stdout

    def json(self, *arguments: str) -> Any:
        return json.loads(self.run(*arguments, "--json"))

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*PROGRAM, *arguments],
            cwd=self.path,
            env=self.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def csv_of(people: int, first: int = 0) -> str:
    return "".join(f"student{at}@contoso.edu,Ada {at}\n" for at in range(first, people))


def test_from_a_list_to_a_message_that_everybody_got(folder: Folder) -> None:
    folder.run("list", "create", LIST, "--from", "History <news@contoso.edu>")
    folder.run("subscriber", "add", LIST, "student0@contoso.edu", "--verified")
    people = f"email,First name\n{csv_of(120)}nobody,x\n"
    (folder.path / "people.csv").write_text(people, encoding="utf-8")
    counts = folder.json("subscriber", "import", LIST, "people.csv", "--verified")
    assert (counts["added"], counts["already"], counts["bad"]) == (119, 1, 1)
    (folder.path / "body.htm").write_text("<p>Hello {{ first_name }}</p>", encoding="utf-8")
    written = ("--list", LIST, "--subject", "New lecture series", "--html", "body.htm")
    ref = folder.json("message", "create", *written, "--at", "now")["ref"]
    assert folder.json("drain") == {"waiting": 0, "dead_letters": 0, "test_mode": True}
    shown = folder.json("message", "show", ref)
    assert (shown["status"], shown["audience"], shown["sent"]) == ("completed", 120, 120)
    rows = list(csv.DictReader(io.StringIO(folder.run("message", "people", ref))))
    assert len({row["address"] for row in rows}) == 120
    assert {row["outcome"] for row in rows} == {"sent"}
    assert "120/120 kept" in folder.run("message", "all")
    for command in (["message", "show", ref], ["drain"]):
        assert "kept in the test mailbox, not sent" in folder.run(*command)
    assert "can no longer be changed" in folder.run("message", "pause", ref, code=1)
    assert "no failed recipients" in folder.run("message", "retry", ref, code=1)


async def test_who_failed_is_named_and_tried_again(tmp_path: Path) -> None:
    async with Installation(tmp_path) as installation, installation.parts() as parts:
        folder = Folder(tmp_path)
        folder.environ |= installation.environ | {"POSTROOM_LOG_LEVEL": "error"}
        await installation.people(parts, 3)
        await asyncio.to_thread(
            folder.run, "subscriber", "add", LIST, "policy@contoso.edu", "--verified"
        )
        ref = await installation.message(parts)
        await asyncio.to_thread(check_retry, folder, ref)


def check_retry(folder: Folder, ref: str) -> None:
    folder.run("drain")
    [failed] = folder.json("message", "people", ref, "--outcome", "failed")
    assert failed["address"] == "policy@contoso.edu"  # not dead: that would be suppressed
    assert "5.7.1" in failed["words"]
    assert folder.json("message", "retry", ref)["status"] == "queuing"
    folder.run("drain")
    shown = folder.json("message", "show", ref)
    assert (shown["status"], shown["sent"], shown["failed"]) == ("completed", 3, 1)
    folder.environ["POSTROOM_URL"] = "https://post.contoso.edu"
    assert {"verdict": "right", "about": "transport"}.items() <= transport(folder).items()


def transport(folder: Folder) -> dict[str, str]:
    """What the doctor finds when it asks the sink."""
    [found] = [each for each in folder.json("doctor") if each["about"] == "transport"]
    return dict(found)


def test_an_output_that_nobody_reads_to_its_end_ends_quietly(folder: Folder) -> None:
    folder.run("list", "create", LIST, "--from", "news@contoso.edu")
    (folder.path / "people.csv").write_text(f"email,name\n{csv_of(4000)}", encoding="utf-8")
    folder.run("subscriber", "import", LIST, "people.csv", "--basis", "they asked", "--json")
    export = folder.start("subscriber", "export", LIST)
    assert export.stdout
    assert export.stderr
    assert export.stdout.readline().startswith("email,")
    export.stdout.close()
    assert export.wait(60) == 141
    assert export.stderr.read() == ""
    export.stderr.close()


async def test_an_import_that_was_killed_is_finished_by_the_next(tmp_path: Path) -> None:
    async with Importing(tmp_path) as importing:
        importing.process.kill()
        await asyncio.to_thread(importing.process.wait, 60)
        stored = await importing.stored()
        assert stored % BATCH_PEOPLE == 0
        whole = tmp_path / "whole.csv"
        whole.write_text(f"email,name\n{csv_of(ALL_PEOPLE)}", encoding="utf-8")
        run = importing.folder.json
        again = ("subscriber", "import", LIST, str(whole), "--verified")
        counts = await asyncio.to_thread(run, *again)
        assert (counts["added"], counts["already"]) == (ALL_PEOPLE - stored, stored)
        assert await importing.stored() == ALL_PEOPLE


async def test_an_import_that_is_interrupted_tells_how_far_it_came(tmp_path: Path) -> None:
    async with Importing(tmp_path) as importing:
        importing.process.send_signal(signal.SIGINT)
        with contextlib.suppress(BrokenPipeError):  # it reads no further
            await asyncio.to_thread(importing.feed, csv_of(ALL_PEOPLE, FIRST_PEOPLE))
        out, err = await asyncio.to_thread(importing.process.communicate)
        assert importing.process.returncode == 130
        assert "Run the same command again" in err
        counts = json.loads(out)
        assert counts["complete"] is False
        assert 0 < counts["added"] == await importing.stored() < ALL_PEOPLE


class Importing:
    """An import out of a pipe that stands still half-way, with some people stored."""

    def __init__(self, path: Path) -> None:
        self.folder = Folder(path)
        self._pipe = path / "people.csv"
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Importing:
        own = {
            "POSTROOM_STORAGE": f"sqlite:///{self.folder.path / 'postroom.db'}",
            "POSTROOM_DATA": str(self.folder.path / "data"),
        }
        self.folder.environ |= own
        await asyncio.to_thread(
            self.folder.run, "list", "create", LIST, "--from", "news@contoso.edu"
        )
        loaded = settings.load(own, Path("/nonexistent.toml"))
        self.parts: Parts = await self._stack.enter_async_context(open_parts(loaded))
        os.mkfifo(self._pipe)
        self.process = self.folder.start(
            "subscriber", "import", LIST, str(self._pipe), "--verified", "--json"
        )
        self._stack.callback(self._end)
        self._file = await asyncio.to_thread(self._pipe.open, "w", encoding="utf-8")
        await asyncio.to_thread(self.feed, f"email,name\n{csv_of(FIRST_PEOPLE)}")
        await until(self._has_started, within_s=120)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    def feed(self, text: str) -> None:
        self._file.write(text)
        self._file.flush()

    async def stored(self) -> int:
        everyone = subscribers.everyone(self.parts.storage.tables, LIST)
        return sum([1 async for _ in everyone])

    async def _has_started(self) -> bool:
        return await self.stored() > 0

    def _end(self) -> None:
        self.process.kill()
        self.process.communicate()
        with contextlib.suppress(BrokenPipeError):
            self._file.close()


def test_serve_says_where_mails_go_and_stops_when_asked(folder: Folder) -> None:
    folder.environ["POSTROOM_LOG_LEVEL"] = "info"
    serve = folder.start("serve")
    try:
        assert serve.stdout
        assert serve.stderr
        welcome = [serve.stdout.readline() for _ in range(5)]
        assert welcome[0].startswith("Postroom runs on 127.0.0.1:0; ")
        assert "nothing leaves this machine" in welcome[2]
        assert any("scheduler_leads" in line for line in serve.stderr)
        serve.terminate()
        assert serve.wait(60) == 0
    finally:
        serve.kill()
        serve.communicate()
