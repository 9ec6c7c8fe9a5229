"""The ack journal: what it tells after a kill, and when it keeps silent."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from postroom import clock
from postroom.domain.delivery import JournalEvidence, SenderStillAlive
from postroom.domain.outcome import Deferred, Outcome, Rejected, Scope, Sent, Unknown, Untried
from postroom.sending.journal import FileJournal, FileJournals

REF, BATCH = "639303300000000000", 7
ROOT = Path(__file__).parents[2]
OUTCOMES: list[Outcome] = [
    Sent("250 ok"),
    Rejected("550 “no”\\", address_fault=False),
    Deferred("451 later", Scope.DOMAIN),
    Unknown("broke"),
    Untried("stopping"),
]


def opened(folder: Path, owner: str) -> FileJournals:
    journals = FileJournals(folder, owner)
    journals.open()
    return journals


@pytest.fixture
def ours(tmp_path: Path) -> Iterator[FileJournals]:
    journals = opened(tmp_path, "sender.9")
    yield journals
    journals.close()


def begun(folder: Path, owner: str = "sender.1") -> tuple[FileJournals, FileJournal]:
    """A sender with a batch in hand."""
    journals = opened(folder, owner)
    page = journals.lane(0)
    page.begin(REF, BATCH)
    return journals, page


def died(journals: FileJournals, *pages: FileJournal) -> None:
    """As the kernel leaves it after a kill: every file closed, nothing tidied up."""
    for page in pages:
        page.close()
    journals.close()


def recall(journals: FileJournals, owner: str = "sender.1", batch: int = BATCH) -> JournalEvidence:
    memory = journals.recall(owner, REF, batch)
    assert isinstance(memory, JournalEvidence)
    return memory


def test_every_hand_over_and_every_answer_is_known_after_a_death(
    ours: FileJournals, tmp_path: Path
) -> None:
    journals, page = begun(tmp_path)
    page.handing_over([0, 1, 2])
    page.handing_over((3, 4, 5))
    for at, outcome in enumerate(OUTCOMES):
        page.answered({at: outcome})
    died(journals, page)
    assert recall(ours) == JournalEvidence(
        frozenset(range(6)), dict(enumerate(OUTCOMES)), whole=True
    )
    assert ours.dead_owners() == ["sender.1"]
    assert list(ours.pages("sender.1")) == [(REF, BATCH)]


KILLED = """
    import os, signal, sys
    from pathlib import Path
    from postroom.domain.outcome import Sent
    from postroom.sending.journal import FileJournals
    journals = FileJournals(Path(sys.argv[1]), "sender.1")
    journals.open()
    page = journals.lane(0)
    page.begin("639303300000000000", 7)
    page.handing_over([0, 1])
    page.answered({0: Sent("250 ok")})
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_server_did_not_take_counts_as_never_handed_over(
    ours: FileJournals, tmp_path: Path
) -> None:
    journals, page = begun(tmp_path)
    page.handing_over([0, 1, 2])
    page.returned([1, 2])
    page.handing_over([2])
    died(journals, page)
    assert recall(ours) == JournalEvidence(frozenset({0, 2}), whole=True)


