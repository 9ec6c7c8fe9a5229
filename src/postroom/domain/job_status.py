"""The status of a background job: an import, or a run that asks people to confirm."""

from __future__ import annotations

from enum import StrEnum

from postroom.domain.texts import pgettext


class JobStatus(StrEnum):
    WAITING = "waiting"  # for a person to choose something, or to start it
    RUNNING = "running"
    STOPPED = "stopped"  # by a person, or because its process died
    FAILED = "failed"
    DONE = "done"


STATUS_TEXTS = {
    JobStatus.WAITING: pgettext("an import is", "waiting"),
    JobStatus.RUNNING: pgettext("an import is", "running"),
    JobStatus.STOPPED: pgettext("an import is", "stopped"),
    JobStatus.FAILED: pgettext("an import has", "failed"),
    JobStatus.DONE: pgettext("an import is", "done"),
}
