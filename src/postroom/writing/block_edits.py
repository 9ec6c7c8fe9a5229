"""Changes to the blocks of a form: add, move, copy, remove, and undo.

They work on plain data as it was typed, valid or not, so that nothing typed is lost. A *shape* is
the order of the blocks without their content; undo goes back to an earlier shape and keeps what was
typed since. An operation is one word and its arguments, the value of a button:

    add:text  add:text:b3  add:text:b5.0   at the end, after a block, at the end of a column
    up:b3  down:b3  copy:b3  remove:b3     within its column
    move:b3:2  move:b3:b5.1.0              to a position, in a column too (drag and drop)
    item-add:b3  item-remove:b3:1  item-up:b3:1      entries of an article list
    columns:b5:3                           the number of columns
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from postroom.domain.block import (
    BLOCKS_MAX,
    COLUMN_BLOCKS_MAX,
    COLUMNS,
    KIND_TITLES,
    Block,
    BlockDocument,
    kind_of,
)
from postroom.domain.errors import BadInput
from postroom.domain.texts import _

RawBlock = dict[str, Any]
RawBlocks = list[RawBlock]
UNDO_MAX = 20
UNDO_BYTES_MAX = 128 * 1024  # travels with the form


class UndoStep(msgspec.Struct, frozen=True):
    """The blocks before an operation: their order, and the content of those it removed.

    After an operation on the whole document, such as another template, also the design.
    """

    shape: list[Any]
    removed: dict[str, RawBlock]
    theme: dict[str, Any] | None = None


def limited_undo(steps: list[UndoStep]) -> list[UndoStep]:
    """The latest ones, as many as a form may carry."""
    kept = steps[-UNDO_MAX:]
    while kept and len(msgspec.json.encode(kept)) > UNDO_BYTES_MAX:
        del kept[0]
    return kept


class BlockEditor:
    """The blocks of one form, and how to undo what was done with them."""

    def __init__(self, blocks: RawBlocks, undo: list[UndoStep] | None = None) -> None:
        self.blocks = blocks
        self.undo = undo or []
        self.touched = ""  # the id of the block to look at next
        self.theme: dict[str, Any] | None = None  # the design that undo brings back, if it does

    def apply(self, operation: str) -> None:
        """Carry out an operation; BadInput if it is not possible."""
        word, _colon, rest = operation.partition(":")
        if word == "undo":
            self._undo()
            return
        action = _ACTIONS.get(word)
        if action is None:
            raise BadInput(_("This button is unknown. Reload the page and try again."))
        before = copy.deepcopy(self.blocks)
        action(self, rest)
        after = {block["id"] for block in each_block(self.blocks)}
        removed = {each["id"]: each for each in each_block(before) if each["id"] not in after}
        self.undo = limited_undo([*self.undo, UndoStep(shape_of(before), removed)])

    def _undo(self) -> None:
        if not self.undo:
            return
        step = self.undo.pop()
        known = {block["id"]: block for block in each_block(self.blocks)} | step.removed
        self.blocks = in_shape(step.shape, known)
        self.touched = "" if step.theme else next(iter(step.removed), "")
        self.theme = step.theme

    # --- Where a block is ---------------------------------------------------------------------

    def _place(self, block_id: str) -> tuple[RawBlocks, int]:
        """The column that a block is in, and its position there."""
        for column in _columns_of(self.blocks):
            for at, block in enumerate(column):
                if block["id"] == block_id:
                    return column, at
        raise BadInput(_("This block no longer exists."))

    def _target(self, text: str) -> tuple[RawBlocks, int | None]:
        """The column and position that “2”, “b5.1” or “b5.1.0” means."""
        parts = text.split(".")
        if text.isdecimal():
            return self.blocks, int(text)
        column, at = self._place(parts[0])
        columns = column[at].get("columns")
        if len(parts) == 1 or columns is None:
            return column, at + 1
        if not parts[1].isdecimal() or int(parts[1]) >= len(columns):
            raise BadInput(_("This block no longer exists."))
        position = int(parts[2]) if len(parts) > 2 and parts[2].isdecimal() else None
        return columns[int(parts[1])], position

    def _insert(self, block: RawBlock, column: RawBlocks, at: int | None) -> None:
        is_inner = column is not self.blocks
        if is_inner and block["kind"] == "columns":
            raise BadInput(_("A column cannot contain columns."))
        if is_inner and len(column) >= COLUMN_BLOCKS_MAX:
            raise BadInput(_("A column has at most {limit} blocks.", limit=COLUMN_BLOCKS_MAX))
        if sum(1 for _each in each_block(self.blocks)) >= BLOCKS_MAX:
            raise BadInput(_("A message has at most {limit} blocks.", limit=BLOCKS_MAX))
        column.insert(len(column) if at is None else at, block)
        self.touched = block["id"]

    def new_id(self) -> str:
        taken = {block["id"] for block in each_block(self.blocks)}
        taken |= {each for step in self.undo for each in step.removed}
        return next(f"b{n}" for n in range(1, 100 * BLOCKS_MAX) if f"b{n}" not in taken)

    # --- Operations ---------------------------------------------------------------------------

    def _add(self, rest: str) -> None:
        kind, _colon, where = rest.partition(":")
        if kind not in KIND_TITLES:
            raise BadInput(_("There is no such kind of block."))
        column, at = self._target(where) if where else (self.blocks, None)
        self._insert(fresh_block(kind, self.new_id()), column, at)

    def _move_by(self, block_id: str, step: int) -> None:
        column, at = self._place(block_id)
        to = max(0, min(len(column) - 1, at + step))
        column.insert(to, column.pop(at))
        self.touched = block_id

    def _move(self, rest: str) -> None:
        block_id, _colon, where = rest.partition(":")
        column, at = self._place(block_id)
        block = column.pop(at)
        target, to = self._target(where)
        self._insert(block, target, to)

    def _copy(self, block_id: str) -> None:
        column, at = self._place(block_id)
        twin = copy.deepcopy(column[at])
        for block in each_block([twin]):
            block["id"] = ""
        self._insert(twin, column, at + 1)
        for block in each_block([twin]):
            block["id"] = self.new_id()
        self.touched = twin["id"]

    def _remove(self, block_id: str) -> None:
        column, at = self._place(block_id)
        del column[at]
        nearest = column[min(at, len(column) - 1)] if column else None
        self.touched = nearest["id"] if nearest else ""

    def _change_item(self, rest: str, change: Callable[[list[Any], int], None]) -> None:
        block_id, _colon, number = rest.partition(":")
        column, at = self._place(block_id)
        items = column[at].setdefault("articles", [])
        position = int(number) if number.isdecimal() else len(items)
        if position <= len(items):
            change(items, position)
        self.touched = block_id

    def _item_add(self, rest: str) -> None:
        self._change_item(rest, lambda items, at: items.insert(at, {}))

    def _item_remove(self, rest: str) -> None:
        self._change_item(rest, lambda items, at: items.__delitem__(slice(at, at + 1)))

    def _item_up(self, rest: str) -> None:
        def up(items: list[Any], at: int) -> None:
            if 0 < at < len(items):
                items.insert(at - 1, items.pop(at))

        self._change_item(rest, up)

    def _columns(self, rest: str) -> None:
        block_id, _colon, number = rest.partition(":")
        column, at = self._place(block_id)
        columns = column[at].get("columns")
        if columns is None or number not in map(str, COLUMNS):
            raise BadInput(_("Choose two or three columns."))
        while len(columns) < int(number):
            columns.append([])
        while len(columns) > int(number):
            last = columns.pop()
            columns[-1] += last
        self.touched = block_id


_ACTIONS: dict[str, Callable[[BlockEditor, str], None]] = {
    "add": BlockEditor._add,
    "up": lambda editor, block_id: editor._move_by(block_id, -1),
    "down": lambda editor, block_id: editor._move_by(block_id, 1),
    "copy": BlockEditor._copy,
    "remove": BlockEditor._remove,
    "move": BlockEditor._move,
    "item-add": BlockEditor._item_add,
    "item-remove": BlockEditor._item_remove,
    "item-up": BlockEditor._item_up,
    "columns": BlockEditor._columns,
}


OPERATIONS = frozenset((*_ACTIONS, "undo"))


def each_block(blocks: RawBlocks) -> Iterator[RawBlock]:
    for block in blocks:
        yield block
        for column in block.get("columns", ()):
            yield from column


def _columns_of(blocks: RawBlocks) -> Iterator[RawBlocks]:
    yield blocks
    for block in blocks:
        yield from block.get("columns", ())


def shape_of(blocks: RawBlocks) -> list[Any]:
    """The ids and kinds in their order; columns as lists within lists."""
    return [
        {"id": block["id"], "kind": block["kind"]}
        | ({"columns": list(map(shape_of, block["columns"]))} if "columns" in block else {})
        for block in blocks
    ]


def in_shape(shape: list[Any], known: dict[str, RawBlock], *, is_inner: bool = False) -> RawBlocks:
    """The known blocks in this order; what is not known is left out."""
    blocks: RawBlocks = []
    for entry in shape:
        block = known.get(entry["id"])
        if block is None:
            continue
        if "columns" in entry and not is_inner:
            columns = [in_shape(column, known, is_inner=True) for column in entry["columns"]]
            block = block | {"columns": columns}
        blocks.append(block)
    return blocks


def fresh_block(kind: str, block_id: str) -> RawBlock:
    """A new block with what a person would otherwise type first."""
    block: RawBlock = {"id": block_id, "kind": kind}
    if kind == "columns":
        block["columns"] = [[], []]
    if kind == "articles":
        block["articles"] = [{}]
    return block


def raw_blocks(document: BlockDocument) -> RawBlocks:
    """The blocks as plain data, without the values that are defaults."""
    blocks: RawBlocks = msgspec.to_builtins(document.blocks)
    return blocks


BLOCK_TYPES: dict[str, type[Block]] = {
    str(each.__struct_config__.tag): each for each in Block.__args__
}


def default_values(kind: str) -> dict[str, Any]:
    """All fields of a kind with their defaults, as plain data."""
    empty = BLOCK_TYPES[kind]()
    assert kind_of(empty) == kind
    values = msgspec.structs.asdict(empty)
    return {name: msgspec.to_builtins(value) for name, value in values.items()}
