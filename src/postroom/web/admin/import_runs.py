"""Imports at work in this process: the flow runs beside the pages, and a row tells how far it is.

The row is written every second, so that any web process can show it, and says when somebody asked
to stop. Should this process die, the row falls silent, which reads as stopped, and going on is
starting anew: the flow adds only who is missing. Asked to stop in an orderly way, the process
finishes the batches in hand and writes down where it stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
from dataclasses import asdict
from typing import Any, TextIO

import msgspec
import structlog
from fastapi import FastAPI, Request

from postroom.domain.consent import Trace
from postroom.domain.csv_people import People
from postroom.domain.csv_rows import BYTE_ORDER_MARK, REPORT_COLUMNS, BadRow, csv_text
from postroom.domain.csv_source import Source, opened
from postroom.domain.errors import PostroomError, WrongState
from postroom.domain.import_job import (
    BAD_ROWS_SHOWN,
    ImportJob,
    Purpose,
    Refusals,
    Status,
    started,
)
from postroom.domain.texts import _
from postroom.flow.bring_in import CROWD_PEOPLE, Counts, Intake, bring_in
from postroom.records import imports
from postroom.storage.port import Conflict, StorageError
from postroom.web.admin.import_files import files_of
from postroom.web.context import WebContext, one_per_app

log = structlog.get_logger("imports")
RUNS_MAX = 2  # in a process: they share its one event loop with every page
PULSE_S = 1.0
_TRIES_MAX = 5
_SLOW = _("Storage did not answer. Whoever was added stays: go on when it does.")


class Runs:
    def __init__(self, context: WebContext) -> None:
        self._context = context
        self._runs: dict[asyncio.Task[None], Run] = {}
        self._starting = 0  # that have their place, and not yet their task

    async def start(self, id_: str, *, is_rehearsal: bool) -> None:
        """WrongState if it cannot run, or not here; Conflict if another process was faster."""
        if len(self._runs) + self._starting >= RUNS_MAX:
            raise WrongState(_("Two imports are running: start this one when one of them is done."))
        self._starting += 1  # before anything is awaited: others start at the same moment
        try:
            run = await self._taken_on(id_, is_rehearsal=is_rehearsal)
            task = asyncio.create_task(run.go())
            self._runs[task] = run
            task.add_done_callback(self._over)
        finally:
            self._starting -= 1

    async def _taken_on(self, id_: str, *, is_rehearsal: bool) -> Run:
        """The run, once its row says that it is ours."""
        tables, now = self._context.storage.tables, self._context.clock.now()
        job, etag = await imports.read(tables, id_)
        job = started(job.as_of(now), secrets.token_hex(8), now, is_rehearsal=is_rehearsal)
        if not files_of(self._context).of(id_).exists():
            raise WrongState(_("The file is not here, but on {machine}.", machine=job.machine))
        return Run(self._context, job, await imports.replace(tables, job, etag))

    def stop(self, id_: str) -> None:
        """At once, if it runs here; another process finds it in the row."""
        for run in self._runs.values():
            if run.id == id_:
                run.stop()

    async def settled(self) -> None:
        """Until nothing runs any more."""
        await asyncio.gather(*self._runs, return_exceptions=True)

    async def stop_all(self) -> None:
        """The process is about to end."""
        for run in self._runs.values():
            run.stop()
        await self.settled()

    def _over(self, task: asyncio.Task[None]) -> None:
        run = self._runs.pop(task)
        if not task.cancelled() and (error := task.exception()):
            log.error("import_crashed", id=run.id, error=type(error).__name__, exc_info=error)


def runs_of(request: Request) -> Runs:
    return runs_in(request.app)


def runs_in(app: FastAPI) -> Runs:
    return one_per_app(app, Runs, app.state.context)


class Run:
    """One import at work; the flow's `Watch`."""

    def __init__(self, context: WebContext, job: ImportJob, etag: str) -> None:
        self._context = context
        self._job = job
        self._etag = etag
        self._is_stopped = False
        self._counts = Counts()
        self._first_bad: list[BadRow] = []
        self._first_noted: list[BadRow] = []
        self._read_bytes = 0
        self._encoding = ""
        self._report: TextIO | None = None

    @property
    def id(self) -> str:
        return self._job.id

    async def go(self) -> None:
        status, mistake = await self._outcome()
        await self._end(status, mistake)
        if self._job.is_finished:
            files_of(self._context).of(self._job.id).unlink(missing_ok=True)

    async def _outcome(self) -> tuple[Status, str]:
        """How it ended and, if it failed, what to do about it."""
        files = files_of(self._context)
        try:
            with (
                opened(files.of(self._job.id), self._job.file_name) as source,
                _private(files.report(self._job.id)) as report,
            ):
                await self._work(source, report)
        except PostroomError as error:
            return Status.FAILED, str(error)
        except StorageError as error:
            log.warning("import_failed", id=self._job.id, error=type(error).__name__)
            return Status.FAILED, str(_SLOW)
        except OSError as error:
            return Status.FAILED, str(_("The disk is in trouble: {why}.", why=error.strerror))
        return (Status.STOPPED if self._is_stopped else Status.DONE), ""

    def stop(self) -> None:
        self._is_stopped = True

    def may_go_on(self) -> bool:
        return not self._is_stopped

    def refused(self, row: BadRow) -> None:
        if len(self._first_bad) < BAD_ROWS_SHOWN:
            self._first_bad.append(row)
        assert self._report
        self._report.write(csv_text([(row.line, row.value, row.reason)]))

    def noted(self, row: BadRow) -> None:
        if len(self._first_noted) < BAD_ROWS_SHOWN:
            self._first_noted.append(row)

    def counted(self, counts: Counts) -> None:
        self._counts = counts

    async def _work(self, source: Source, report: TextIO) -> None:
        """The flow, and a word about it every second."""
        self._report = report
        report.write(BYTE_ORDER_MARK + csv_text([REPORT_COLUMNS]))
        people = await asyncio.to_thread(People, iter(source), {}, self._job.columns)
        work = asyncio.create_task(bring_in(self._intake(), people, self))
        try:
            while not work.done():
                await asyncio.wait({work}, timeout=PULSE_S)
                self._read_bytes, self._encoding = source.read_bytes, source.encoding
                await self._tell()
            self._counts = work.result()
        finally:
            work.cancel()

    def _intake(self) -> Intake:
        job, context = self._job, self._context
        asker = context.act(Trace(source=job.source))
        return Intake(
            context.storage.tables,
            job.list_name,
            job.purpose is Purpose.CONFIRMED,
            context.clock.now(),
            is_rehearsal=job.is_rehearsal,
            source=job.source,
            keep_out=job.is_suppression,
            clock=context.clock,
            existing=job.existing,
            asker=asker if job.purpose is Purpose.ASK else None,
            crowd=CROWD_PEOPLE,
        )

    async def _tell(self) -> None:
        """How far it is; hears whether somebody asked to stop, or another process took over."""
        with contextlib.suppress(StorageError):  # then the next one tells
            await self._write(self._progress())

    async def _end(self, status: Status, mistake: str = "") -> None:
        told = self._progress() | {
            "status": status,
            "mistake": mistake,
            "ended_at": self._context.clock.now(),
        }
        for _try in range(_TRIES_MAX):
            with contextlib.suppress(Conflict):
                await self._write(told)
                return

    async def _write(self, told: dict[str, Any]) -> None:
        tables = self._context.storage.tables
        job = msgspec.structs.replace(self._job, **told)
        try:
            self._etag = await imports.replace(tables, job, self._etag)
            self._job = job
        except Conflict:
            found = await imports.find(tables, self._job.id)
            if found is None or found.value.run != self._job.run:
                self.stop()  # deleted, or another process's turn
                return
            self._job, self._etag = found
            if self._job.is_stop_asked:
                self.stop()
            raise

    def _progress(self) -> dict[str, Any]:
        return asdict(self._counts) | {
            "seen_at": self._context.clock.now(),
            "read_bytes": self._read_bytes,
            "encoding": self._encoding,
            "first_bad": Refusals(list(self._first_bad)),
            "first_noted": Refusals(list(self._first_noted)),
        }


def _private(path: os.PathLike[str]) -> TextIO:
    """A file to write anew, readable by its owner alone."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    return os.fdopen(handle, "w", encoding="utf-8", newline="")
