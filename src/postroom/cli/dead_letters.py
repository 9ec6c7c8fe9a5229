"""`postroom storage dead-letters`: show work items that were set aside, and deal with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from postroom.actions import handle_dead_letters
from postroom.cli.output import AsJson, Yes, confirm, readable, show
from postroom.cli.session import act_of, with_parts, work
from postroom.domain.dead_letter import EXPLANATIONS
from postroom.domain.errors import BadInput
from postroom.domain.texts import ngettext
from postroom.records import dead_letters
from postroom.records.dead_letters import BuriedItem
from postroom.records.names import DEAD_LETTER_QUEUE

if TYPE_CHECKING:
    from postroom.wiring import Parts

Clear = Annotated[bool, typer.Option("--clear", help="Delete all of them.")]
Requeue = Annotated[
    bool, typer.Option("--requeue", help="Put those that a sender can process back on their queue.")
]

Resend = Annotated[bool, typer.Option("--resend", help="Send the person a new confirmation email.")]


def dead_letters_command(
    id_: Annotated[str, typer.Argument(metavar="[ID]", help="Only this one.")] = "",
    clear: Clear = False,
    requeue: Requeue = False,
    resend: Resend = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Show the oldest 32 dead letters: work items that were set aside, why, and what to do.

    You can safely put an item back: nobody gets an email twice.
    """
    if clear + requeue + resend > 1:
        raise BadInput("Use only one of --clear, --requeue and --resend.")
    if resend and not id_:
        raise BadInput("--resend needs the ID of one dead letter.")
    if id_ and (clear or requeue or resend):
        _handle_one(id_, as_json, clear=clear, resend=resend)
    elif clear:
        _clear(yes, as_json)
    elif requeue:
        _requeue(as_json)
    else:
        found = work(lambda parts: dead_letters.oldest_items(parts.storage.queues))
        found = [each for each in found if id_ in ("", each.id)]
        lines = [line for each in found for line in _lines(each)]
        data = [_data(each) for each in found]
        show(data, as_json, *(lines or ["There are no dead letters."]))


@with_parts
async def _handle_one(parts: Parts, id_: str, as_json: bool, *, clear: bool, resend: bool) -> None:
    act = act_of(parts)
    if clear:
        await handle_dead_letters.clear(act, id_)
        show({"id": id_, "cleared": True}, as_json, f"Dead letter {id_} was deleted.")
    elif resend:
        person = await handle_dead_letters.resend(act, id_)
        text = f"{person.address} will get a confirmation email."
        show({"id": id_, "address": person.address, "asked": True}, as_json, text)
    else:
        await handle_dead_letters.put_back(act, id_)
        show({"id": id_, "requeued": True}, as_json, f"Dead letter {id_} was put back.")


def _clear(yes: bool, as_json: bool) -> None:
    count = work(lambda parts: parts.storage.queues.length(DEAD_LETTER_QUEUE))
    if count:
        question = ngettext(
            "Delete {count} dead letter for good?", "Delete {count:,} dead letters for good?", count
        )
        confirm(str(question), yes)
    cleared = work(lambda parts: handle_dead_letters.clear_all(act_of(parts)))
    text = ngettext(
        "{count} dead letter was deleted.", "{count:,} dead letters were deleted.", cleared
    )
    show({"cleared": cleared}, as_json, text)


def _requeue(as_json: bool) -> None:
    requeued, kept = work(lambda parts: handle_dead_letters.put_back_all(act_of(parts)))
    lines = [ngettext("{count} item was put back.", "{count:,} items were put back.", requeued)]
    if kept:
        text = ngettext(
            "{count} is not a Postroom work item and was not put back. Delete it with --clear.",
            "{count:,} are not Postroom work items and were not put back. Delete them with "
            "--clear.",
            kept,
        )
        lines.append(text)
    show({"requeued": requeued, "kept": kept}, as_json, *lines)


def _data(buried: BuriedItem) -> dict[str, Any]:
    data: dict[str, Any] = msgspec.to_builtins(buried.letter)
    explanation = str(EXPLANATIONS[buried.letter.reason])
    return {"id": buried.id, **data, "explanation": explanation}


def _lines(buried: BuriedItem) -> list[str]:
    letter = buried.letter
    place = f"{letter.queue}  " if letter.queue else ""
    return [
        f"{buried.id}  {readable(letter.at)}  {place}{letter.body}",
        f"  {EXPLANATIONS[letter.reason]}",
    ]
