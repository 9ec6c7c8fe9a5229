"""Who is alive on this machine is told by a lock that the kernel frees."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from postroom.process_locks import OLD_S, ProcessLocks

HOLDS = """
import sys, pathlib
from postroom.process_locks import ProcessLocks
locks = ProcessLocks(pathlib.Path(sys.argv[1]))
locks.hold("other.1")
print("held", flush=True)
sys.stdin.read()
"""


def test_who_was_killed_is_known_to_be_dead(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDS, str(tmp_path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as other:
        assert other.stdout
        assert other.stdout.readline() == b"held\n"
        locks = ProcessLocks(tmp_path)
        assert not locks.is_dead("other.1")
        os.kill(other.pid, signal.SIGKILL)
        other.wait()
    assert locks.is_dead("other.1")


def test_of_a_stranger_nobody_can_tell(tmp_path: Path) -> None:
    assert not ProcessLocks(tmp_path).is_dead("elsewhere.1")
    assert not ProcessLocks(tmp_path / "missing").is_dead("elsewhere.1")


def test_nobody_takes_himself_for_dead_and_a_release_leaves_nothing(tmp_path: Path) -> None:
    locks = ProcessLocks(tmp_path)
    locks.hold("us.1")
    assert not locks.is_dead("us.1")
    locks.release("us.1")
    assert not list(tmp_path.iterdir())


def test_files_of_the_long_dead_are_cleared_away(tmp_path: Path) -> None:
    for name, age_s in {"old.1": 2 * OLD_S, "new.1": 0.0}.items():
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (time.time() - age_s,) * 2)
    ProcessLocks(tmp_path).hold("us.1")
    assert {path.name for path in tmp_path.iterdir()} == {"new.1", "us.1"}
