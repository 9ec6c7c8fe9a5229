"""Ask everybody on a list who has not confirmed: count them, start, show progress, stop.

The run continues in the process that started it and stores its progress in the list's own row, so
that any web process can show or stop it (actions/ask_to_confirm.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from datetime import timedelta

import structlog
from fastapi import APIRouter, FastAPI
from starlette.responses import Response

from postroom.act import Act
from postroom.actions import ask_to_confirm
from postroom.domain.ask_job import AskJob
from postroom.domain.asking import ASK_ONCE_IN, ASKS_MAX, ASKS_WITHIN
from postroom.domain.audit import AuditAction, AuditKind
from postroom.domain.errors import WrongState
from postroom.records import ask_jobs, lists
from postroom.web.admin.admin_request import Editor
from postroom.web.context import one_per_app
from postroom.web.forms import list_named
from postroom.web.pages import go

router = APIRouter(prefix="/subscribers/ask")
log = structlog.get_logger("asking")


@router.get("")
async def ask_page(request: Editor) -> Response:
    now = request.now()
    mailing_list = await lists.read(request.tables, list_named(request.query("list")))
    name = mailing_list.name
    found = await ask_jobs.find(request.tables, name)
    job = found.value.as_of(now) if found else None
    tally = None
    if not job or not job.is_running:
        tally = await ask_to_confirm.tally(request.tables, name, request.context.clock)
    return request.show(
        "subscribers/ask.html",
        mailing_list=mailing_list,
        job=job,
        is_running=tally is None,
        is_open=job is not None and job.can_go_on(now),
        tally=tally,
        hours=ASK_ONCE_IN // timedelta(hours=1),
        asks_max=ASKS_MAX,
        days=ASKS_WITHIN.days,
    )


@router.post("")
async def act(request: Editor) -> Response:
    """Start, continue or stop. After a second click the page shows the run in progress."""
    tables = request.tables
    form = await request.form()
    name = list_named(request.query("list"))
    page = go(f"/admin/subscribers/ask?list={name}")
    if form.value("act") == "stop":
        async with request.act().audited(AuditKind.LIST, name, AuditAction.STOP):
            await ask_to_confirm.stop(tables, name)
        return page
    await lists.read(tables, name)
    found = await ask_to_confirm.tally(tables, name, request.context.clock)
    by = request.signed_in.user.address
    run = secrets.token_hex(8)
    now = request.now()
    total = found.askable if found.is_whole else 0
    with contextlib.suppress(WrongState):
        act = request.act()
        async with act.audited(AuditKind.LIST, name, AuditAction.ASK):
            job, etag = await ask_to_confirm.start(
                tables, name, by=by, total=total, run=run, now=now
            )
        runs_in(request.http.app).start(act, job, etag)
    return page


class AskRuns:
    """The runs of this process, at most one per list."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[AskJob]] = set()
        self._is_stopping = False

    def start(self, act: Act, job: AskJob, etag: str) -> None:
        task = asyncio.create_task(
            ask_to_confirm.run(act, job, etag, lambda: not self._is_stopping)
        )
        self._tasks.add(task)
        task.add_done_callback(self._finish)

    async def settled(self) -> None:
        """Wait until nothing is running."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def stop_all(self) -> None:
        """Let each run finish its current group; the process is about to end."""
        self._is_stopping = True
        await self.settled()

    def _finish(self, task: asyncio.Task[AskJob]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        if error := task.exception():
            log.error("asking_crashed", error=type(error).__name__, exc_info=error)
            return
        job = task.result()
        log.info("asked_to_confirm", list=job.list_name, asked=job.asked, status=job.status)


def runs_in(app: FastAPI) -> AskRuns:
    return one_per_app(app, AskRuns)
