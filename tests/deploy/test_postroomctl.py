"""`postroomctl`: a command with the settings of the units, as their user, and nothing else."""

from __future__ import annotations

import getpass
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.reading import DEPLOY, UNIT_SETTINGS

SCRIPT = DEPLOY / "systemd" / "postroomctl"
RUN_S_MAX = 120.0


def postroomctl(
    settings: Path,
    *arguments: str,
    program: str = "/usr/bin/env",
    user: str = "",
    environ: dict[str, str] | None = None,
    folder: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    around = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"} | (environ or {})
    return subprocess.run(
        [str(SCRIPT), *arguments],
        env=around
        | {
            "POSTROOMCTL_FILE": str(settings),
            "POSTROOMCTL_PROGRAM": program,
            "POSTROOMCTL_USER": user or getpass.getuser(),
        },
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=RUN_S_MAX,
        check=False,
    )


def settings_of(ran: subprocess.CompletedProcess[str]) -> dict[str, str]:
    assert ran.returncode == 0, ran.stderr
    pairs = [line.split("=", 1) for line in ran.stdout.splitlines() if "=" in line]
    return {name: value for name, value in pairs if name.startswith("POSTROOM_")}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "postroom.env"


def test_values_are_read_as_systemd_reads_them(file: Path) -> None:
    file.write_text(
        "# POSTROOM_LANES=1\n; POSTROOM_LANES=2\n\n"
        "POSTROOM_STORAGE=azure:AccountName=contoso;AccountKey=c2VjcmV0==\n"
        'POSTROOM_URL="https://post.contoso.edu"\n'
        "POSTROOM_BIND='127.0.0.1:8025'\n"
        "  POSTROOM_LANES=3  \n"
        "POSTROOM_TRANSPORT=smtp://ada:$HOME`id`@mail.contoso.edu\n"
        "OTHER=1\n"
        "POSTROOM_LOG_LEVEL=info"
    )
    assert settings_of(postroomctl(file)) == {
        "POSTROOM_STORAGE": "azure:AccountName=contoso;AccountKey=c2VjcmV0==",
        "POSTROOM_URL": "https://post.contoso.edu",
        "POSTROOM_BIND": "127.0.0.1:8025",
        "POSTROOM_LANES": "3",
        "POSTROOM_TRANSPORT": "smtp://ada:$HOME`id`@mail.contoso.edu",
        "POSTROOM_LOG_LEVEL": "info",
    }


def test_the_settings_of_whoever_calls_do_not_count(file: Path) -> None:
    file.write_text("POSTROOM_LANES=3\n")
    ran = postroomctl(file, environ={"POSTROOM_STORAGE": "sqlite:///mine.db"})
    assert settings_of(ran) == {"POSTROOM_LANES": "3"}


def test_the_settings_that_are_published_can_be_read() -> None:
    assert settings_of(postroomctl(UNIT_SETTINGS))["POSTROOM_DATA"] == "/var/lib/postroom"


@pytest.mark.parametrize("content", [None, "POSTROOM_A;id=1\n"])
def test_settings_that_cannot_be_read_are_reported(file: Path, content: str | None) -> None:
    if content:
        file.write_text(content)
    ran = postroomctl(file)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert str(file) in ran.stderr


def test_a_command_finds_the_installation_from_any_folder(file: Path, tmp_path: Path) -> None:
    place = tmp_path / "installed"
    place.mkdir()
    file.write_text(f"POSTROOM_DATA={place}\nPOSTROOM_STORAGE=sqlite:///{place}/postroom.db\n")
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    program = str(Path(sys.executable).parent / "postroom")
    made = ["list", "create", "contoso1", "--from", "news@contoso.edu"]
    for arguments in (made, ["list", "all"], ["doctor"]):
        ran = postroomctl(file, *arguments, program=program, folder=folder)
        assert ran.returncode == 0, ran.stdout + ran.stderr
    assert f"POSTROOM_STORAGE = {place}/postroom.db (from the environment)" in ran.stdout
    assert list(folder.iterdir()) == []
    assert (place / "postroom.db").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_it_becomes_the_user_of_the_service_also_in_a_folder_that_user_cannot_enter(
    file: Path, tmp_path: Path
) -> None:
    file.write_text("POSTROOM_LANES=3\n")
    file.chmod(0o600)
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    ran = postroomctl(file, "-un", program="/usr/bin/id", user="nobody", folder=private)
    assert (ran.returncode, ran.stdout) == (0, "nobody\n"), ran.stderr
    assert settings_of(postroomctl(file, user="nobody")) == {"POSTROOM_LANES": "3"}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may become anybody")
def test_nobody_else_may(file: Path) -> None:
    file.write_text("")
    ran = postroomctl(file, user="postroom")
    assert (ran.returncode, "run this as root" in ran.stderr) == (2, True)
