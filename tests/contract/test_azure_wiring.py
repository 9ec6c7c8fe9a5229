"""The setting POSTROOM_STORAGE chooses Azure, and nothing of it is loaded otherwise."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from pathlib import Path
from secrets import token_hex
from urllib.parse import urlsplit

import pytest

from postroom.cli import doctor
from postroom.domain.doctor import CheckResult
from postroom.settings import BadSettings, Settings, load
from postroom.storage.port import Unavailable
from postroom.wiring import check, open_parts
from postroom.wiring.engines import engine_of
from postroom.wiring.roles import PAGE_S
from postroom_bench.ports import held_port
from tests.contract.azurite import azurite

KEY = "c2VjcmV0"
CONTOSO = f"azure:DefaultEndpointsProtocol=https;AccountName=contoso;AccountKey={KEY}"


def with_storage(address: str, folder: Path, prefix: str = "") -> Settings:
    environ = {
        "POSTROOM_STORAGE": address,
        "POSTROOM_AZURE_PREFIX": prefix,
        "POSTROOM_DATA": str(folder / "data"),
    }
    return load(environ, folder / "postroom.toml")


def emulator_address() -> str:
    account = azurite().account
    urls = {"blob": account.blob_url, "queue": account.queue_url, "table": account.table_url}
    ports = "&".join(f"{service}={urlsplit(url).port}" for service, url in urls.items())
    return f"azure:emulator?{ports}"


async def test_the_setting_opens_the_engine(tmp_path: Path) -> None:
    settings = with_storage(emulator_address(), tmp_path, f"w{token_hex(6)}")
    for _ in range(2):
        with pytest.raises(Unavailable, match="There is no Postroom storage in this account"):
            await open_parts(settings, create_folder=False).__aenter__()
    async with open_parts(settings, timeout_s=PAGE_S) as parts:
        await parts.storage.tables.insert("message", "p", "k", {"n": 1})
        assert await parts.storage.tables.get("message", "p", "k") is not None


def test_the_doctor_examines_the_account_and_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("POSTROOM_STORAGE", emulator_address())
    monkeypatch.setenv("POSTROOM_AZURE_PREFIX", f"d{token_hex(6)}")
    asyncio.run(create_storage(load()))
    findings = {finding.about: finding for finding in doctor.examine()}
    assert findings["storage"].words.startswith("Azure's emulator at http://127.0.0.1:")
    assert "integrity" not in findings
    assert all(finding.verdict is not CheckResult.WRONG for finding in findings.values())


async def create_storage(settings: Settings) -> None:
    async with open_parts(settings):
        pass


def test_who_starts_without_the_emulator_is_told_how_to_run_it(tmp_path: Path) -> None:
    with held_port() as port, socket.create_server(("127.0.0.1", 0)) as listener:
        silent = hint_for(f"azure:emulator?table={port}", tmp_path)
        assert f"is not running at 127.0.0.1:{port}. Start it with “./dev azurite”" in silent
        there = listener.getsockname()[1]
        assert hint_for(f"azure:emulator?table={there}", tmp_path) == ""
    assert hint_for(CONTOSO, tmp_path) == ""


def hint_for(address: str, folder: Path) -> str:
    return engine_of(with_storage(address, folder)).start_hint()


def test_a_wrong_account_is_a_mistake_in_the_settings(tmp_path: Path) -> None:
    [mistake] = check(with_storage("azure:contoso", tmp_path))
    assert mistake.startswith("POSTROOM_STORAGE: must be azure:emulator")
    assert check(with_storage(CONTOSO, tmp_path)) == []


def test_a_wrong_prefix_is_a_mistake_in_the_settings(tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match="POSTROOM_AZURE_PREFIX: must be at most 20"):
        with_storage(CONTOSO, tmp_path, "Not-A-Prefix")


def test_the_account_is_described_without_its_key(tmp_path: Path) -> None:
    settings = with_storage(CONTOSO, tmp_path)
    assert (
        engine_of(settings).description == "Azure Storage at https://contoso.table.core.windows.net"
    )
    assert KEY not in repr(settings)


def test_neither_azure_nor_the_web_is_loaded_before_it_is_needed() -> None:
    program = (
        "import sys, postroom.wiring.roles; "
        "print([name for name in ('azure', 'aiohttp', 'msal', 'starlette') if name in sys.modules])"
    )
    found = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert found.stdout.strip() == "[]"
