"""`./dev serve` installs and starts what the setting of the storage asks for."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FUNCTION = re.compile(r"^storage_starts_with\(\) \{.*?^\}$", re.MULTILINE | re.DOTALL)
WITH_AZURITE = ROOT / "tools" / "with_azurite.py"

# Stands in for Azurite: listens where it is told to, and notes that it was asked to stop.
STAND_IN = """
import signal, socket, sys
from pathlib import Path
options = dict(each.split("=") for each in sys.argv[1:] if "=" in each)
folder = Path(sys.argv[sys.argv.index("--location") + 1])
signal.signal(signal.SIGTERM, lambda *_: ((folder / "stopped").touch(), sys.exit()))
listening = [
    socket.create_server((options[f"--{each}Host"], int(options[f"--{each}Port"])))
    for each in ("blob", "queue", "table")
]
signal.pause()
"""
# Stands in for the service: connects to the emulator.
SERVICE = """
import socket, sys
socket.create_connection(("127.0.0.1", int(sys.argv[1]))).close()
print("connected", flush=True)
sys.exit(int(sys.argv[2]))
"""


def storage_starts_with(start: str, folder: Path, environ: dict[str, str], *arguments: str) -> bool:
    found = FUNCTION.search((ROOT / "dev").read_text(encoding="utf-8"))
    assert found
    script = f'{found[0]}\nstorage_starts_with "$@"'
    command = ["sh", "-euc", script, "dev", start, *arguments]
    ran = subprocess.run(command, env=environ, cwd=folder, timeout=30, check=False)
    return ran.returncode == 0


@pytest.mark.parametrize(
    ("environ", "toml", "arguments", "is_azure"),
    [
        ({}, "", [], False),
        ({"POSTROOM_STORAGE": "sqlite:///azure:.db"}, "", [], False),
        ({"POSTROOM_STORAGE": "azure:emulator"}, "", [], True),
        ({"POSTROOM_STORAGE_FILE": "secret"}, "", [], True),
        ({}, 'storage = "azure:emulator"\n', [], True),
        ({"POSTROOM_STORAGE": "sqlite:///a.db"}, 'storage = "azure:emulator"\n', [], False),
        ({}, 'lanes = 3\nstorage="sqlite:///a.db"\n', [], False),
        ({}, "", ["--storage", "azure:emulator"], True),
        ({}, "", ["--storage=azure:emulator"], True),
    ],
)
def test_the_extra_is_installed_where_the_setting_names_azure(
    tmp_path: Path, environ: dict[str, str], toml: str, arguments: list[str], is_azure: bool
) -> None:
    (tmp_path / "secret").write_text("azure:AccountName=contoso;AccountKey=c2VjcmV0\n")
    if toml:
        (tmp_path / "postroom.toml").write_text(toml)
    around = {"PATH": "/usr/bin:/bin"} | environ
    assert storage_starts_with("azure:", tmp_path, around, *arguments) is is_azure


@pytest.mark.parametrize(
    ("storage", "is_emulator"),
    [
        ("azure:emulator", True),
        ("azure:emulator?table=20002", True),
        ("azure:https://contoso.table.core.windows.net", False),
        ("sqlite:///data/postroom.db", False),
    ],
)
def test_the_emulator_is_started_where_the_setting_names_it(
    tmp_path: Path, storage: str, is_emulator: bool
) -> None:
    environ = {"PATH": "/usr/bin:/bin", "POSTROOM_STORAGE": storage}
    assert storage_starts_with("azure:emulator", tmp_path, environ) is is_emulator


def free_ports() -> dict[str, int]:
    servers = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
    ports = [int(server.getsockname()[1]) for server in servers]
    for server in servers:
        server.close()
    return dict(zip(("blob", "queue", "table"), ports, strict=True))


def serve_on_emulator(
    folder: Path, ports: dict[str, int], azurite: str, *, code: int = 0
) -> subprocess.CompletedProcess[str]:
    """Run the stand-ins. It ends when the keeper has, because that shares its standard error."""
    (folder / "azurite.py").write_text(azurite)
    (folder / "service.py").write_text(SERVICE)
    address = "azure:emulator?" + "&".join(f"{name}={port}" for name, port in ports.items())
    service = [sys.executable, str(folder / "service.py"), str(ports["table"]), str(code)]
    return subprocess.run(
        [sys.executable, str(WITH_AZURITE), sys.executable, str(folder / "azurite.py"), *service],
        env={"POSTROOM_STORAGE": address, "POSTROOM_DATA": str(folder / "data")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=folder,
    )


def test_the_emulator_runs_as_long_as_the_service(tmp_path: Path) -> None:
    ports = free_ports()
    for _ in range(2):  # the second time, in the folder that the first has left
        ran = serve_on_emulator(tmp_path, ports, STAND_IN, code=3)
        assert (ran.returncode, ran.stdout) == (3, "connected\n")
        data = tmp_path / "data" / "azurite"
        started = "started the Azure Storage emulator; its data is in"
        assert ran.stderr == f"==> {started} {data}\n"
        (data / "stopped").unlink()  # it was asked to, and could write its data


def test_an_emulator_that_runs_already_is_used(tmp_path: Path) -> None:
    ports = free_ports()
    servers = [socket.create_server(("127.0.0.1", port)) for port in ports.values()]
    ran = serve_on_emulator(tmp_path, ports, "raise SystemExit(1)")
    assert (ran.returncode, ran.stdout) == (0, "connected\n")
    assert f"already runs on port {ports['table']}" in ran.stderr
    for server in servers:
        server.close()


def test_an_emulator_that_does_not_start_says_where_to_look(tmp_path: Path) -> None:
    ran = serve_on_emulator(tmp_path, free_ports(), "raise SystemExit('no room')")
    log = tmp_path / "data" / "azurite" / "azurite.log"
    assert ran.returncode == 1
    assert ran.stderr == f"error: Azurite did not start; see {log}\n"
    assert log.read_text() == "no room\n"
