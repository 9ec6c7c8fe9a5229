"""A run that asks everybody on a list who has not confirmed; each list has at most one."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from postroom.domain.asking import ASK_ONCE_IN
from postroom.domain.errors import WrongState
from postroom.domain.job_status import JobStatus
from postroom.domain.texts import _

SILENT_AFTER = timedelta(seconds=15)  # a run that is alive is seen every second


class AskJob(msgspec.Struct, frozen=True, kw_only=True):
    list_name: str
    by: str  # who started it
    created_at: datetime  # people asked since then were asked by this job
    total: int  # people to ask, counted when it was created; 0: too many to count
    run: str  # which process's turn it is: a new token for every run
    seen_at: datetime
    status: JobStatus = JobStatus.RUNNING
    is_stop_asked: bool = False
    ended_at: datetime | None = None
    asked: int = 0
    skipped: int = 0
    mistake: str = ""  # why it failed

    @property
    def is_running(self) -> bool:
        return self.status is JobStatus.RUNNING

    def as_of(self, now: datetime) -> AskJob:
        """The job with its real status: a run that has not been seen for a while has stopped."""
        is_silent = not -SILENT_AFTER < now - self.seen_at < SILENT_AFTER
        if not self.is_running or not is_silent:
            return self
        return msgspec.structs.replace(self, status=JobStatus.STOPPED)

    def can_go_on(self, now: datetime) -> bool:
        """Whether the next run is the rest of this one; later it is a new one."""
        is_open = self.status in (JobStatus.STOPPED, JobStatus.FAILED)
        return is_open and now < self.created_at + ASK_ONCE_IN


def started(
    known: AskJob | None, list_name: str, by: str, total: int, run: str, now: datetime
) -> AskJob:
    """The job at the beginning of a run: a new one, or the rest of one that stopped."""
    known = known and known.as_of(now)
    if known and known.is_running:
        raise WrongState(_("People on this list are already being asked."))
    job = AskJob(list_name=list_name, by=by, created_at=now, total=total, run=run, seen_at=now)
    if known and known.can_go_on(now):
        return msgspec.structs.replace(job, created_at=known.created_at, total=known.total)
    return job
