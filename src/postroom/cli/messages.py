"""`postroom message …`: create, watch and control messages."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from postroom.actions.attach_files import attach
from postroom.actions.control_message import Control, control
from postroom.actions.import_page import import_file
from postroom.actions.write_body import BodyInput, write_body
from postroom.cli import attachments as attachment_commands
from postroom.cli.attachments import Ref, read_attachment
from postroom.cli.output import (
    KEPT_NOT_SENT,
    AsJson,
    echo_err,
    fields,
    print_json_array,
    readable,
    show,
    write_csv,
)
from postroom.cli.session import act_of, load_settings, with_parts
from postroom.domain.attachment import new_attachments
from postroom.domain.audit import AuditAction, AuditKind
from postroom.domain.due_time import parse_due_time
from postroom.domain.errors import BadInput
from postroom.domain.mailing_list import check_list_name
from postroom.domain.message import (
    BODY_BYTES_MAX,
    SUBJECT_CHARS_MAX,
    BodyKind,
    Message,
    OnDoubt,
    message_data,
)
from postroom.flow import report
from postroom.flow.compose import Draft, compose, discard, give_time
from postroom.records import bodies, feedback, lists, messages
from postroom.records.feedback import COUNTED_KINDS, feedback_data
from postroom.records.recipient_outcomes import OUTCOMES, all_outcomes
from postroom.writing.zip_files import ZIP_BYTES_MAX

if TYPE_CHECKING:
    from postroom.wiring import Parts

app = typer.Typer(no_args_is_help=True, help="Messages to a list.")
DOMAINS_SHOWN = 20  # --json has all
attachment_commands.add_to(app)


ToList = Annotated[
    str,
    typer.Option(
        "--list", metavar="LIST", help="The list it is sent to.", callback=check_list_name
    ),
]
Zone = Annotated[str, typer.Option(help="Time zone of TIME, such as Europe/Berlin.")]
BLOCKS_HELP = "The body in blocks, as JSON; see docs/writing.md."
TIME_HELP = "now, 2026-11-20T09:00+01:00, or 2026-11-20 09:00."
TEMPLATE_HELP = "Id or title of a template; without --blocks, the message is a copy of it."


@app.command("create")
@with_parts
async def create(
    parts: Parts,
    list_name: ToList,
    subject: Annotated[str, typer.Option(help="The subject line.")],
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="HTML body, UTF-8.")] = None,
    markdown: Annotated[Path | None, typer.Option(metavar="FILE", help="In Markdown.")] = None,
    mjml: Annotated[Path | None, typer.Option(metavar="FILE", help="In MJML.")] = None,
    blocks: Annotated[Path | None, typer.Option(metavar="FILE", help=BLOCKS_HELP)] = None,
    template: Annotated[str, typer.Option(metavar="NAME", help=TEMPLATE_HELP)] = "",
    inline_styles: Annotated[
        bool, typer.Option("--inline-styles", help="Copy style sheets of HTML into its tags.")
    ] = False,
    text: Annotated[Path | None, typer.Option(metavar="FILE", help="Text body, UTF-8.")] = None,
    preview_text: Annotated[str, typer.Option(help="Shown beside the subject.")] = "",
    language: Annotated[str, typer.Option(help="Such as de; the default is the list's.")] = "",
    at: Annotated[str | None, typer.Option(metavar="TIME", help=TIME_HELP)] = None,
    zone: Zone = "",
    attached: Annotated[
        list[Path] | None,
        typer.Option("--attach", metavar="FILE", help="Attach a file; may be repeated."),
    ] = None,
    on_doubt: Annotated[
        OnDoubt, typer.Option(help="What to do if an email may or may not have been sent.")
    ] = OnDoubt.RESEND,
    as_json: AsJson = False,
) -> None:
    """Create a message. Without --at it stays a draft."""
    act = act_of(parts)
    files = [read_attachment(path) for path in attached or ()]
    new_attachments(files, ())  # or nothing is created
    due_at = None if at is None else parse_due_time(at, zone, act.now)
    body = BodyInput(
        html=read_body(html),
        markdown=read_body(markdown),
        mjml=read_body(mjml),
        template=template,
        inline_styles=inline_styles,
        **read_document(blocks),
    )
    mailing_list = await lists.read(parts.storage.tables, list_name)
    made = await write_body(parts.storage, body, language or mailing_list.language)
    draft = Draft(
        list_name=list_name,
        subject=subject,
        html=made.html,
        text=read_body(text),
        source=made.source,
        preview_text=preview_text,
        language=language,
        due_at=None if files else due_at,
        due_zone=zone,
        on_doubt=on_doubt,
    )
    message = await compose(act, draft)
    if files:  # before it has a time, so that it never goes out without them
        message = (await attach(act, message.ref, files)).value
        if due_at is not None:
            message = await give_time(act, message.ref, due_at, zone=zone)
    _show_created(message, as_json)


@app.command("import")
@with_parts
async def import_page(
    parts: Parts,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A page, or a zip with pictures.")],
    list_name: ToList,
    subject: Annotated[str, typer.Option(help="The default is the title of the page.")] = "",
    page: Annotated[str, typer.Option(metavar="NAME", help="Which page of the zip.")] = "",
    as_json: AsJson = False,
) -> None:
    """Create a draft from an HTML page; pictures in a zip are added to the media library."""
    act = act_of(parts)
    content = _read_file(file, ZIP_BYTES_MAX)
    mailing_list = await lists.read(parts.storage.tables, list_name)
    site_url = load_settings().url
    imported = await import_file(act, content, mailing_list.language, site_url, page)
    draft = Draft(
        list_name=list_name,
        subject=(subject or imported.title or file.name)[:SUBJECT_CHARS_MAX],
        html=imported.content.html,
        source=imported.content.source,
    )
    message = await compose(act, draft)
    await bodies.put_report(parts.storage.blobs, message.ref, imported.report)
    lines = [f"Message {message.ref} is a draft.", *imported.notes]
    show(message_data(message) | {"notes": imported.notes}, as_json, *lines)


@app.command("schedule")
@with_parts
async def schedule(
    parts: Parts,
    ref: Ref,
    at: Annotated[str, typer.Option(metavar="TIME", help="As in “message create”.")],
    zone: Zone = "",
    as_json: AsJson = False,
) -> None:
    """Schedule a draft, or change the time of a scheduled message."""
    act = act_of(parts)
    due_at = parse_due_time(at, zone, act.now)
    _show_created(await give_time(act, ref, due_at, zone=zone), as_json)


@app.command("unschedule")
def unschedule(ref: Ref, as_json: AsJson = False) -> None:
    """Make a scheduled message a draft again."""
    text = f"Message {ref} is a draft again. It will not be sent."
    _control(ref, Control.UNSCHEDULE, as_json, text)


@app.command("delete")
@with_parts
async def delete(parts: Parts, ref: Ref, as_json: AsJson = False) -> None:
    """Delete a draft or a scheduled message, with its bodies."""
    async with act_of(parts).audited(AuditKind.MESSAGE, ref, AuditAction.DELETE):
        await discard(parts.storage, ref)
    show({"ref": ref, "deleted": True}, as_json, f"Message {ref} was deleted.")


@app.command("show")
@with_parts
async def show_message(parts: Parts, ref: Ref, as_json: AsJson = False) -> None:
    """Show a message with its current counts."""
    tables = parts.storage.tables
    message = await report.books_of(tables, await messages.read(tables, ref))
    data = message_data(message)
    skipped = {"test_mode"} if message.books.doubts else {"test_mode", "doubts"}
    shown = {name: value for name, value in data.items() if name not in skipped}
    shown["attachments"] = ", ".join(data["attachments"]) or None
    lines = fields(shown)
    if hold := message.restore_hold:
        lines.append(
            f"It is on hold because it was restored from a backup made {readable(hold.made_at)}. "
            f"Up to {hold.people:,} people may have received it since. Resume it to send it to "
            "everyone not recorded as sent, or cancel it."
        )
    show(data, as_json, *lines, *([KEPT_NOT_SENT] if message.is_test else []))


@app.command("source")
@with_parts
async def show_source(
    parts: Parts,
    ref: Ref,
    rendered: Annotated[
        bool,
        typer.Option("--rendered", help="The HTML that is sent, or the text if there is no HTML."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Print the source of a message: HTML, Markdown, MJML, or the JSON of its blocks."""
    message = await messages.read(parts.storage.tables, ref)
    content = await bodies.load_all(parts.storage.blobs, message)
    written = content.source.text if content.source else content.html
    printed = (content.html if rendered else written) or content.text or ""
    if not as_json:
        typer.echo(printed, nl=not printed.endswith("\n"))
        return
    source: object = written
    if content.source and content.source.kind is BodyKind.BLOCKS:
        source = msgspec.json.decode(content.source.text)
    data = {"ref": ref, "format": message.kind, "source": source}
    show(data | {"html": content.html, "text": content.text}, as_json)


