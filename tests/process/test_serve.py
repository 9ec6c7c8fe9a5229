"""`serve` and its children: pages answer, children die with their parent, signals come twice."""

from __future__ import annotations

import asyncio
import os
import re
import urllib.request
from pathlib import Path

import pytest

from postroom.wiring.roles import BULK_NICE
from postroom_bench.installation import Installation, books, until

WITHIN_S = 120.0  # far more than it takes: machines are busy
PEOPLE = 10_000  # so many that a sender is not through with them before it was interrupted


def roles_awake(installation: Installation) -> int:
    """Every process listens for wake-ups of several kinds until it ends."""
    wakeups = installation.folder / "data" / "bells"
    names = os.listdir(wakeups) if wakeups.is_dir() else []
    return len({name.rpartition(".")[2].partition("-")[0] for name in names if name[0] != "."})


async def test_children_stop_by_themselves_when_their_supervisor_is_killed(tmp_path: Path) -> None:
    async with Installation(tmp_path) as installation:
        serve = await installation.start("serve")
        # With the supervisor's, which nobody takes away.
        await until(lambda: _is(roles_awake(installation) == 4), within_s=WITHIN_S)
        await serve.kill()
        await until(lambda: _is(roles_awake(installation) == 1), within_s=WITHIN_S)


async def test_who_sends_in_bulk_steps_back_behind_who_answers_people(
    tmp_path: Path, unused_tcp_port: int
) -> None:
    async with Installation(tmp_path) as installation:
        installation.overrides["POSTROOM_BIND"] = f"127.0.0.1:{unused_tcp_port}"
        async with installation.parts():  # makes the storage, which scheduler and sender do not
            pass
        for role in ("web", "scheduler", "sender"):
            await installation.start(role)
        await until(lambda: _is(roles_awake(installation) == 3), within_s=WITHIN_S)
        wakeups = [name.split(".") for name in os.listdir(installation.folder / "data" / "bells")]
        roles = [each for each in wakeups if each[0] in ("web", "scheduler", "sender")]
        pids = {kind: int(rest.partition("-")[0]) for kind, rest in roles}
        nice = {kind: os.getpriority(os.PRIO_PROCESS, pid) for kind, pid in pids.items()}
    ours = os.getpriority(os.PRIO_PROCESS, 0)
    behind = min(ours + BULK_NICE, 19)  # nobody can be further back
    assert nice == {"web": ours, "scheduler": behind, "sender": behind}


async def test_the_web_role_answers_and_stops_when_asked(
    tmp_path: Path, unused_tcp_port: int
) -> None:
    async with Installation(tmp_path) as installation:
        installation.overrides["POSTROOM_BIND"] = f"127.0.0.1:{unused_tcp_port}"
        web = await installation.start("web")
        await until(lambda: _answers(unused_tcp_port, "/readyz"), within_s=WITHIN_S)
        assert await _answers(unused_tcp_port, "/static/public.css")
        assert await web.terminate(within_s=WITHIN_S) == 0, web.log.read_text()


async def test_the_link_to_the_first_account_follows_the_bound_address(
    tmp_path: Path, unused_tcp_port: int
) -> None:
    async with Installation(tmp_path) as installation:
        installation.overrides["POSTROOM_BIND"] = f"0.0.0.0:{unused_tcp_port}"
        serve = await installation.start("serve")
        await until(lambda: _answers(unused_tcp_port, "/readyz"), within_s=WITHIN_S)
        printed = serve.printed.read_text() + serve.log.read_text()
        found = re.search(r"create your account at http://([^/]*)(/admin/welcome/\S+)", printed)
        assert found
        assert found[1] == f"127.0.0.1:{unused_tcp_port}"
        assert await _answers(unused_tcp_port, found[2])
        assert "Set POSTROOM_URL to the address people use." in printed


async def test_an_address_in_use_is_reported_in_a_sentence(
    tmp_path: Path, unused_tcp_port: int
) -> None:
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", unused_tcp_port)
    async with server, Installation(tmp_path) as installation:
        installation.overrides["POSTROOM_BIND"] = f"127.0.0.1:{unused_tcp_port}"
        serve = await installation.start("serve")
        assert await serve.wait(within_s=WITHIN_S) == 2
        assert "POSTROOM_BIND" in serve.log.read_text()


@pytest.mark.timeout(900)
async def test_a_second_signal_does_not_cut_off_what_is_on_the_wire(tmp_path: Path) -> None:
    async with (
        Installation(tmp_path, ("--chunking", "--delay", "30")) as installation,
        installation.parts() as parts,
    ):
        await installation.people(parts, PEOPLE)
        await installation.start("scheduler")
        ref = await installation.message(parts)
        sender = await installation.start("sender")
        await until(lambda: _is_under_way(installation), within_s=WITHIN_S, every_s=0.01)
        sender.ask_to_stop()
        assert await sender.terminate(within_s=WITHIN_S) == 0, sender.log.read_text()[-2000:]
        message = await books(parts, ref)
    assert message.books.doubts == message.books.sending == 0
    assert message.books.sent < PEOPLE, "it was over before it could be interrupted"


async def _is(value: bool) -> bool:
    return value


async def _is_under_way(installation: Installation) -> bool:
    return await installation.arrived_number() > 100


async def _answers(port: int, path: str) -> bool:
    def ask() -> bool:
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{port}{path}", timeout=WITHIN_S
            ) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    return await asyncio.to_thread(ask)
