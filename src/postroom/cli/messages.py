"""`postroom message …`: create, watch and control messages."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from postroom.actions.control_message import Control, control
from postroom.cli.output import (
    KEPT_NOT_SENT,
    AsJson,
    csv_file,
    echo_err,
    fields,
    print_json_array,
    readable,
    show,
    write_csv,
)
from postroom.cli.session import act_of, read_message, work
from postroom.domain.due_time import parse_due_time
from postroom.domain.errors import BadInput
from postroom.domain.mailing_list import check_list_name
from postroom.domain.message import BODY_BYTES_MAX, Message, OnDoubt, message_data
from postroom.flow import report
from postroom.flow.compose import Draft, compose, discard, give_time
from postroom.records import messages
from postroom.records.recipient_outcomes import OUTCOMES, all_outcomes

if TYPE_CHECKING:
    from postroom.wiring import Parts

app = typer.Typer(no_args_is_help=True, help="Messages to a list.")
Ref = Annotated[str, typer.Argument(metavar="REF")]


@app.command("create")
def create(
    list_name: Annotated[str, typer.Option("--list", metavar="LIST", help="Who gets it.")],
    subject: Annotated[str, typer.Option(help="The subject line.")],
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="HTML body, UTF-8.")] = None,
    text: Annotated[Path | None, typer.Option(metavar="FILE", help="Text body, UTF-8.")] = None,
    at: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="now, 2026-11-20T09:00+01:00, or 2026-11-20 09:00."),
    ] = None,
    zone: Annotated[str, typer.Option(help="Time zone of TIME, such as Europe/Berlin.")] = "",
    on_doubt: Annotated[
        OnDoubt, typer.Option(help="If an email may or may not have been sent.")
    ] = OnDoubt.RESEND,
    as_json: AsJson = False,
) -> None:
    """Create a message. Without --at it stays a draft."""
    check_list_name(list_name)
    bodies = {"html": _read_body(html), "text": _read_body(text)}

    async def job(parts: Parts) -> Message:
        act = act_of(parts)
        due_at = None if at is None else parse_due_time(at, zone, act.now)
        draft = Draft(
            list_name=list_name,
            subject=subject,
            due_at=due_at,
            due_zone=zone,
            on_doubt=on_doubt,
            **bodies,
        )
        return await compose(act, draft)

    _show_created(work(job), as_json)


@app.command("schedule")
def schedule(
    ref: Ref,
    at: Annotated[str, typer.Option(metavar="TIME", help="As in “message create”.")],
    zone: Annotated[str, typer.Option(help="Time zone of TIME, such as Europe/Berlin.")] = "",
    as_json: AsJson = False,
) -> None:
    """Schedule a draft, or change the time of a scheduled message."""

    async def job(parts: Parts) -> Message:
        await read_message(parts, ref)
        act = act_of(parts)
        return await give_time(act, ref, parse_due_time(at, zone, act.now), zone=zone)

    _show_created(work(job), as_json)


@app.command("unschedule")
def unschedule(ref: Ref, as_json: AsJson = False) -> None:
    """Make a scheduled message a draft again."""
    text = f"Message {ref} is a draft again. It will not be sent."
    _control(ref, Control.UNSCHEDULE, as_json, text)


@app.command("delete")
def delete(ref: Ref, as_json: AsJson = False) -> None:
    """Delete a draft or a scheduled message, with its bodies."""

    async def job(parts: Parts) -> None:
        await read_message(parts, ref)
        await discard(parts.storage, ref)

    work(job)
    show({"ref": ref, "deleted": True}, as_json, f"Message {ref} is deleted.")


@app.command("show")
def show_message(ref: Ref, as_json: AsJson = False) -> None:
    """Show a message with its current counts."""

    async def job(parts: Parts) -> Message:
        return await report.books_of(parts.storage.tables, await read_message(parts, ref))

    message = work(job)
    data = message_data(message)
    skipped = {"test_mode"} if message.books.doubts else {"test_mode", "doubts"}
    lines = fields({name: value for name, value in data.items() if name not in skipped})
    show(data, as_json, *lines, *([KEPT_NOT_SENT] if message.is_test else []))


@app.command("all")
def all_messages(as_json: AsJson = False) -> None:
    """Show all messages, newest first, with the counts of their last report."""

    async def job(parts: Parts) -> int:
        found = messages.every_message(parts.storage.tables)
        if as_json:
            return await print_json_array(message_data(message) async for message in found)
        count = 0
        async for message in found:
            typer.echo(_line(message))
            count += 1
        return count

    if not work(job) and not as_json:
        echo_err("There is no message yet. Create one with “postroom message create”.")


@app.command("people")
def people(
    ref: Ref,
    outcome: Annotated[
        str | None, typer.Option(metavar="OUTCOME", help=f"Only these: {', '.join(OUTCOMES)}.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print the outcome of every recipient as CSV, or as one JSON array."""
    if outcome is not None and outcome not in OUTCOMES:
        raise BadInput(f"“{outcome}” is not an outcome. Use one of {', '.join(OUTCOMES)}.")

    async def job(parts: Parts) -> None:
        message = await read_message(parts, ref)
        only = OUTCOMES[outcome] if outcome else None
        found = all_outcomes(parts.storage.tables, message, only)
        if as_json:
            await print_json_array(found)
            return
        rows = ([one.address, one.outcome, one.at, one.words] async for one in found)
        with csv_file(None) as out:
            await write_csv(out, ["address", "outcome", "at", "words"], rows)

    work(job)


