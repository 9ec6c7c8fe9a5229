"""`postroom bench` as it is typed, and the others that it is compared with."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from postroom.bench import baselines
from postroom.bench.baselines import Baseline, Load, find_smtp_source, measure_baselines
from postroom.bench.certificate import write_certificate
from postroom.bench.house import PARAGRAPH_BYTES, House

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
        "",
        "--transport outbox",
        "--tempfail-share 0.1",
        "--tls",
        "--size 10000 --svg picture.svg",
        "--delay-ms 2 --no-chunking --senders 2 --lanes 2 --count-calls",
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
    assert figures["commits"] > 0
    assert figures["baselines"] == []
    assert ("reads" in figures) is ("--count-calls" in options)
    if "--svg" in options:
        ElementTree.parse(tmp_path / "picture.svg")


def test_the_ratio_is_that_of_the_rates_of_one_run(tmp_path: Path) -> None:
    figures = bench(tmp_path)
    assert figures["connections"] == 4
    for other in figures["baselines"]:
        ratio = figures["mails_per_s"] / other["mails_per_s"]
        assert other["ratio"] == pytest.approx(ratio)
        assert other["mails"] == PEOPLE
    assert figures["baselines"][-1]["connections"] == 1


def test_what_does_not_go_together_is_refused(tmp_path: Path) -> None:
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


async def compared(house: House, load: Load = LOAD) -> tuple[dict[str, Baseline], list[str]]:
    said: list[str] = []
    measured = await measure_baselines(house, load, said.append)
    return {baseline.name: baseline for baseline in measured}, said


async def test_others_send_mails_as_long_as_ours_to_the_same_sink(
    tmp_path: Path, stand_in: Path
) -> None:
    assert find_smtp_source() == str(stand_in)
    async with House(tmp_path) as house:
        found, _ = await compared(house)
    assert [*found] == ["smtp-source -d -s 16", "smtplib + EmailMessage"]
    for baseline in found.values():
        assert baseline.mails == PEOPLE
        assert abs(baseline.mail_bytes - LOAD.mail_bytes) < PARAGRAPH_BYTES
        assert baseline.ratio == pytest.approx(LOAD.mails_per_s / baseline.mails_per_s)
    assert [baseline.connections for baseline in found.values()] == [16, 1]


async def test_others_have_never_fewer_connections_than_we(tmp_path: Path, stand_in: Path) -> None:
    async with House(tmp_path) as house:
        found, _ = await compared(house, LOAD._replace(connections=64))
    assert found["smtp-source -d -s 64"].connections == 64


async def test_one_that_takes_too_long_is_ended_and_its_rate_is_what_arrived(
    tmp_path: Path, stand_in: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_stand_in(stand_in, end="signal.pause()")
    monkeypatch.setattr(baselines, "SECONDS_MAX", 3.0)
    async with House(tmp_path) as house:
        found, _ = await compared(house)
    slow = found["smtp-source -d -s 16"]
    assert slow.mails == PEOPLE
    assert slow.mails_per_s <= PEOPLE / 3.0


async def test_one_that_fails_is_told_and_left_out(tmp_path: Path, stand_in: Path) -> None:
    write_stand_in(stand_in, end="sys.exit('out of luck')")
    async with House(tmp_path) as house:
        found, said = await compared(house)
    assert [*found] == ["smtplib + EmailMessage"]
    assert "smtp-source failed: out of luck" in said


async def test_one_that_is_not_there_is_told_and_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(baselines, "find_smtp_source", lambda: None)
    async with House(tmp_path) as house:
        found, said = await compared(house)
    assert [*found] == ["smtplib + EmailMessage"]
    assert "smtp-source is not here (package postfix)" in said


async def test_only_who_knows_tls_is_compared_with_tls(tmp_path: Path, stand_in: Path) -> None:
    certificate = tmp_path / "certificate.pem"
    write_certificate(certificate)
    async with House(tmp_path, ("--certificate", str(certificate))) as house:
        found, said = await compared(house, LOAD._replace(ca_file=certificate))
    assert found["smtplib + EmailMessage"].mails == PEOPLE
    assert [*found] == ["smtplib + EmailMessage"]
    assert "smtp-source knows no TLS" in said
