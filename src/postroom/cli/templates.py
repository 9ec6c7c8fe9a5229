"""`postroom template …`: list, show, add and delete templates and snippets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from postroom.actions import manage_templates
from postroom.actions.write_body import new_document
from postroom.cli.messages import read_document
from postroom.cli.output import AsJson, Yes, confirm, show, to_json
from postroom.cli.session import act_of, with_parts
from postroom.domain.errors import BadInput, WrongState
from postroom.domain.message_template import TemplateKind, template_data
from postroom.records import templates
from postroom.writing.ready_made import READY_MADE, ready_made_data

if TYPE_CHECKING:
    from postroom.wiring import Parts

app = typer.Typer(no_args_is_help=True, help="Templates and snippets for new messages.")
Name = Annotated[str, typer.Argument(metavar="NAME", help="Its id or its title.")]


@app.command("list")
@with_parts
async def list_templates(parts: Parts, as_json: AsJson = False) -> None:
    """Show all templates and snippets, those that come with Postroom last."""
    found = [template_data(each) for each in await templates.all_templates(parts.storage.tables)]
    found += [ready_made_data(each) for each in READY_MADE]
    lines = [
        f"{each['id']:25}  {each['kind']:8}  {each['title']}"
        + ("  (ready-made)" if each["ready_made"] else "")
        for each in found
    ]
    show(found, as_json, *lines)


@app.command("show")
@with_parts
async def show_template(parts: Parts, name: Name, as_json: AsJson = False) -> None:
    """Print the JSON of a template, as “template add” and “message create --blocks” read it."""
    template_id = await manage_templates.template_named(parts.storage.tables, name)
    document = await manage_templates.document_of_template(parts.storage, template_id)
    found = await templates.find(parts.storage.tables, template_id)
    data = template_data(found.value) if found else ready_made_data(template_id)
    plain = msgspec.to_builtins(document)
    show(data | plain, as_json, msgspec.json.format(to_json(document), indent=2))


@app.command("add")
@with_parts
async def add(
    parts: Parts,
    title: Annotated[str, typer.Argument(metavar="TITLE", help="What people see in the list.")],
    blocks: Annotated[
        Path | None, typer.Option(metavar="FILE", help="JSON, as “template show” prints it.")
    ] = None,
    source: Annotated[str, typer.Option("--from", metavar="NAME", help="A template to copy.")] = "",
    message: Annotated[str, typer.Option(metavar="REF", help="A message to copy.")] = "",
    snippet: Annotated[
        bool, typer.Option("--snippet", help="A snippet: a few blocks to add to messages.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Add a template of your own, from a file, another template or a message."""
    if sum(map(bool, (blocks, source, message))) > 1:
        raise BadInput("Use one of --blocks, --from and --message.")
    if message:
        document = await manage_templates.document_of_message(parts.storage, message)
    else:
        given = read_document(blocks)
        document = await new_document(
            parts.storage, given.get("blocks"), given.get("design"), source
        )
    kind = TemplateKind.SNIPPET if snippet else TemplateKind.TEMPLATE
    made = await manage_templates.create(act_of(parts), kind, title, document)
    show(template_data(made), as_json, f"The {made.kind} “{made.title}” was added: {made.id}.")


@app.command("delete")
@with_parts
async def delete(parts: Parts, name: Name, yes: Yes = False, as_json: AsJson = False) -> None:
    """Delete a template or a snippet of your own. Messages written with it stay as they are."""
    template_id = await manage_templates.template_named(parts.storage.tables, name)
    if template_id in READY_MADE:
        raise WrongState(f"{template_id} comes with Postroom and cannot be deleted.")
    found = await templates.read(parts.storage.tables, template_id)
    confirm(f"Delete the {found.value.kind} “{found.value.title}”?", yes)
    await manage_templates.delete(act_of(parts), template_id, found.etag)
    text = f"The {found.value.kind} “{found.value.title}” was deleted."
    show({"id": template_id, "deleted": True}, as_json, text)
