"""The units: understood by systemd where it is installed, and by name everywhere."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from postroom.settings import Settings
from postroom.supervisor import KILL_AFTER_S
from tests.deploy.reading import UNITS, directives, unit_environment, values

PROGRAM = "/opt/postroom/bin/postroom"
VERIFY_S_MAX = 120.0

# Every directive we use, as systemd.unit(5), systemd.service(5), systemd.exec(5) and
# systemd.kill(5) spell it: a misspelt one is only a warning in the journal.
KNOWN = {
    "Unit": {"Description", "Wants", "After", "Conflicts", "StartLimitIntervalSec"},
    "Install": {"WantedBy"},
    "Service": {
        *("Type", "ExecStart", "User", "Group", "Restart", "RestartSec"),
        *("StateDirectory", "StateDirectoryMode", "WorkingDirectory"),
        *("EnvironmentFile", "KillSignal", "KillMode", "TimeoutStopSec"),
        *("AmbientCapabilities", "CapabilityBoundingSet", "LockPersonality", "NoNewPrivileges"),
        *("PrivateDevices", "PrivateTmp", "ProtectClock", "ProtectControlGroups", "ProtectHome"),
        *("ProtectHostname", "ProtectKernelLogs", "ProtectKernelModules", "ProtectProc"),
        *("ProtectKernelTunables", "ProtectSystem", "RemoveIPC", "RestrictAddressFamilies"),
        *("RestrictNamespaces", "RestrictRealtime", "RestrictSUIDSGID", "UMask"),
        *("SystemCallArchitectures", "SystemCallErrorNumber", "SystemCallFilter"),
    },
}


def unknown(text: str) -> list[str]:
    return [each.name for each in directives(text) if each.name not in KNOWN.get(each.section, ())]


def verdict(text: str, name: str, folder: Path) -> str:
    """What systemd says of a unit, were the program in its place; nothing if it is content."""
    systemd = shutil.which("systemd-analyze")
    if systemd is None:
        return "\n".join(unknown(text))
    unit = folder / name.replace("@.", "@1.")
    unit.write_text(text.replace(PROGRAM, "/bin/sh"), encoding="utf-8")
    checked = subprocess.run(
        [systemd, "verify", str(unit)], capture_output=True, text=True, timeout=VERIFY_S_MAX
    )
    return checked.stdout + checked.stderr


def unit(name: str) -> str:
    (found,) = [path.read_text(encoding="utf-8") for path in UNITS if path.name == name]
    return found


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_systemd_understands_every_unit(path: Path, tmp_path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert unknown(text) == []
    assert verdict(text, path.name, tmp_path) == ""


@pytest.mark.parametrize(
    ("right", "wrong"),
    [("ProtectHome=", "ProtectHouse="), ("[Service]", "[Servant]")],
)
def test_what_systemd_would_not_understand_is_found(right: str, wrong: str, tmp_path: Path) -> None:
    text = unit("postroom.service").replace(right, wrong)
    assert unknown(text)
    assert verdict(text, "postroom.service", tmp_path)


def test_there_is_a_unit_for_everything_and_one_for_each_role() -> None:
    starts = {path.name: values(path.read_text(encoding="utf-8"), "ExecStart") for path in UNITS}
    assert starts == {
        "postroom.service": [f"{PROGRAM} serve"],
        "postroom-web.service": [f"{PROGRAM} web"],
        "postroom-scheduler.service": [f"{PROGRAM} scheduler"],
        "postroom-sender@.service": [f"{PROGRAM} sender"],
    }


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_a_role_has_longer_to_stop_than_it_takes(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    takes_s = float(Settings.model_fields["stop_grace_s"].default) + KILL_AFTER_S
    assert values(text, "KillSignal") == ["SIGTERM"]
    assert float(values(text, "TimeoutStopSec")[0]) > takes_s


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_all_roles_of_a_machine_share_a_folder_that_outlives_them(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert values(text, "StateDirectory") == ["postroom"]
    assert unit_environment()["POSTROOM_DATA"] == "/var/lib/postroom"
    assert values(text, "User") == ["postroom"]


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_the_journal_can_read_which_boot_this_is(path: Path) -> None:
    assert values(path.read_text(encoding="utf-8"), "ProcSubset") == []


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_every_setting_is_in_one_file_that_commands_can_read_too(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert values(text, "EnvironmentFile") == ["/etc/postroom/postroom.env"]
    assert values(text, "Environment") == []
    assert values(text, "LoadCredential") == []


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_clocks_are_set_before_leases_are_held(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert "time-sync.target" in values(text, "After")[0].split()
