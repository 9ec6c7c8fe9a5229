"""The ack journal: what a sender handed over and what was answered, readable after kill -9.

    <folder>/<owner>/lock      held (flock) by the sender as long as it lives
    <folder>/<owner>/<lane>    one page: the batch being sent, a line for each hand-over and answer

Each event is one write(2) without fsync: one line or, for answers that were read together, several.
The data survives the death of the process, but not of the machine. So "not in the journal" means
"not handed over" only within the boot that wrote it. If a line cannot be written (full disk), the
page is renamed to <lane>.lost until the lane begins its next batch; until then no page of this
sender counts as complete, and the announcement decides.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from postroom import clock
from postroom.domain.delivery import JournalEvidence, SenderStillAlive
from postroom.domain.outcome import Outcome
from postroom.process_locks import is_unlocked

UNBORN_S = 60.0  # far more than a sender needs to create its folder
LOST = ".lost"
_encode_lines = msgspec.json.Encoder().encode_lines


class _Batch(msgspec.Struct, frozen=True, tag="batch"):
    ref: str
    batch: int
    boot: str


class _Handed(msgspec.Struct, frozen=True, tag="handed"):
    positions: list[int]


class _Returned(msgspec.Struct, frozen=True, tag="returned"):
    """The server has not accepted these after all."""

    positions: list[int]


class _Answered(msgspec.Struct, frozen=True, tag="answered", gc=False):
    position: int
    outcome: Outcome


class _Recorded(msgspec.Struct, frozen=True, tag="recorded"):
    pass


_Line = _Batch | _Handed | _Returned | _Answered | _Recorded
_line: msgspec.json.Decoder[_Line] = msgspec.json.Decoder(_Line)


class FileJournal:
    """The page of one lane."""

    def __init__(self, path: Path, boot: str) -> None:
        self._path = path
        self._boot = boot
        self._lost = path.with_suffix(LOST)
        self._file: int | None = None
        self._is_set_aside = False  # there may be a lost page of this lane

    def begin(self, ref: str, batch: int) -> None:
        """Start a page before the announcement: without one, the whole batch would be in doubt."""
        try:
            if self._file is None:
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
                self._file = os.open(self._path, flags, 0o600)
            os.ftruncate(self._file, 0)
            if self._is_set_aside:
                self._lost.unlink(missing_ok=True)  # what the lane did before is in storage
                self._is_set_aside = False
        except OSError:
            return self._give_up()
        return self._write(_Batch(ref, batch, self._boot))

    def handing_over(self, positions: Sequence[int]) -> None:
        self._write(_Handed(list(positions)))

    def returned(self, positions: Sequence[int]) -> None:
        self._write(_Returned(list(positions)))

    def answered(self, outcomes: Mapping[int, Outcome]) -> None:
        self._write(*[_Answered(at, outcome) for at, outcome in outcomes.items()])

    def recorded(self) -> None:
        """Everything is in storage; the page only shows that the item is still ours."""
        self._write(_Recorded())

    def end(self) -> None:
        """The item is completed or given back: empty the page."""
        if self._file is not None:
            os.ftruncate(self._file, 0)

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _write(self, *lines: msgspec.Struct) -> None:
        if self._file is None:
            return
        content = _encode_lines(lines)
        try:
            if os.write(self._file, content) == len(content):
                return
        except OSError:
            pass
        self._give_up()

    def _give_up(self) -> None:
        """Drop a page with a gap, which would mislead. An error here ends the sender at once."""
        self.close()
        self._is_set_aside = True
        with contextlib.suppress(FileNotFoundError):
            self._path.rename(self._lost)


class FileJournals:
    """The journals of all senders on this machine, our own among them."""

    def __init__(self, folder: Path, owner: str) -> None:
        self._folder = folder
        self._owner = owner
        self._boot = clock.boot_id()
        self._lock: int | None = None

    def open(self) -> None:
        """Create our folder; it becomes visible only when it is locked, or we would seem dead."""
        self._folder.mkdir(parents=True, exist_ok=True)
        hidden = self._folder / f".{self._owner}"
        hidden.mkdir(mode=0o700)
        self._lock = os.open(hidden / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        hidden.rename(self._folder / self._owner)

    def lane(self, number: int) -> FileJournal:
        return FileJournal(self._folder / self._owner / str(number), self._boot)

    def close(self) -> None:
        """Delete our folder: after a planned stop nothing is in doubt."""
        if self._lock is not None:
            if not any(True for _ in self.pages(self._owner)):
                self.forget(self._owner)
            os.close(self._lock)
            self._lock = None

    def recall(self, owner: str, ref: str, batch: int) -> JournalEvidence | SenderStillAlive | None:
        """What a sender's journal proves about a batch; None if it is not on this machine.

        Two lanes may have begun a page for the same batch, but only one of them was sending.
        """
        if not (self._folder / owner).is_dir():
            return None
        if not (is_dead := self._is_dead(owner)):
            return None if is_dead is None else SenderStillAlive()
        pages = [page for page in self._read(owner) if page.is_about(ref, batch)]
        if not pages:
            return JournalEvidence()  # no page for this batch: everything announced is in doubt
        return JournalEvidence(
            frozenset().union(*(page.handed for page in pages)),
            {at: outcome for page in pages for at, outcome in page.answered.items()},
            whole=all(page.is_whole and page.boot == self._boot != "" for page in pages)
            and not any((self._folder / owner).glob(f"*{LOST}")),
        )

    def dead_owners(self) -> list[str]:
        """Senders of this machine that ended without closing their journal."""
        if not self._folder.is_dir():
            return []
        owners = sorted(path.name for path in self._folder.iterdir() if path.name[0] != ".")
        return [owner for owner in owners if owner != self._owner and self._is_dead(owner) is True]

    def pages(self, owner: str) -> Iterator[tuple[str, int]]:
        """(ref, batch) of the batches that a sender was sending."""
        for page in self._read(owner):
            yield page.ref, page.batch

    def delete_unfinished_folders(self) -> None:
        """Delete hidden folders of senders that died before their folder appeared."""
        for hidden in self._folder.glob(".*"):
            with contextlib.suppress(FileNotFoundError):
                is_old = hidden.stat().st_mtime < clock.WallClock().now().timestamp() - UNBORN_S
                if is_old and self._is_dead(hidden.name) is True:
                    shutil.rmtree(hidden, ignore_errors=True)

    def forget(self, owner: str) -> None:
        shutil.rmtree(self._folder / owner, ignore_errors=True)

    def _is_dead(self, owner: str) -> bool | None:
        """None if it is another user's journal, which we cannot read: then its lease decides."""
        lock = self._folder / owner / "lock"
        return is_unlocked(lock) if lock.exists() else True  # being deleted

    def _read(self, owner: str) -> list[_Page]:
        folder = self._folder / owner
        paths = sorted(folder.iterdir()) if folder.is_dir() else []
        pages = [_read_page(path) for path in paths if path.name.isdigit()]
        return [page for page in pages if page is not None]


