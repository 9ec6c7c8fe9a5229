"""Runs a command with Azurite beside it, for `POSTROOM_STORAGE=azure:emulator ./dev serve`.

    python tools/with_azurite.py NODE AZURITE COMMAND...

This process becomes COMMAND, so signals and the exit code are those of the service. A second
process, the keeper, starts Azurite in a session of its own: Ctrl-C in the terminal does not reach
it, because the service needs its storage until it has stopped. The keeper holds one end of a pipe
whose other end the service has inherited, so it notices the end of the service however it ends,
and then stops Azurite.

Azurite writes its data every few seconds and when it stops, into `azurite` in POSTROOM_DATA. Killed
with `kill -9`, it loses the last seconds, unlike Azure.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, NoReturn
from urllib.parse import urlsplit

from postroom import settings
from postroom.storage.azure.account import parse_account

KEEP = "--keep"
READY = "ready"
STARTS_WITHIN_S = 60.0
STOPS_WITHIN_S = 120.0  # it writes everything down first
EARLIER_ENDS_WITHIN_S = 15.0
LOOK_EVERY_S = 0.1
OPTIONS = ("--silent", "--disableTelemetry", "--skipApiVersionCheck")
LOG = "azurite.log"


def main(arguments: list[str]) -> NoReturn:
    if arguments[0] == KEEP:
        sys.exit(keep(Path(arguments[1]), ports_of(arguments[2]), arguments[3:]))
    node, program, *command = arguments
    try:
        loaded = settings.load()
    except settings.BadSettings:
        os.execv(command[0], command)  # it explains the mistakes
    folder = loaded.data.absolute() / "azurite"
    address = loaded.storage.get_secret_value()
    end_of_service = start_keeper(folder, address, [node, program])
    os.set_inheritable(end_of_service, True)
    os.execv(command[0], command)


def ports_of(address: str) -> dict[str, int]:
    account = parse_account(address.removeprefix("azure:"))
    urls = {"blob": account.blob_url, "queue": account.queue_url, "table": account.table_url}
    return {service: urlsplit(url).port or 80 for service, url in urls.items()}


def start_keeper(folder: Path, address: str, azurite: list[str]) -> int:
    """Return the file descriptor that has to stay open for as long as Azurite is needed."""
    read_end, write_end = os.pipe()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    keeper = subprocess.Popen(
        [sys.executable, __file__, KEEP, str(folder), address, *azurite],
        stdin=read_end,
        stdout=subprocess.PIPE,
        start_new_session=True,
        text=True,
    )
    os.close(read_end)
    assert keeper.stdout is not None
    answer = keeper.stdout.readline().strip()
    if answer != READY:
        sys.exit(f"error: {answer or f'Azurite did not start; see {folder / LOG}'}")
    return write_end


# --- The keeper -------------------------------------------------------------------------------


def keep(folder: Path, ports: dict[str, int], azurite: list[str]) -> int:
    """Run Azurite until standard input ends; only one keeper has a folder at a time."""
    with (folder / "lock").open("w") as lock:
        if not is_locked(lock):  # an earlier service is stopping, or still running
            say("waiting for the Azure Storage emulator of an earlier service to stop")
        is_ours = is_locked(lock, EARLIER_ENDS_WITHIN_S)
        if all(answers(port) for port in ports.values()):
            say(f"using the Azure Storage emulator that already runs on port {ports['table']}")
            return report(READY)
        if not is_ours:
            return report(f"another service uses {folder}: stop it first")
        return run_azurite(folder, ports, azurite)


def run_azurite(folder: Path, ports: dict[str, int], azurite: list[str]) -> int:
    where = [f"--{service}Host=127.0.0.1" for service in ports]
    where += [f"--{service}Port={port}" for service, port in ports.items()]
    with (folder / LOG).open("w") as log:
        process = subprocess.Popen(
            [*azurite, *OPTIONS, "--location", str(folder), *where],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        if not starts(process, ports):
            return report(f"Azurite did not start; see {folder / LOG}")
        say(f"started the Azure Storage emulator; its data is in {folder}")
        report(READY)
        sys.stdin.read()
    finally:
        process.terminate()
        try:
            process.wait(STOPS_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    return 0


def starts(process: subprocess.Popen[bytes], ports: dict[str, int]) -> bool:
    until = time.monotonic() + STARTS_WITHIN_S
    while time.monotonic() < until and process.poll() is None:
        if all(answers(port) for port in ports.values()):
            return True
        time.sleep(LOOK_EVERY_S)
    return False


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1.0).close()
    except OSError:
        return False
    return True


def is_locked(lock: IO[str], within_s: float = 0.0) -> bool:
    """Try to lock the file, and return whether this process has it locked."""
    until = time.monotonic() + within_s
    while True:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        if time.monotonic() >= until:
            return False
        time.sleep(LOOK_EVERY_S)


def report(answer: str) -> int:
    """Tell the process that becomes the service, and return the exit code."""
    sys.stdout.write(f"{answer}\n")
    sys.stdout.flush()
    return 0 if answer == READY else 1


def say(text: str) -> None:
    sys.stderr.write(f"==> {text}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
