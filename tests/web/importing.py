"""An editor with a file of people: uploaded, looked over, brought in."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import msgspec
import pytest

from postroom.domain.address import parse_address
from postroom.domain.import_job import ImportJob
from postroom.domain.subscriber import Subscriber
from postroom.domain.user import Role
from postroom.flow import subscribe
from postroom.records import imports, subscribers
from postroom.storage.port import Conflict
from postroom.web.admin.import_runs import Runs, runs_in
from tests.acting import acting
from tests.web.office import LIST, NOW, open_office
from tests.web.signed_in import OWN_PAGE, Worker, sign_in_as

GOOD = "email,first_name,city\nada@contoso.edu,Ada,Köln\nbob@contoso.edu,Bob,\n"
CHOICE = {
    "email": "0",
    "header": "yes",
    "name-1": "first_name",
    "name-2": "city",
    "purpose": "confirmed",
    "basis": "signed up at the conference 2026",
}


@asynccontextmanager
async def at_work(folder: Path, role: Role) -> AsyncIterator[Worker]:
    async with open_office(folder, data=folder) as office:
        worker = await sign_in_as(office, role)
        async with worker.browser:
            yield worker
            await runs_at(worker).stop_all()


def runs_at(worker: Worker) -> Runs:
    spoken = worker.browser._transport.app  # type: ignore[attr-defined]
    return runs_in(spoken._app._app)  # inside of what stands around every answer


async def upload(
    editor: Worker, content: str | bytes, name: str = "people.csv", list_name: str = LIST
) -> httpx2.Response:
    body = content.encode() if isinstance(content, str) else content
    return await editor.browser.post(
        "/admin/imports/upload",
        data={"list": list_name},
        files={"file": (name, body, "text/csv")},
        headers=OWN_PAGE,
    )


async def uploaded(editor: Worker, content: str | bytes, name: str = "people.csv") -> str:
    """The path of the import."""
    answer = await upload(editor, content, name)
    assert answer.status_code == 303, answer.text
    path: str = answer.headers["location"]
    assert path.endswith("/columns")
    return path.removesuffix("/columns")


async def settled(editor: Worker, path: str) -> ImportJob:
    """What became of the run that was just started."""
    await runs_at(editor).settled()
    return await job_of(editor, path)


async def job_of(editor: Worker, path: str) -> ImportJob:
    job, _ = await imports.read(editor.office.storage.tables, path.rpartition("/")[2])
    return job


async def change(editor: Worker, path: str, **fields: object) -> None:
    """Another process writes the row, as often as it takes."""
    tables = editor.office.storage.tables
    for _ in range(100):
        job, etag = await imports.read(tables, path.rpartition("/")[2])
        with contextlib.suppress(Conflict):
            await imports.replace(tables, msgspec.structs.replace(job, **fields), etag)
            return
    pytest.fail("the row never held still")


async def looked_over(editor: Worker, content: str | bytes, **choice: str) -> tuple[str, ImportJob]:
    path = await uploaded(editor, content)
    answer = await editor.post(f"{path}/columns", **CHOICE | choice)
    assert answer.headers["location"] == path, answer.text
    return path, await settled(editor, path)


async def brought_in(editor: Worker, content: str | bytes, **choice: str) -> ImportJob:
    path, _ = await looked_over(editor, content, **choice)
    assert (await editor.post(f"{path}/start")).headers["location"] == path
    return await settled(editor, path)


async def stored(editor: Worker, address: str) -> Subscriber | None:
    key = parse_address(address).storage_key
    found = await subscribers.find(editor.office.storage.tables, LIST, key)
    return found[0] if found else None


async def gone_person(editor: Worker, address: str) -> None:
    tables = editor.office.storage.tables
    one = await subscribe.add(acting(tables, NOW), LIST, parse_address(address), {}, verified=True)
    await subscribe.leave(acting(tables, NOW), LIST, one.guid)


def files(folder: Path) -> list[str]:
    return sorted(path.suffix for path in (folder / "imports").iterdir())
