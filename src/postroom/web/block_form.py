"""The fields of a form that hold a document of blocks, with script or without.

    shape               the order of the blocks as JSON: [{"id": "b1", "kind": "text"}, …]
    b1-text, b1-align   the fields of a block by its id; a tick that is not set is not sent
    b7-0-title          the fields of an entry of an article list
    theme-link          the fields of the design; theme-logo-src those of the logo
    undo                what “Undo” needs
    op                  the button that was pressed: see writing/block_edits.py

What was typed is kept as it is; `document_of` checks it afterwards.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from postroom.domain.block import (
    ARTICLES_MAX,
    BLOCKS_MAX,
    Article,
    BadBlock,
    document_of,
    encode_document,
    parse_document,
)
from postroom.domain.errors import BadInput
from postroom.domain.message_template import MessageTemplate
from postroom.domain.picture import Picture
from postroom.domain.texts import _
from postroom.domain.theme import Logo, Theme
from postroom.web.forms import Form
from postroom.writing.block_edits import (
    BLOCK_TYPES,
    OPERATIONS,
    BlockEditor,
    RawBlock,
    RawBlocks,
    UndoStep,
    default_values,
    each_block,
    limited_undo,
    raw_blocks,
    shape_of,
)

FIELDS_MAX = 1500  # of a form with blocks: sixty of them, some with twenty articles
ENTRIES_MAX = FIELDS_MAX  # blocks and articles; in a form of ours each has at least one field
NOT_A_NUMBER = -1  # is out of every range, so that the check names the block
_NESTED = ("id", "place", "columns", "articles", "links")
_BLOCK_FIELD = re.compile(r"(?:[a-z][a-z0-9]{0,11}|theme)-")
ARTICLE_FIELDS = Article.__struct_fields__


_INCOMPLETE = _("The form is incomplete. Reload the page and try again.")


def _is_block_field(name: str) -> bool:
    return name in ("shape", "op") or _BLOCK_FIELD.match(name) is not None


class EditedDocument(msgspec.Struct):
    """A document as a form shows it: plain data, valid or not."""

    blocks: RawBlocks
    theme: dict[str, Any]
    undo: list[UndoStep] = []
    touched: str = ""
    mistake: str = ""  # about the last operation

    @property
    def source(self) -> str:
        """As JSON: the stored form if it is valid, else what was typed."""
        raw = {"blocks": self.blocks, "theme": self.theme}
        try:
            return encode_document(document_of(raw))
        except BadBlock:
            return msgspec.json.encode(raw).decode()

    @property
    def shape(self) -> str:
        return msgspec.json.encode(shape_of(self.blocks)).decode()

    @property
    def undo_source(self) -> str:
        return msgspec.json.encode(self.undo).decode() if self.undo else ""

    @property
    def views(self) -> list[dict[str, Any]]:
        """The blocks with every field, for the page."""
        return [_view(block) for block in self.blocks]

    @property
    def theme_view(self) -> dict[str, Any]:
        logo = {**msgspec.structs.asdict(Logo()), **self.theme.get("logo", {})}
        defaults = {**msgspec.structs.asdict(Theme()), "font": "sans"}
        return {**defaults, **self.theme, "logo": logo}

    def apply(self, operation: str) -> None:
        """Carry out a block operation; a sentence in `mistake` if it is not possible."""
        editor = BlockEditor(self.blocks, self.undo)
        try:
            editor.apply(operation)
        except BadInput as error:
            self.mistake = str(error)
        self.blocks, self.undo, self.touched = editor.blocks, editor.undo, editor.touched
        self.theme = editor.theme or self.theme


class PictureChooser(msgspec.Struct, frozen=True):
    """The pictures that one place of the editor may choose from (admin/block_pictures.py)."""

    place: str
    pictures: list[Picture]
    words: str = ""
    next: str | None = None


class BlockEditorView(msgspec.Struct):
    """What the fragments of the block editor need."""

    document: EditedDocument
    path: str  # where its buttons post to
    form: Form
    snippets: list[MessageTemplate] = []
    chooser: PictureChooser | None = None
    is_rtl: bool = False  # lines of the message begin on the right

    @property
    def others(self) -> dict[str, str]:
        """What somebody else wrote meanwhile, by the block; empty if they removed it."""
        if "document" not in self.form.others:
            return {}
        theirs = _texts(edited(self.form.others["document"]).blocks)
        ours = _texts(self.document.blocks)
        return {id_: theirs.get(id_, "") for id_, text in ours.items() if theirs.get(id_) != text}


def _texts(blocks: RawBlocks) -> dict[str, str]:
    """The words of each block that has some."""
    found = {block["id"]: block.get("text", "") for block in each_block(blocks)}
    for block in each_block(blocks):
        for article in block.get("articles", ()):
            found[block["id"]] += f"{article.get('title', '')} {article.get('text', '')} "
    return found


def _view(block: RawBlock) -> dict[str, Any]:
    view = {**default_values(block["kind"]), **block}
    if "columns" in view:
        view["columns"] = [[_view(each) for each in column] for column in view["columns"]]
    if "articles" in view:
        empty = dict.fromkeys(ARTICLE_FIELDS, "")
        view["articles"] = [{**empty, **each} for each in view["articles"]]
    if block["kind"] == "social":
        lines = (f"{each.get('name', '')} {each.get('href', '')}" for each in view["links"])
        view["links"] = "\n".join(line.strip() for line in lines)
    return view


def edited(source: str) -> EditedDocument:
    """A stored document, or JSON of what was typed; an empty one if it is neither."""
    try:
        document = parse_document(source)
        theme: dict[str, Any] = msgspec.to_builtins(document.theme)
        return EditedDocument(raw_blocks(document), theme)
    except BadBlock:
        pass
    try:
        raw = msgspec.json.decode(source)
        blocks, theme = raw["blocks"], raw["theme"]
        is_known = all(each["kind"] in BLOCK_TYPES and each["id"] for each in each_block(blocks))
        if is_known and not _is_too_long(blocks):
            return EditedDocument(blocks, theme)
    except (msgspec.DecodeError, LookupError, TypeError, AttributeError):
        pass
    return EditedDocument([], {})


def gather_blocks(form: Form) -> None:
    """Turn the fields of the blocks into one value, `document`, as it is stored and compared.

    An operation on blocks is carried out; any other is left in the value `done`.
    """
    if "shape" not in form.values:
        form.values["done"] = form.values.pop("op", "")
        return
    try:
        document = posted_document(form.values)
        if form.value("op").partition(":")[0] in OPERATIONS:
            document.apply(form.value("op"))
        if _is_too_long(document.blocks):
            raise BadInput(_INCOMPLETE)
    except BadInput as error:
        form.mistake = str(error)
        document = edited("")
    done = form.value("op")
    form.values = {name: value for name, value in form.values.items() if not _is_block_field(name)}
    form.values["document"] = document.source
    form.values["undo"] = document.undo_source
    form.values["touched"] = document.touched
    form.values["done"] = done
    if document.mistake:
        form.mistakes["document"] = document.mistake


def _is_too_long(blocks: RawBlocks) -> bool:
    """Whether no form of ours can have that many; a page with all of them may take gigabytes."""
    entries = sum(1 + len(block.get("articles", ())) for block in each_block(blocks))
    return entries > ENTRIES_MAX


def undo_steps(form: Form) -> list[UndoStep]:
    """What “Undo” can take back; nothing if the form is not one of ours."""
    try:
        return msgspec.json.decode(form.value("undo") or "[]", type=list[UndoStep])
    except msgspec.DecodeError:
        return []


def make_undoable(form: Form, before: str) -> None:
    """Let “Undo” take back an operation that replaced the document, such as another template."""
    was, now = edited(before), edited(form.value("document"))
    after = {block["id"]: block for block in each_block(now.blocks)}
    changed = {each["id"]: each for each in each_block(was.blocks) if after.get(each["id"]) != each}
    if (was.blocks, was.theme) == (now.blocks, now.theme):
        return
    theme = was.theme if was.theme != now.theme else None
    now.undo = limited_undo([*undo_steps(form), UndoStep(shape_of(was.blocks), changed, theme)])
    form.values["undo"] = now.undo_source


def posted_document(fields: Mapping[str, str]) -> EditedDocument:
    """Read the blocks of a form; BadInput if the form is not one of ours."""
    try:
        shape = msgspec.json.decode(fields.get("shape") or "[]", type=list[dict[str, Any]])
        undo = msgspec.json.decode(fields.get("undo") or "[]", type=list[UndoStep])
        if _is_too_long(shape):
            raise BadInput(_INCOMPLETE)
        blocks = [_posted_block(fields, entry) for entry in shape[: BLOCKS_MAX + 1]]
        for removed in (block for step in undo for block in step.removed.values()):
            default_values(removed["kind"])
    except (msgspec.DecodeError, LookupError, TypeError) as error:
        raise BadInput(_INCOMPLETE) from error
    return EditedDocument(blocks, _posted_theme(fields), undo)


def _posted_block(
    fields: Mapping[str, str], entry: dict[str, Any], *, is_inner: bool = False
) -> RawBlock:
    block_id, kind = str(entry["id"]), str(entry["kind"])
    if is_inner and kind == "columns":
        raise LookupError(kind)
    block: RawBlock = {"id": block_id, "kind": kind}
    if place := fields.get(f"{block_id}-place", ""):
        block["place"] = place
    for name, default in default_values(kind).items():
        if name not in _NESTED:
            block[name] = _typed(fields.get(f"{block_id}-{name}"), default)
    if kind == "columns":
        inner = entry.get("columns", [[], []])
        block["columns"] = [
            [_posted_block(fields, each, is_inner=True) for each in column] for column in inner
        ]
    if kind == "articles":
        block["articles"] = _posted_articles(fields, block_id)
    if kind == "social":
        block["links"] = _posted_links(fields.get(f"{block_id}-links", ""))
    return block


def _typed(text: str | None, default: Any) -> Any:
    if isinstance(default, bool):
        return bool(text)
    if text is None:
        return default
    if isinstance(default, int):
        text = text.strip()
        return int(text) if text.isdecimal() and len(text) < 9 else (NOT_A_NUMBER if text else 0)
    return text.strip() if "\n" not in text else text


def _posted_articles(fields: Mapping[str, str], block_id: str) -> list[dict[str, str]]:
    found: list[dict[str, str]] = []
    for number in range(ARTICLES_MAX + 1):
        if f"{block_id}-{number}-title" not in fields:
            break
        found.append(
            {name: fields.get(f"{block_id}-{number}-{name}", "").strip() for name in ARTICLE_FIELDS}
        )
    return found


def _posted_links(text: str) -> list[dict[str, str]]:
    """One link a line: a name and an address."""
    links = []
    for line in text.splitlines():
        name, _space, href = line.strip().rpartition(" ")
        if line.strip():
            links.append({"name": name.strip(), "href": href})
    return links


def _posted_theme(fields: Mapping[str, str]) -> dict[str, Any]:
    if "theme-background" not in fields:  # the page did not show the design
        return {}
    theme = {
        name: _typed(fields.get(f"theme-{name}"), default)
        for name, default in msgspec.structs.asdict(Theme()).items()
        if name != "logo"
    }
    theme["logo"] = {
        name: _typed(fields.get(f"theme-logo-{name}"), default)
        for name, default in msgspec.structs.asdict(Logo()).items()
    }
    return theme
