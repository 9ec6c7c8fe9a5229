"""`./dev serve` installs what the setting of the storage asks for."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FUNCTION = re.compile(r"^wants_azure\(\) \{.*?^\}$", re.MULTILINE | re.DOTALL)


def wants_azure(folder: Path, environ: dict[str, str], *arguments: str) -> bool:
    found = FUNCTION.search((ROOT / "dev").read_text(encoding="utf-8"))
    assert found
    script = f'{found[0]}\nwants_azure "$@"'
    ran = subprocess.run(
        ["sh", "-euc", script, "dev", *arguments], env=environ, cwd=folder, timeout=30, check=False
    )
    return ran.returncode == 0


@pytest.mark.parametrize(
    ("environ", "toml", "arguments", "is_wanted"),
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
    tmp_path: Path, environ: dict[str, str], toml: str, arguments: list[str], is_wanted: bool
) -> None:
    (tmp_path / "secret").write_text("azure:AccountName=contoso;AccountKey=c2VjcmV0\n")
    if toml:
        (tmp_path / "postroom.toml").write_text(toml)
    around = {"PATH": "/usr/bin:/bin"} | environ
    assert wants_azure(tmp_path, around, *arguments) is is_wanted
