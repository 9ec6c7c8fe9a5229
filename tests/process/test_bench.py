"""`postroom bench` as it is typed, and the others that it is compared with."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from asyncio.subprocess import Process
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from postroom.domain.errors import BadInput
from postroom.domain.message import Status
from postroom.records import messages
from postroom_bench import baselines, pages, sign_ups
from postroom_bench.baselines import Baseline, Load, find_smtp_source, measure_baselines
from postroom_bench.certificate import write_certificate
from postroom_bench.figures import worst_second
from postroom_bench.installation import PARAGRAPH_BYTES, Installation, until
from postroom_bench.measure import measure
from postroom_bench.plan import SMALL_PEOPLE, Plan, Way

PROGRAM = [sys.executable, "-m", "postroom.cli", "bench"]
PEOPLE = 200
LOAD = Load(mails=PEOPLE, mail_bytes=4096, connections=4, mails_per_s=1000.0, ca_file=None)

# Takes the options of smtp-source and sends what they ask for, by one connection; then `END`.
# A shell begins it, for the path of Python may have a blank.
STAND_IN = f"""#!/bin/sh
'''exec' "{sys.executable}" "$0" "$@"
' '''
import getopt, signal, smtplib, sys
options, (server,) = getopt.getopt(sys.argv[1:], "dNs:m:l:f:t:")
given = dict(options)
host, port = server.split(":")
body = "Subject: x\\r\\nFrom: x\\r\\nTo: x\\r\\n\\r\\n" + "x" * (int(given["-l"]) + 100)
with smtplib.SMTP(host, int(port)) as line:
    for number in range(int(given["-m"])):
        line.sendmail(given["-f"], [f"{{number}}{{given['-t']}}"], body)