@app.command("pause")
def pause(ref: Ref, as_json: AsJson = False) -> None:
    """Pause a message that is being sent."""
    text = f"Message {ref} is paused. Resume it with “postroom message resume {ref}”."
    _control(ref, Control.PAUSE, as_json, text)


@app.command("resume")
def resume(ref: Ref, as_json: AsJson = False) -> None:
    """Resume a paused message."""
    _control(ref, Control.RESUME, as_json, f"Message {ref} is being sent again.")


@app.command("cancel")
def cancel(ref: Ref, as_json: AsJson = False) -> None:
    """Cancel a message for good. Everybody still queued is skipped."""
    text = f"Message {ref} is cancelled. Everybody still queued is skipped."
    _control(ref, Control.CANCEL, as_json, text)


@app.command("retry")
def retry(
    ref: Ref,
    held: Annotated[
        bool, typer.Option("--held", help="Retry the held recipients, not the failed.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Send again to all failed recipients, or with --held to all held ones."""
    action = Control.SEND_HELD_AGAIN if held else Control.RETRY_FAILED
    recipients = "held" if held else "failed"
    _control(ref, action, as_json, f"Message {ref} is sent again to the {recipients} recipients.")


@app.command("settle")
def settle(ref: Ref, as_json: AsJson = False) -> None:
    """Count the held recipients as sent, once you know that they got it."""
    text = f"The held recipients of message {ref} count as sent."
    _control(ref, Control.COUNT_HELD_AS_SENT, as_json, text)


def _control(ref: str, action: Control, as_json: bool, text: str) -> None:
    async def job(parts: Parts) -> Message:
        await read_message(parts, ref)
        return await control(act_of(parts), ref, action)

    show(message_data(work(job)), as_json, text)


def _line(message: Message) -> str:
    books = message.books
    when = readable(message.due_at) if message.due_at else "no time yet"
    counts = f"{books.sent:,}/{message.audience:,} {'kept' if message.is_test else 'sent'}"
    columns = f"{message.ref}  {message.status:10}  {when:23}  {counts:20}"
    return f"{columns}  {message.list_name}: {message.subject}"


def _show_created(message: Message, as_json: bool) -> None:
    if message.due_at is None:
        lines = [f"Message {message.ref} is a draft. Without --at nothing is sent."]
    else:
        lines = [
            f"Message {message.ref} to {message.list_name} is due at {readable(message.due_at)}.",
            f"Watch it with “postroom message show {message.ref}”.",
        ]
    show(message_data(message), as_json, *lines)


def _read_body(path: Path | None) -> str | None:
    if path is None:
        return None
    try:
        with path.open("rb") as file:
            content = file.read(BODY_BYTES_MAX + 1)
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}.") from error
    if len(content) > BODY_BYTES_MAX:
        raise BadInput(f"{path} is larger than {BODY_BYTES_MAX // 1024**2} MiB. Shorten it.")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BadInput(f"{path} is not UTF-8 text. Save it as UTF-8.") from None
    if "\0" in text:
        raise BadInput(f"{path} is not text: it contains null characters.")
    return text