def test_kill_9_takes_the_lock_away_and_leaves_the_page(ours: FileJournals, tmp_path: Path) -> None:
    command = [sys.executable, "-c", textwrap.dedent(KILLED), str(tmp_path)]
    path = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    killed = subprocess.run(command, env=path, timeout=30, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert recall(ours) == JournalEvidence(frozenset({0, 1}), {0: Sent("250 ok")}, whole=True)


def test_a_sender_that_lives_is_told_by_its_lock(ours: FileJournals, tmp_path: Path) -> None:
    journals, page = begun(tmp_path)
    page.handing_over([0])
    assert ours.recall("sender.1", REF, BATCH) == SenderStillAlive()
    assert ours.dead_owners() == []
    died(journals, page)
    assert ours.dead_owners() == ["sender.1"]


def test_a_sender_of_another_machine_is_unknown_here(ours: FileJournals) -> None:
    assert ours.recall("sender.1", REF, BATCH) is None


@pytest.mark.parametrize("torn_bytes", [1, 5, 20])
def test_a_torn_last_line_is_as_if_it_had_not_been_written(
    ours: FileJournals, tmp_path: Path, torn_bytes: int
) -> None:
    journals, page = begun(tmp_path)
    page.handing_over([0])
    page.answered({0: Sent("250 ok")})
    died(journals, page)
    path = tmp_path / "sender.1" / "0"
    path.write_bytes(path.read_bytes()[:-torn_bytes])
    assert recall(ours) == JournalEvidence(frozenset({0}), {}, whole=True)


@pytest.mark.parametrize("lines", [0, 1, 2, 3])
@pytest.mark.parametrize("torn_bytes", [0, 7])
def test_of_answers_written_together_those_before_the_tear_count(
    ours: FileJournals, tmp_path: Path, lines: int, torn_bytes: int
) -> None:
    """A kill may cut a write short: the rest is in doubt, and nothing more than that."""
    journals, page = begun(tmp_path)
    page.handing_over([0, 1, 2])
    path = tmp_path / "sender.1" / "0"
    before = len(path.read_bytes())
    page.answered({at: Sent(f"250 {at}") for at in range(3)})
    died(journals, page)
    whole = path.read_bytes()
    kept = b"".join(whole[before:].splitlines(keepends=True)[:lines])
    path.write_bytes(whole[:before] + kept + whole[before + len(kept) :][:torn_bytes])
    answered: dict[int, Outcome] = {at: Sent(f"250 {at}") for at in range(lines)}
    assert recall(ours) == JournalEvidence(frozenset({0, 1, 2}), answered, whole=True)


def test_the_answers_of_one_read_are_one_write(
    ours: FileJournals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journals, page = begun(tmp_path)
    page.handing_over([0, 1, 2])
    written: list[bytes] = []
    write = os.write

    def noted(file: int, data: bytes) -> int:
        written.append(data)
        return write(file, data)

    monkeypatch.setattr(os, "write", noted)
    page.answered({at: Sent(f"250 {at}") for at in range(3)})
    monkeypatch.undo()
    died(journals, page)
    assert [data.count(b"\n") for data in written] == [3]
    assert recall(ours).answered.keys() == {0, 1, 2}


@pytest.mark.parametrize(
    "spoilt", [b"\0" * 300, b"\0" * 300 + b"\n", b"{}\n", b"no json\n", b"\xff\xfe\n"]
)
def test_a_page_that_a_power_cut_spoilt_breaks_nobody_and_proves_little(
    ours: FileJournals, tmp_path: Path, spoilt: bytes
) -> None:
    journals, page = begun(tmp_path)
    page.handing_over([0])
    died(journals, page)
    path = tmp_path / "sender.1" / "0"
    path.write_bytes(path.read_bytes() + spoilt + b'{"type":"handed","positions":[1]}\n')
    memory = recall(ours)
    assert not memory.whole
    assert 0 in memory.handed
    path.write_bytes(spoilt)
    assert recall(ours) == JournalEvidence()
    assert list(ours.pages("sender.1")) == []


def test_another_boot_proves_what_it_wrote_and_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journals, page = begun(tmp_path)
    page.handing_over([0])
    page.answered({0: Sent("250 ok")})
    died(journals, page)
    other_boot = tmp_path / "boot_id"
    other_boot.write_text("another boot\n")
    monkeypatch.setattr(clock, "_BOOT_ID", other_boot)
    ours = opened(tmp_path, "sender.9")
    assert recall(ours) == JournalEvidence(frozenset({0}), {0: Sent("250 ok")}, whole=False)
    ours.close()


def test_without_a_boot_id_nothing_is_taken_for_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clock, "_BOOT_ID", tmp_path / "no such file")
    journals, page = begun(tmp_path)
    died(journals, page)
    ours = opened(tmp_path, "sender.9")
    assert not recall(ours).whole
    ours.close()


def test_a_batch_without_a_page_is_in_doubt_as_a_whole(ours: FileJournals, tmp_path: Path) -> None:
    journals, page = begun(tmp_path)
    page.handing_over([0])
    died(journals, page)
    assert recall(ours, batch=BATCH + 1) == JournalEvidence()


def full_disk(*_: object) -> int:
    raise OSError(errno.ENOSPC, "No space left on device")


def half_a_line(_file: int, content: bytes) -> int:
    return len(content) // 2


@pytest.mark.parametrize("write", [full_disk, half_a_line])
def test_a_page_that_cannot_be_written_is_set_aside(
    ours: FileJournals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: object
) -> None:
    journals, page = begun(tmp_path)
    page.handing_over([0])
    with monkeypatch.context() as full:
        full.setattr(os, "write", write)
        page.answered({0: Sent("250 ok")})
    page.handing_over([1])  # goes on without a page: no page, no claim
    assert not (tmp_path / "sender.1" / "0").exists()
    page.begin(REF, BATCH + 1)  # there is room again
    died(journals, page)
    assert recall(ours) == JournalEvidence()
    assert recall(ours, batch=BATCH + 1).whole


def test_while_a_page_is_lost_no_other_of_its_sender_is_the_whole_truth(
    ours: FileJournals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lane that only looked at the batch has a blank page; the one that sent has none."""
    journals, sending = begun(tmp_path)
    looking = journals.lane(1)
    looking.begin(REF, BATCH)
    with monkeypatch.context() as full:
        full.setattr(os, "write", full_disk)
        sending.handing_over([0])
    died(journals, sending, looking)
    assert recall(ours) == JournalEvidence(whole=False)


def test_a_recorded_page_tells_that_the_item_is_in_hand_and_nothing_more(
    ours: FileJournals, tmp_path: Path
) -> None:
    journals, before = begun(tmp_path)
    before.handing_over([0])
    before.answered({0: Deferred("451 4.2.0 later", Scope.ADDRESS)})
    before.recorded()
    after = journals.lane(1)
    after.begin(REF, BATCH)
    after.handing_over([0])
    died(journals, before, after)
    assert recall(ours) == JournalEvidence(frozenset({0}), {}, whole=True)
    assert list(ours.pages("sender.1")) == [(REF, BATCH)] * 2


def test_a_disk_that_is_full_at_the_beginning_leaves_no_page(
    ours: FileJournals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journals = opened(tmp_path, "sender.1")
    page = journals.lane(0)
    with monkeypatch.context() as full:
        full.setattr(os, "write", full_disk)
        page.begin(REF, BATCH)
    died(journals, page)
    assert list(ours.pages("sender.1")) == []


def test_a_page_is_blank_once_everything_is_recorded(ours: FileJournals, tmp_path: Path) -> None:
    journals, page = begun(tmp_path)
    page.handing_over([0])
    page.end()
    page.begin(REF, BATCH + 1)
    page.handing_over([5])
    died(journals, page)
    assert recall(ours) == JournalEvidence()
    assert recall(ours, batch=BATCH + 1).handed == {5}


def test_every_lane_has_its_own_page(ours: FileJournals, tmp_path: Path) -> None:
    journals = opened(tmp_path, "sender.1")
    pages = [journals.lane(number) for number in range(3)]
    for number, page in enumerate(pages):
        page.begin(REF, number)
        page.handing_over([number])
    died(journals, *pages)
    assert sorted(ours.pages("sender.1")) == [(REF, number) for number in range(3)]
    for number in range(3):
        assert recall(ours, batch=number).handed == {number}


def test_a_planned_stop_leaves_nothing_behind(tmp_path: Path) -> None:
    journals, page = begun(tmp_path)
    page.end()
    died(journals, page)
    assert list(tmp_path.iterdir()) == []


def test_a_stop_with_a_batch_in_hand_keeps_its_page(tmp_path: Path) -> None:
    journals, page = begun(tmp_path)
    died(journals, page)
    assert [path.name for path in tmp_path.iterdir()] == ["sender.1"]


def test_a_forgotten_journal_is_gone(ours: FileJournals, tmp_path: Path) -> None:
    journals, page = begun(tmp_path)
    died(journals, page)
    ours.forget("sender.1")
    assert ours.recall("sender.1", REF, BATCH) is None
    assert ours.dead_owners() == []
    ours.forget("sender.1")  # twice is fine


def test_nobody_takes_himself_for_dead(ours: FileJournals) -> None:
    assert ours.dead_owners() == []
