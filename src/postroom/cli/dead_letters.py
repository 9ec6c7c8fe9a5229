"""`postroom storage dead-letters`: show work items that were set aside, delete or requeue them."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import typer

from postroom.cli.output import AsJson, Yes, confirm, readable, show
from postroom.cli.session import work
from postroom.domain.dead_letter import EXPLANATIONS, DeadLetter, Reason
from postroom.domain.errors import BadInput
from postroom.domain.texts import ngettext
from postroom.records import dead_letters
from postroom.records.names import DEAD_LETTER_QUEUE

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
        found = work(lambda parts: dead_letters.oldest(parts.storage.queues))
        lines = [line for letter in found for line in _lines(letter)]
        data = [_data(letter) for letter in found]
        show(data, as_json, *(lines or ["There are no dead letters."]))


def _clear(yes: bool, as_json: bool) -> None:
    count = work(lambda parts: parts.storage.queues.length(DEAD_LETTER_QUEUE))
    if count:
        question = ngettext(
            "Delete {count} dead letter for good?", "Delete {count:,} dead letters for good?", count
        )
        confirm(str(question), yes)
    cleared = work(lambda parts: dead_letters.clear(parts.storage.queues))
    text = ngettext(
        "{count} dead letter was deleted.", "{count:,} dead letters were deleted.", cleared
    )
    show({"cleared": cleared}, as_json, text)


def _requeue(as_json: bool) -> None:
    requeued, kept = work(lambda parts: dead_letters.put_back(parts.storage.queues))
    lines = [ngettext("{count} item was put back.", "{count:,} items were put back.", requeued)]
    if kept:
        text = ngettext(
            "{count} is not a work item of Postroom and stays. Delete it with --clear.",
            "{count:,} are not work items of Postroom and stay. Delete them with --clear.",
            kept,
        )
        lines.append(text)
    show({"requeued": requeued, "kept": kept}, as_json, *lines)


def _data(letter: DeadLetter) -> dict[str, Any]:
    data: dict[str, Any] = msgspec.to_builtins(letter)
    if letter.reason is Reason.UNKNOWN:
        data |= {"at": None, "queue": None}
    return data | {"explanation": str(EXPLANATIONS[letter.reason])}


def _lines(letter: DeadLetter) -> list[str]:
    since = "" if letter.reason is Reason.UNKNOWN else f"{readable(letter.at)}  {letter.queue}  "
    return [f"{since}{letter.body}", f"  {EXPLANATIONS[letter.reason]}"]
