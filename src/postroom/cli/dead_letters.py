"""`postroom storage dead-letters`: what was set aside and why; clear it, or put it back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from postroom.cli.output import AsJson, Yes, confirm, readable, show
from postroom.cli.session import work
from postroom.domain.dead_letter import EXPLANATIONS, DeadLetter, Reason
from postroom.domain.errors import BadInput
from postroom.domain.texts import ngettext
from postroom.records import dead_letters
from postroom.records.names import DEAD_LETTER_QUEUE

if TYPE_CHECKING:
    from postroom.wiring import Parts

Clear = Annotated[bool, typer.Option("--clear", help="Delete all of them.")]
Requeue = Annotated[
    bool, typer.Option("--requeue", help="Put those that a sender understands back on their queue.")
]


def dead_letters_command(
    clear: Clear = False, requeue: Requeue = False, yes: Yes = False, as_json: AsJson = False
) -> None:
    """Show the oldest 32 dead letters: work items that were set aside, why, and what to do.

    Putting an item back is safe: nobody gets an email twice.
    """
    if clear and requeue:
        raise BadInput("Use either --clear or --requeue.")
    if clear:
        _clear(yes, as_json)
    elif requeue:
        _requeue(as_json)
    else:
        _show(as_json)


def _show(as_json: bool) -> None:
    async def job(parts: Parts) -> list[DeadLetter]:
        return await dead_letters.oldest(parts.storage.queues)

    found = work(job)
    lines = [line for letter in found for line in _lines(letter)]
    show([_data(letter) for letter in found], as_json, *(lines or ["There are no dead letters."]))


def _clear(yes: bool, as_json: bool) -> None:
    async def count(parts: Parts) -> int:
        return await parts.storage.queues.length(DEAD_LETTER_QUEUE)

    async def job(parts: Parts) -> int:
        return await dead_letters.clear(parts.storage.queues)

    letters = work(count)
    if letters:
        question = ngettext(
            "Delete {count} dead letter for good?",
            "Delete {count:,} dead letters for good?",
            letters,
        )
        confirm(str(question), yes)
    cleared = work(job)
    told = ngettext(
        "{count} dead letter was deleted.", "{count:,} dead letters were deleted.", cleared
    )
    show({"cleared": cleared}, as_json, str(told))


def _requeue(as_json: bool) -> None:
    async def job(parts: Parts) -> tuple[int, int]:
        return await dead_letters.put_back(parts.storage.queues)

    back, kept = work(job)
    lines = [
        str(ngettext("{count} item was put back.", "{count:,} items were put back.", back)),
    ]
    if kept:
        told = ngettext(
            "{count} is not a work item of Postroom and stays. Delete it with --clear.",
            "{count:,} are not work items of Postroom and stay. Delete them with --clear.",
            kept,
        )
        lines.append(str(told))
    show({"requeued": back, "kept": kept}, as_json, *lines)


def _data(letter: DeadLetter) -> dict[str, Any]:
    data: dict[str, Any] = msgspec.to_builtins(letter)
    if letter.reason is Reason.UNKNOWN:
        data |= {"at": None, "queue": None}
    return data | {"explanation": str(EXPLANATIONS[letter.reason])}


def _lines(letter: DeadLetter) -> list[str]:
    since = "" if letter.reason is Reason.UNKNOWN else f"{readable(letter.at)}  {letter.queue}  "
    return [f"{since}{letter.body}", f"  {EXPLANATIONS[letter.reason]}"]
