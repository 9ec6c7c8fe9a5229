"""An editor with a file of people: uploaded, checked, imported."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import msgspec
import pytest

from postroom.domain.address import parse_address
from postroom.domain.subscriber import Subscriber
from postroom.domain.texts import ENGLISH
from postroom.domain.user import Role
from postroom.flow import subscribe
from postroom.importing import jobs
from postroom.importing.import_people import GROUP_ROWS
from postroom.importing.job import ImportJob
from postroom.importing.worker import ImportWorker
from postroom.records import subscribers
from postroom.storage.port import Conflict
from tests.acting import acting
from tests.web.office import LIST, NOW, Still, open_office
from tests.web.pseudo import PSEUDO
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
    async with open_office(folder) as office:
        worker = await sign_in_as(office, role)
        async with worker.browser:
            yield worker


def import_worker(editor: Worker, group_rows: int = GROUP_ROWS) -> ImportWorker:
    """What a scheduler process has beside its own work."""
    languages = (ENGLISH, PSEUDO)
    storage = editor.office.storage
    return ImportWorker(storage, Still(), languages=languages, group_rows=group_rows)


async def upload(
    editor: Worker, content: str | bytes, name: str = "people.csv", list_name: str = LIST
) -> httpx2.Response:
    return await upload_by(editor.browser, content, name, list_name)


async def upload_by(
    browser: httpx2.AsyncClient, content: str | bytes, name: str, list_name: str
) -> httpx2.Response:
    body = content.encode() if isinstance(content, str) else content
    return await browser.post(
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
    """What became of the run that was just started, once a worker has done it."""
    worker = import_worker(editor)
    while await worker.step():
        await worker.settled()
    return await job_of(editor, path)


async def job_of(editor: Worker, path: str) -> ImportJob:
    job, _ = await jobs.read(editor.office.storage.tables, path.rpartition("/")[2])
    return job


async def change(editor: Worker, path: str, **fields: object) -> None:
    """Another process writes the row, as often as it takes."""
    tables = editor.office.storage.tables
    for _ in range(100):
        job, etag = await jobs.read(tables, path.rpartition("/")[2])
        with contextlib.suppress(Conflict):
            await jobs.replace(tables, msgspec.structs.replace(job, **fields), etag)
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


async def kinds_kept(editor: Worker) -> list[str]:
    """Of every blob that an import has: file or report."""
    names, _ = await editor.office.storage.blobs.list("imports/")
    return [name.split("/")[2] for name in names]