END
"""


def bench(folder: Path, *options: str) -> dict[str, Any]:
    environ = {name: value for name, value in os.environ.items() if "POSTROOM" not in name}
    done = subprocess.run(
        [*PROGRAM, "--recipients", str(PEOPLE), "--json", *options],
        cwd=folder,
        env=environ | {"POSTROOM_LOG_LEVEL": "error"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


@pytest.mark.parametrize(
    "options",
    [
        "--transport outbox",
        "--tempfail-share 0.1 --tls",
        "--size 10000 --svg picture.svg --fan-out-first",
        "--delay-ms 2 --no-chunking --no-pipelining --senders 2 --lanes 2 --count-calls",
    ],
)
def test_a_run_loses_nobody_and_mails_nobody_twice(tmp_path: Path, options: str) -> None:
    figures = bench(tmp_path, "--no-baselines", *options.split())
    assert (figures["arrived"], figures["lost"], figures["twice"]) == (PEOPLE, 0, 0)
    size = 10_000 if "--size" in options else 4096
    assert abs(figures["mail_bytes"] - size) < PARAGRAPH_BYTES
    assert 0 < figures["first_mail_s"] < figures["completed_s"]
    assert figures["send_per_s"] > figures["mails_per_s"] > 0
    if "--tempfail-share" in options:  # they come half a second later, less a quarter at most
        assert PEOPLE / figures["send_per_s"] > 0.37
    if "--lanes" in options:  # where replies take long, all lanes are at work
        assert figures["connections"] >= 2
    assert figures["commits"] > 0
    assert figures["baselines"] == []
    assert ("reads" in figures) is ("--count-calls" in options)
    if "--svg" in options:
        ElementTree.parse(tmp_path / "picture.svg")


def test_several_lists_at_once_with_an_archive_behind_and_a_small_message_beside(
    tmp_path: Path,
) -> None:
    figures = bench(tmp_path, "--no-baselines", "--lists", "7", "--archived", "3", "--beside")
    mails = PEOPLE + SMALL_PEOPLE  # those of the archive are not among them
    assert (figures["arrived"], figures["lost"], figures["twice"]) == (mails, 0, 0)
    assert 0 < figures["small_completed_s"] < figures["completed_s"] + 10


@pytest.mark.parametrize("option", ["--limit", "--domain-limit"])
def test_under_a_limit_the_worst_second_is_reported(tmp_path: Path, option: str) -> None:
    figures = bench(tmp_path, "--no-baselines", option, "100")
    assert figures["lost"] == figures["twice"] == 0
    assert figures["completed_s"] >= PEOPLE / 100 - 0.5
    assert 0 < figures["of_limit"] < 1.1
    assert 0 < figures["worst_second"] <= 110  # a line that stood still gives back at once


def test_the_worst_second_is_found_wherever_it_begins() -> None:
    timeline = [(0.0, 1), (0.4, 5), (0.9, 20), (1.3, 30), (1.8, 35), (5.0, 40)]
    assert worst_second(timeline) == 25  # after the one at 0.4, up to that at 1.3
    assert worst_second([]) == 0


def test_the_ratio_is_that_of_the_rates_of_one_run(tmp_path: Path) -> None:
    figures = bench(tmp_path)
    assert 1 <= figures["connections"] <= 4
    for other in figures["baselines"]:
        ratio = figures["mails_per_s"] / other["mails_per_s"]
        assert other["ratio"] == pytest.approx(ratio)
        assert other["mails"] == PEOPLE
    assert figures["baselines"][-1]["connections"] == 1


async def test_pages_are_timed_while_mails_go_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "PAGE_CALLS", 8)
    monkeypatch.setattr(pages, "API_S", 0.5)
    monkeypatch.setattr(pages, "SENT_BEFORE", 0)
    figures = await pages.measure_pages(PEOPLE, lambda _: None)
    assert [each.what for each in figures.timings][-2:] == ["message", "subscribe"]
    assert all(each.calls and 0 < each.median_ms <= each.worst_ms for each in figures.timings)
    assert figures.sent_after > 0
    assert [role for role, _ in figures.peaks_mb] == ["web", "scheduler", "sender", "sender"]
    assert figures.together_mb > 4 * max(1.0, min(peak for _, peak in figures.peaks_mb))


async def test_confirmations_are_timed_idle_and_while_mails_go_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pages, "SENT_BEFORE", 0)
    found = await sign_ups.measure_sign_ups(PEOPLE, lambda _: None, per_s=50, for_s=1.0)
    assert [each.beside for each in found] == ["nothing", f"{PEOPLE} mails"]
    assert [(each.sign_ups, each.handed_over, each.twice) for each in found] == [(50, 50, 0)] * 2
    assert all(0 < each.median_s <= each.p95_s <= each.worst_s for each in found)


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (Plan(transport=Way.OUTBOX, tls=True), "The outbox has no line"),
        (Plan(transport=Way.OUTBOX, beside=True), "The outbox has no line"),
        (Plan(recipients=200, lists=201), "every list needs one"),
        (Plan(fan_out_first=True, archived=1), "leave --archived out"),
        (Plan(lists=2, tempfail_share=0.1), "leave --lists out"),
    ],
)
def test_what_does_not_go_together_is_refused(plan: Plan, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        plan.check()


def test_a_refusal_is_reported_on_the_command_line(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="The outbox has no line"):
        bench(tmp_path, "--transport", "outbox", "--tls")


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "bin" / "smtp-source"
    path.parent.mkdir()
    write_stand_in(path)
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{path.parent}{os.pathsep}{os.environ['PATH']}")
    return path


def write_stand_in(path: Path, *, end: str = "") -> None:
    path.write_text(STAND_IN.replace("END", end), encoding="utf-8")


async def compared(
    installation: Installation, load: Load = LOAD
) -> tuple[dict[str, Baseline], list[str]]:
    said: list[str] = []
    measured = await measure_baselines(installation, load, said.append)
    return {baseline.name: baseline for baseline in measured}, said


async def test_others_send_mails_as_long_as_ours_to_the_same_sink(
    tmp_path: Path, stand_in: Path
) -> None:
    assert find_smtp_source() == str(stand_in)
    async with Installation(tmp_path) as installation:
        found, _ = await compared(installation)
    assert [*found] == ["smtp-source -d -s 16", "smtplib + EmailMessage"]
    for baseline in found.values():
        assert baseline.mails == PEOPLE
        assert abs(baseline.mail_bytes - LOAD.mail_bytes) < PARAGRAPH_BYTES
        assert baseline.ratio == pytest.approx(LOAD.mails_per_s / baseline.mails_per_s)
    assert [baseline.connections for baseline in found.values()] == [16, 1]


async def test_others_have_never_fewer_connections_than_we(tmp_path: Path, stand_in: Path) -> None:
    async with Installation(tmp_path) as installation:
        found, _ = await compared(installation, LOAD._replace(connections=64))
    assert found["smtp-source -d -s 64"].connections == 64


async def test_one_that_takes_too_long_is_ended_and_its_rate_is_what_arrived(
    tmp_path: Path, stand_in: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_stand_in(stand_in, end="signal.pause()")
    monkeypatch.setattr(baselines, "SECONDS_MAX", 0.5)
    told_within = baselines._told_within

    async def told_after_the_last_mail(process: Process, seconds: float) -> str:
        """Its time begins when all have arrived: a busy machine may need long for that."""
        await until(lambda: all_have_arrived(installation), within_s=120)
        return await told_within(process, seconds)

    monkeypatch.setattr(baselines, "_told_within", told_after_the_last_mail)
    async with Installation(tmp_path) as installation:
        found, _ = await compared(installation)
    slow = found["smtp-source -d -s 16"]
    assert slow.mails == PEOPLE
    assert slow.mails_per_s <= PEOPLE / 0.5


async def all_have_arrived(installation: Installation) -> bool:
    return await installation.arrived_number() == PEOPLE


async def test_one_that_fails_is_reported_and_left_out(tmp_path: Path, stand_in: Path) -> None:
    write_stand_in(stand_in, end="sys.exit('out of luck')")
    async with Installation(tmp_path) as installation:
        found, said = await compared(installation)
    assert [*found] == ["smtplib + EmailMessage"]
    assert "smtp-source failed: out of luck" in said


async def test_one_that_is_not_there_is_reported_and_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(baselines, "find_smtp_source", lambda: None)
    async with Installation(tmp_path) as installation:
        found, said = await compared(installation)
    assert [*found] == ["smtplib + EmailMessage"]
    assert "smtp-source is not here (package postfix)" in said


async def test_only_who_knows_tls_is_compared_with_tls(tmp_path: Path, stand_in: Path) -> None:
    certificate = tmp_path / "certificate.pem"
    write_certificate(certificate)
    async with Installation(tmp_path, ("--certificate", str(certificate))) as installation:
        found, said = await compared(installation, LOAD._replace(ca_file=certificate))
    assert found["smtplib + EmailMessage"].mails == PEOPLE
    assert [*found] == ["smtplib + EmailMessage"]
    assert "smtp-source knows no TLS" in said


async def test_an_installation_never_works_on_the_storage_that_the_environment_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its sender would take real items, and hand real mails to a server that keeps them."""
    real, installation = tmp_path / "real.db", tmp_path / "installation"
    installation.mkdir()
    (tmp_path / "storage").write_text(f"sqlite:///{real}")
    monkeypatch.setenv("POSTROOM_STORAGE", "sqlite:////data/postroom.db")  # as in the image
    monkeypatch.setenv("POSTROOM_STORAGE_FILE", str(tmp_path / "storage"))
    async with Installation(installation) as opened:
        made = await opened.start("init")
        assert await made.wait(within_s=120) == 0, made.log.read_text()
    assert (installation / "postroom.db").exists()
    assert not real.exists()


async def test_a_storage_that_somebody_works_with_is_not_measured(tmp_path: Path) -> None:
    """Its mails would go to the sink, and be recorded as sent."""
    real = f"sqlite:///{tmp_path / 'postroom.db'}"
    async with (
        Installation(tmp_path, overrides={"POSTROOM_STORAGE": real}) as installation,
        installation.parts() as parts,
    ):
        await installation.people(parts, 1, list_name="real")
        ref = await installation.message(parts, list_name="real")
    with pytest.raises(BadInput, match="has something in it: choose one with nothing in it"):
        await measure(Plan(recipients=10, storage=real, baselines=False), lambda _: None)
    async with installation.parts() as parts:
        assert (await messages.read(parts.storage.tables, ref)).status is Status.PENDING