@dataclass
class _Page:
    """What one lane wrote about its batch."""

    ref: str
    batch: int
    boot: str
    is_whole: bool = True
    is_recorded: bool = False  # it says nothing about later announcements
    handed: set[int] = field(default_factory=set)
    answered: dict[int, Outcome] = field(default_factory=dict)

    def is_about(self, ref: str, batch: int) -> bool:
        return (self.ref, self.batch) == (ref, batch) and not self.is_recorded


def _read_page(path: Path) -> _Page | None:
    """Read whole lines only: the last one may be torn. An unreadable page proves nothing."""
    try:
        head, *lines = path.read_bytes().split(b"\n")[:-1] or [b""]
        first = _line.decode(head)
    except (OSError, ValueError, msgspec.DecodeError):
        return None  # empty, ended meanwhile, or damaged
    if not isinstance(first, _Batch):
        return None
    page = _Page(first.ref, first.batch, first.boot)
    for line in lines:
        try:
            _note(page, _line.decode(line))
        except (ValueError, msgspec.DecodeError):
            page.is_whole = False
    return page


def _note(page: _Page, line: _Line) -> None:
    match line:
        case _Handed(positions=positions):
            page.handed.update(positions)
        case _Returned(positions=positions):
            page.handed.difference_update(positions)
        case _Answered(position=position, outcome=outcome):
            page.answered[position] = outcome
        case _Recorded():
            page.is_recorded = True
        case _Batch():
            page.is_whole = False