@app.command("all")
@with_parts
async def all_messages(parts: Parts, as_json: AsJson = False) -> None:
    """Show all messages, newest first, with the counts of their last report."""
    found = messages.every_message(parts.storage.tables)
    if as_json:
        await print_json_array(message_data(message) async for message in found)
        return
    is_empty = True
    async for message in found:
        typer.echo(_line(message))
        is_empty = False
    if is_empty:
        echo_err("There are no messages yet. Create one with “postroom message create”.")


@app.command("people")
@with_parts
async def people(
    parts: Parts,
    ref: Ref,
    outcome: Annotated[
        str | None, typer.Option(metavar="OUTCOME", help=f"Only these: {', '.join(OUTCOMES)}.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print the outcome of every recipient as CSV, or as one JSON array."""
    if outcome is not None and outcome not in OUTCOMES:
        raise BadInput(f"“{outcome}” is not an outcome. Use one of {', '.join(OUTCOMES)}.")
    message = await messages.read(parts.storage.tables, ref)
    only = OUTCOMES[outcome] if outcome else None
    found = all_outcomes(parts.storage.tables, message, only)
    if as_json:
        await print_json_array(found)
        return
    rows = ([one.address, one.outcome, one.at, one.words] async for one in found)
    await write_csv(sys.stdout, ["address", "outcome", "at", "words"], rows)


@app.command("feedback")
@with_parts
async def show_feedback(parts: Parts, ref: Ref, as_json: AsJson = False) -> None:
    """Show delivery reports: deliveries, bounces by reason and domain, complaints."""
    tables = parts.storage.tables
    message = await report.books_of(tables, await messages.read(tables, ref))
    data = feedback_data(message, await feedback.find_summary(tables, ref))
    names = [kind.value for kind in COUNTED_KINDS if data[kind.value]]
    lines = fields({name: data[name] for name in ("sent", "failed", *names)})
    for row in data["reasons"]:
        lines.append(f"{row['count']:>9,}  {row['class']:9}  {row['reason']:17}  {row['example']}")
    for row in data["domains"][:DOMAINS_SHOWN]:
        bounced = row["dead"] + row["temporary"] + row["ours"] + row["other"]
        counts = f"{row['delivered']:,} delivered, {bounced:,} bounced, {row['complained']:,} spam"
        lines.append(f"{row['domain']}: {counts}")
    cause = message.self_pause
    if cause and cause.is_too_large:
        lines.append(
            f"Paused automatically, because it is too large for the mail server: {cause.words}."
        )
    elif cause:
        lines.append(
            f"Paused automatically: {cause.refused:,} of {cause.ended:,} emails were refused "
            f"because of the sender or the content. Resume it with “postroom message resume {ref}”."
        )
    show(data, as_json, *lines)


@app.command("pause")
def pause(ref: Ref, as_json: AsJson = False) -> None:
    """Pause a message that is being sent."""
    text = f"Message {ref} is paused. Resume it with “postroom message resume {ref}”."
    _control(ref, Control.PAUSE, as_json, text)


@app.command("resume")
def resume(ref: Ref, as_json: AsJson = False) -> None:
    """Resume a paused message."""
    _control(ref, Control.RESUME, as_json, f"Message {ref} was resumed.")


@app.command("cancel")
def cancel(ref: Ref, as_json: AsJson = False) -> None:
    """Cancel a message for good. Everybody still queued is skipped."""
    text = f"Message {ref} was cancelled. Everybody still queued is skipped."
    _control(ref, Control.CANCEL, as_json, text)


@app.command("retry")
def retry(
    ref: Ref,
    held: Annotated[
        bool, typer.Option("--held", help="Retry the held recipients instead of the failed ones.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Send again to all failed recipients, or with --held to all held ones."""
    action = Control.SEND_HELD_AGAIN if held else Control.RETRY_FAILED
    recipients = "held" if held else "failed"
    _control(
        ref, action, as_json, f"Message {ref} will be sent again to its {recipients} recipients."
    )


@app.command("settle")
def settle(ref: Ref, as_json: AsJson = False) -> None:
    """Count the held recipients as sent, once you know that they got it."""
    text = f"The held recipients of message {ref} now count as sent."
    _control(ref, Control.COUNT_HELD_AS_SENT, as_json, text)


@with_parts
async def _control(parts: Parts, ref: str, action: Control, as_json: bool, text: str) -> None:
    await messages.read(parts.storage.tables, ref)  # or it is not found
    show(message_data(await control(act_of(parts), ref, action)), as_json, text)


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


def read_document(path: Path | None) -> dict[str, Any]:
    """The members of a document of blocks, as in the web service and “message source”."""
    text = read_body(path)
    if text is None:
        return {}
    try:
        document = msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise BadInput(f"{path} is not the JSON of a message in blocks: {error}.") from None
    return {"blocks": document.get("blocks", []), "design": document.get("theme")}


def read_body(path: Path | None) -> str | None:
    if path is None:
        return None
    content = _read_file(path, BODY_BYTES_MAX)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BadInput(f"{path} is not UTF-8 text. Save it as UTF-8.") from None
    if "\0" in text:
        raise BadInput(f"{path} is not text: it contains null characters.")
    return text


def _read_file(path: Path, bytes_max: int) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(bytes_max + 1)
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}.") from error
    if len(content) > bytes_max:
        raise BadInput(f"{path} is larger than {bytes_max // 1024**2} MiB. Shorten it.")
    return content
