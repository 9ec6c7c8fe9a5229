"""An import goes on when web and scheduler are killed; nobody is in twice or left out."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2

from postroom.actions import sign_in
from postroom.actions.sign_in import Browser
from postroom.domain.address import parse_address
from postroom.domain.job_status import JobStatus
from postroom.domain.user import Role, User
from postroom.importing import jobs
from postroom.importing.import_people import GROUP_ROWS
from postroom.importing.job import ImportJob
from postroom.records import subscribers, users
from postroom.wiring import Parts
from postroom_bench.installation import LIST, Installation, Process, until

# So many that a busy machine is not through with them before the test has looked.
PEOPLE = 100_000
START_S = 120.0
RUN_S_MAX = 120.0
OWN_PAGE = {"sec-fetch-site": "same-origin"}
CHOICE = {"email": "0", "header": "yes", "purpose": "confirmed", "basis": "they asked for it"}


@dataclass
class Site:
    """Web and scheduler with somebody signed in, and their storage opened a second time."""

    installation: Installation
    parts: Parts
    browser: httpx2.AsyncClient
    web: Process
    scheduler: Process
    path: str = ""

    async def start_web(self) -> None:
        self.web = await self.installation.start("web")
        await until(self._is_ready, within_s=START_S)

    async def _is_ready(self) -> bool:
        try:
            return (await self.browser.get("/readyz")).status_code == 200
        except httpx2.TransportError:
            return False

    async def upload(self) -> None:
        lines = "".join(f"student{number}@contoso.edu\n" for number in range(PEOPLE))
        answer = await self.browser.post(
            "/admin/imports/upload",
            data={"list": LIST},
            files={"file": ("people.csv", f"email\n{lines}".encode(), "text/csv")},
            headers=OWN_PAGE,
        )
        self.path = answer.headers["location"].removesuffix("/columns")
        await self.post("columns", **CHOICE)
        await self.until_not_running()

    async def post(self, act: str, **fields: str) -> None:
        answer = await self.browser.post(f"{self.path}/{act}", data=fields, headers=OWN_PAGE)
        assert answer.status_code == 303, answer.text

    async def job(self) -> tuple[ImportJob, str]:
        return await jobs.read(self.parts.storage.tables, self.path.rpartition("/")[2])

    async def until_not_running(self) -> ImportJob:
        async def is_over() -> bool:
            return (await self.job())[0].status is not JobStatus.RUNNING

        await until(is_over, within_s=RUN_S_MAX)
        return (await self.job())[0]

    async def people(self) -> list[str]:
        everyone = subscribers.everyone(self.parts.storage.tables, LIST)
        return [one.address async for one in everyone]

    async def until_some_are_in(self) -> None:
        async def is_somebody_in() -> bool:
            shelf = await subscribers.scan_people(self.parts.storage.tables, LIST, limit=1)
            return bool(shelf.people)

        await until(is_somebody_in, within_s=RUN_S_MAX, every_s=0.005)


@asynccontextmanager
async def opened(folder: Path, port: int) -> AsyncIterator[Site]:
    url = f"http://127.0.0.1:{port}"
    async with Installation(folder) as installation:
        installation.overrides |= {"POSTROOM_BIND": f"127.0.0.1:{port}", "POSTROOM_URL": url}
        installation.overrides |= {"POSTROOM_LEASE_S": "6"}
        async with installation.parts() as parts:
            await installation.people(parts, 0)
            cookies = {"postroom": await _token(parts)}
            async with httpx2.AsyncClient(
                base_url=url, cookies=cookies, timeout=START_S
            ) as browser:
                web = await installation.start("web")
                scheduler = await installation.start("scheduler")
                site = Site(installation, parts, browser, web, scheduler)
                await until(site._is_ready, within_s=START_S)
                await site.upload()
                yield site


async def _token(parts: Parts) -> str:
    tables, now = parts.storage.tables, parts.clock.now()
    address = parse_address("editor@contoso.edu")
    user = User(
        address=address.typed,
        key=address.storage_key,
        role=Role.EDITOR,
        password="nobody types it here",
        created_at=now,
        sessions_from=now,
    )
    await users.add(tables, user)
    return await sign_in.begin(tables, user, Browser("127.0.0.1", "a test"), now)


async def test_an_import_continues_automatically_after_web_and_scheduler_were_killed(
    tmp_path: Path, unused_tcp_port_factory: Callable[[], int]
) -> None:
    async with opened(tmp_path, unused_tcp_port_factory()) as site:
        await site.post("start")
        await site.until_some_are_in()
        await site.web.kill()
        await site.scheduler.kill()
        assert 0 < len(await site.people()) < PEOPLE
        assert (await site.job())[0].is_running
        site.scheduler = await site.installation.start("scheduler")
        job = await site.until_not_running()
        assert job.is_finished
        assert job.added + job.already == PEOPLE
        assert job.already <= GROUP_ROWS
        people = await site.people()
        assert len(people) == len(set(people)) == PEOPLE
        await site.start_web()
        assert "Done: 100,000 rows" in (await site.browser.get(site.path)).text


async def test_a_planned_stop_of_the_scheduler_loses_no_count(
    tmp_path: Path, unused_tcp_port_factory: Callable[[], int]
) -> None:
    async with opened(tmp_path, unused_tcp_port_factory()) as site:
        await site.post("start")
        await site.until_some_are_in()
        assert await site.scheduler.terminate(within_s=START_S) == 0
        job, _ = await site.job()
        assert job.is_running
        assert job.added == len(await site.people()) < PEOPLE
        site.scheduler = await site.installation.start("scheduler")
        job = await site.until_not_running()
        assert job.is_finished
        assert (job.added, job.already) == (PEOPLE, 0)
