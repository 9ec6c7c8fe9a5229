"""Run imports: a worker claims an item from the import queue and runs the job that it names.

Before: a person pressed start: the job's status is running, and an item on the queue has its id.
After: the status is done, the row has the counts, blobs have the report, and the uploaded file is
deleted once its people are imported.
Dies half-way:
    web, between row and item      the sweep puts an item for a running job that has none
    worker, within a group         its claim lapses; the next worker skips the lines that are
                                   recorded and repeats the group. People who were stored already
                                   count as already there: nobody is added or counted twice
    worker, between report and row the next worker replaces that part of the report
    worker, after the last row     the next worker deletes the file and completes the item
    planned stop                   finishes its group, records it, and releases the item
Commit point: the job's row after each group: position, counts and report parts in one write.

One worker at a time: a worker that claims a job puts a new token (`run`) into its row. Every write
is guarded by the etag, so a worker that stalled past its claim gets a conflict, sees another token
and gives up; what it stored in the meantime counts as already there for the other worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import msgspec
import structlog

from postroom.act import Act
from postroom.clock import Clock
from postroom.domain.audit import AuditAction, AuditKind, values_text
from postroom.domain.consent import Trace
from postroom.domain.csv_rows import BadRow, csv_text
from postroom.domain.errors import PostroomError
from postroom.domain.job_status import JobStatus
from postroom.domain.texts import ENGLISH, Language, _, speaking
from postroom.importing import jobs, upload
from postroom.importing.csv_people import People
from postroom.importing.import_people import (
    BATCH_PEOPLE,
    GROUP_ROWS,
    ImportObserver,
    ImportTerms,
    import_people,
)
from postroom.importing.job import (
    COUNTED,
    ImportCounts,
    ImportJob,
    Purpose,
    Refusals,
    started,
    stopped,
)
from postroom.records.names import IMPORT_QUEUE
from postroom.records.retry import retry_on_conflict
from postroom.storage.port import Claim, Conflict, Storage, StorageError

log = structlog.get_logger("imports")
RUNS_MAX = 2  # in a process: they share its one event loop
RETRY_S = 5.0  # after storage failed
TRIES_MAX = 20  # of a job
FORGOTTEN_AFTER = timedelta(minutes=1)  # between the row and its item, which are written together
_SLOW = _("Storage did not respond. Nothing is lost. Continue once it is working again.")
_CRASHED = _("Something went wrong. See the log of the scheduler role.")
_TOO_OFTEN = _("The import was tried {count} times but never finished.", count=TRIES_MAX)


async def start(act: Act, id_: str, language: str = "", *, is_rehearsal: bool) -> None:
    """Hand a job to the workers; WrongState if it cannot run, Conflict if somebody changed it."""
    job, etag = await jobs.read(act.tables, id_)
    ready = started(job, act.now, language, is_rehearsal=is_rehearsal)
    name = f"{job.list_name} {job.file_name}"
    after = values_text({"dry run": is_rehearsal})
    async with act.audited(AuditKind.IMPORT, name, AuditAction.START, after=after):
        await jobs.replace(act.tables, ready, etag)
        await act.storage.queues.put(IMPORT_QUEUE, id_)
    act.wake_scheduler()


async def stop(act: Act, id_: str) -> None:
    """Ask the worker of a job to stop after its current group."""

    async def ask_to_stop() -> None:
        job, etag = await jobs.read(act.tables, id_)
        await jobs.replace(act.tables, stopped(job, act.now), etag)

    await retry_on_conflict(ask_to_stop)  # the worker records its progress meanwhile


async def put_forgotten_items(storage: Storage, now: datetime) -> None:
    """Queue running jobs whose items were lost again; a second item for a job does no harm."""
    running = await jobs.running(storage.tables)
    forgotten = [
        job.id for job in running if job.started_at and job.started_at + FORGOTTEN_AFTER < now
    ]
    if forgotten and await storage.queues.length(IMPORT_QUEUE) == 0:
        await storage.queues.put(IMPORT_QUEUE, *forgotten)


@dataclass
class ImportWorker:
    """Runs imports alongside the other work of its process; `step` claims new ones."""

    storage: Storage
    clock: Clock
    wake: Callable[[str], None] = lambda role: None  # the senders, when there is mail for them
    languages: Iterable[Language] = (ENGLISH,)
    lease_s: float = 30.0
    poll_s: float = 30.0  # between two polls; on one machine the web role wakes us at once
    group_rows: int = GROUP_ROWS
    on_run_ended: Callable[[], None] = lambda: None
    _runs: dict[asyncio.Task[None], ImportRun] = field(default_factory=dict)
    _is_stopping: bool = False

    async def step(self) -> bool:
        """Start waiting jobs; return whether there may be more."""
        room = RUNS_MAX - len(self._runs)
        if not room or self._is_stopping:
            return False
        claims = await self.storage.queues.claim(IMPORT_QUEUE, limit=room, lease_s=self.lease_s)
        for claim in claims:
            run = ImportRun(self, claim)
            task = asyncio.create_task(run.run())
            self._runs[task] = run
            task.add_done_callback(self._ended)
        return bool(claims)

    async def rest_s(self) -> float:
        return self.poll_s

    @property
    def is_idle(self) -> bool:
        return not self._runs

    async def settled(self) -> None:
        """Wait until no import is running."""
        await asyncio.gather(*self._runs, return_exceptions=True)

    async def close(self, grace_s: float) -> None:
        """Let every run record its group and release its job; cancel those that take too long."""
        self._is_stopping = True
        for run in self._runs.values():
            run.is_stopping = True
        if self._runs:
            _done, late = await asyncio.wait(self._runs, timeout=grace_s)
            for task in late:
                task.cancel()
        await self.settled()

    def _ended(self, task: asyncio.Task[None]) -> None:
        run = self._runs.pop(task)
        if not task.cancelled() and (error := task.exception()):
            log.error("import_crashed", id=run.id, error=type(error).__name__, exc_info=error)
        self.on_run_ended()


class Superseded(Exception):
    """Another worker has claimed the job, or somebody deleted it."""


class ImportRun(ImportObserver):
    """One job claimed by this worker, and the observer of its import."""

    def __init__(self, worker: ImportWorker, claim: Claim) -> None:
        super().__init__()
        self.id = claim.body
        self.is_stopping = False  # the process stops: release the job after this group
        self._worker = worker
        self._storage = worker.storage
        self._clock = worker.clock
        self._claim = claim
        self._job: ImportJob
        self._etag = ""
        self._is_over = False
        self._refused: list[BadRow] = []  # of this group

    async def run(self) -> None:
        """Run the job to its end, unless it is stopped, and settle the item."""
        queues = self._storage.queues
        work = asyncio.create_task(self._run())
        try:
            while not (await asyncio.wait({work}, timeout=self._worker.lease_s / 3))[0]:
                with contextlib.suppress(StorageError):  # the row still guards every write
                    self._claim = await queues.extend(self._claim, lease_s=self._worker.lease_s)
            release_s = work.result()
        finally:
            work.cancel()
        with contextlib.suppress(StorageError):  # lost: another worker has the item
            if release_s is None:
                await queues.complete(self._claim)
            else:
                await queues.release(self._claim, delay_s=release_s)

    async def _run(self) -> float | None:
        """Run the job; return the delay until the item reappears, or None to complete it."""
        try:
            if await self._claim_job():
                spoken = {language.tag: language for language in self._worker.languages}
                with speaking(spoken.get(self._job.language, ENGLISH)):
                    await self._import()
            if self._job.is_finished:
                await upload.delete_file(self._storage.blobs, self._job)
        except Superseded:
            return None
        except StorageError as error:  # also rows that only a newer version can read
            log.warning("import_delayed", id=self.id, error=type(error).__name__)
            return RETRY_S
        return 0.0 if self._job.is_running else None

    async def _claim_job(self) -> bool:
        """Claim the job from the worker that had it; False if there is nothing to run."""

        async def claim() -> bool:
            found = await jobs.find(self._storage.tables, self.id)
            if found is None:
                raise Superseded
            self._job, self._etag = found
            if not self._job.is_running:
                return False
            ours = {"run": secrets.token_hex(8), "seen_at": self._clock.now()}
            await self._replace(msgspec.structs.replace(self._job, **ours))
            return True

        return await retry_on_conflict(claim)

    async def _import(self) -> None:
        """Import from the recorded position, and record how it ended."""
        try:
            if self._job.is_stop_asked:
                await self._end(JobStatus.STOPPED)
            elif self._claim.taken > TRIES_MAX:  # or it would kill its workers forever
                await self._end(JobStatus.FAILED, str(_TOO_OFTEN))
            else:
                await self._read_and_store()
        except Superseded:
            raise
        except StorageError:
            if self._claim.taken < TRIES_MAX:
                raise
            await self._end(JobStatus.FAILED, str(_SLOW))
        except PostroomError as error:
            await self._end(JobStatus.FAILED, str(error))
        except Exception:
            log.exception("import_failed", id=self.id)
            await self._end(JobStatus.FAILED, str(_CRASHED))

    async def _read_and_store(self) -> None:
        job = self._job
        blobs = self._storage.blobs
        file, source = await upload.open_upload(blobs, job.id, job.chunks, job.file_name, job.size)
        people = await asyncio.to_thread(People, iter(source), {}, job.columns, after=job.line)
        await file.load()
        line = job.line
        self.first_bad = list(job.first_bad.rows)
        self.first_noted = list(job.first_noted.rows)

        async def pause() -> None:
            await asyncio.sleep(0)
            await file.load()

        def progress(counts: ImportCounts) -> dict[str, Any]:
            return msgspec.structs.asdict(counts) | {
                "line": line,
                "read_bytes": max(self._job.read_bytes, source.read_bytes),
                "encoding": source.encoding,
            }

        async def record(at_line: int, counts: ImportCounts) -> None:
            nonlocal line
            line = max(line, at_line)
            await self._record_group(progress(counts))
            self._is_over = self.is_stopping or self._job.is_stop_asked

        so_far = ImportCounts(**{name: getattr(job, name) for name in COUNTED})
        counts = await import_people(
            self._terms(), people, self, so_far=so_far, pause=pause, record=record
        )
        if not self._is_over:
            await self._record_group(progress(counts) | self._ending(JobStatus.DONE))
        elif self._job.is_stop_asked:
            await self._end(JobStatus.STOPPED)

    def _terms(self) -> ImportTerms:
        job = self._job
        is_asking = job.purpose is Purpose.ASK
        trace = Trace(source=job.source)
        return ImportTerms(
            Act(self._storage, self._clock, self._clock.now(), trace, self._worker.wake),
            job.list_name,
            job.purpose is Purpose.CONFIRMED,
            is_rehearsal=job.is_rehearsal,
            keep_out=job.is_suppression,
            existing=job.existing,
            ask=is_asking,
            # Asking waits for the senders: small groups let a stop take effect soon.
            group_rows=BATCH_PEOPLE if is_asking else self._worker.group_rows,
        )

    def _ending(self, status: JobStatus, mistake: str = "") -> dict[str, Any]:
        log.info("import_ended", id=self.id, status=status)
        return {"status": status, "mistake": mistake, "ended_at": self._clock.now()}

    async def _end(self, status: JobStatus, mistake: str = "") -> None:
        """End the run at the position that was recorded last."""
        await self._record(self._ending(status, mistake))

    async def _record_group(self, progress: dict[str, Any]) -> None:
        part = self._job.report_parts
        if self._refused:
            rows = [(row.line, row.value, row.reason) for row in self._refused]
            await upload.write_report(self._storage.blobs, self.id, part, csv_text(rows))
            self._refused = []
            part += 1
        await self._record(
            progress
            | {
                "report_parts": part,
                "first_bad": Refusals(self.first_bad),
                "first_noted": Refusals(self.first_noted),
            }
        )

    async def _record(self, changes: dict[str, Any]) -> None:
        """Write the row; Superseded if the job is no longer ours."""
        changes["seen_at"] = self._clock.now()

        async def write() -> None:
            try:
                await self._replace(msgspec.structs.replace(self._job, **changes))
            except Conflict:  # a person asked to stop, or our own write took effect after all
                found = await jobs.find(self._storage.tables, self.id)
                if found is None or found.value.run != self._job.run:
                    raise Superseded from None
                self._job, self._etag = found
                raise

        await retry_on_conflict(write)

    async def _replace(self, job: ImportJob) -> None:
        self._etag = await jobs.replace(self._storage.tables, job, self._etag)
        self._job = job

    def may_go_on(self) -> bool:
        return not self._is_over

    def refused(self, row: BadRow) -> None:
        super().refused(row)
        self._refused.append(row)
