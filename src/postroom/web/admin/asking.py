"""Asking everybody on a list who has not confirmed: how many, go, how far it is, stop.

The run goes on beside the pages, in the process that started it, and writes down how far it is in
the list's own row, so that any web process can show or stop it (actions/ask_to_confirm.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from datetime import timedelta

import structlog
from fastapi import APIRouter, FastAPI, Request
from starlette.responses import Response

from postroom.act import Act
from postroom.actions import ask_to_confirm
from postroom.domain.ask_job import AskJob
from postroom.domain.asking import ASK_ONCE_IN, ASKS_MAX, ASKS_WITHIN
from postroom.domain.errors import WrongState
from postroom.records import ask_jobs, lists
from postroom.web.context import context_of, one_per_app
from postroom.web.forms import list_named, posted
from postroom.web.pages import go, show
from postroom.web.signed_in import Editor, act_of

router = APIRouter(prefix="/subscribers/ask")
log = structlog.get_logger("asking")


@router.get("")
async def ask_page(request: Request, signed_in: Editor) -> Response:
    context = context_of(request)
    tables = context.storage.tables
    now = context.clock.now()
    mailing_list = await lists.read(tables, list_named(request.query_params.get("list", "")))
    found = await ask_jobs.find(tables, mailing_list.name)
    job = found.value.as_of(now) if found else None
    is_running = job is not None and job.is_running
    return show(
        request,
        signed_in,
        "subscribers/ask.html",
        mailing_list=mailing_list,
        job=job,
        is_running=is_running,
        is_open=job is not None and job.can_go_on(now),
        tally=None
        if is_running
        else await ask_to_confirm.tally(tables, mailing_list.name, context.clock),
        hours=ASK_ONCE_IN // timedelta(hours=1),
        asks_max=ASKS_MAX,
        days=ASKS_WITHIN.days,
    )


@router.post("")
async def act(request: Request, signed_in: Editor) -> Response:
    """Start, continue or stop. After a second click the page shows the run in progress."""
    context = context_of(request)
    form = await posted(request)
    tables = context.storage.tables
    name = list_named(request.query_params.get("list", ""))
    if form.value("act") == "stop":
        await ask_to_confirm.stop(tables, name)
        return go(_path(name))
    await lists.read(tables, name)
    found = await ask_to_confirm.tally(tables, name, context.clock)
    by = signed_in.user.address
    run = secrets.token_hex(8)
    now = context.clock.now()
    total = found.askable if found.is_whole else 0
    with contextlib.suppress(WrongState):
        job, etag = await ask_to_confirm.start(tables, name, by=by, total=total, run=run, now=now)
        runs_in(request.app).start(act_of(request, signed_in), job, etag)
    return go(_path(name))


def _path(name: str) -> str:
    return f"/admin/subscribers/ask?list={name}"


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
        task.add_done_callback(self._over)

    async def settled(self) -> None:
        """Wait until nothing is running."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def stop_all(self) -> None:
        """Let each run finish its current group; the process is about to end."""
        self._is_stopping = True
        await self.settled()

    def _over(self, task: asyncio.Task[AskJob]) -> None:
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
