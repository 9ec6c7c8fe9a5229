"""The text of a block as the rich text editor of the browser takes it: ProseMirror's JSON.

The server parses the Markdown, so that there is one parser; the browser only writes Markdown
(editor/src/markdown.js). What the editor could not write back in the same way has no document
here, and stays a text area.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import msgspec
from markdown_it.token import Token

from postroom.domain.errors import BadInput
from postroom.writing.marks import MarkedText
from postroom.writing.rich_text import parse_text

Node = dict[str, Any]
_BRACES = re.compile(r"\{[{%]")
_CONTROL = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f]")
_MARKS = {"strong_open": "strong", "em_open": "em"}


class NotEditable(Exception):
    """The editor has no way to write this."""


def editor_document(source: str) -> str:
    """The document as JSON; empty if the text can only be edited as Markdown."""
    try:
        marked, tokens = parse_text(source.replace("\r\n", "\n").replace("\r", "\n"))
        blocks = list(_blocks(deque(tokens), marked))
    except (BadInput, NotEditable):
        return ""
    return msgspec.json.encode(_node("doc", blocks or [_node("paragraph", [])])).decode()


def _node(kind: str, content: Sequence[Node], **attributes: Any) -> Node:
    node: Node = {"type": kind}
    if attributes:
        node["attrs"] = attributes
    if content:
        node["content"] = list(content)
    return node


def _blocks(tokens: deque[Token], marked: MarkedText) -> Iterator[Node]:
    """The blocks up to the end of the one that is open."""
    while tokens:
        token = tokens.popleft()
        match token.type:
            case "paragraph_open":
                yield _node("paragraph", _inline(tokens.popleft().children or (), marked))
                tokens.popleft()
            case "bullet_list_open" | "ordered_list_open":
                yield _list(token, tokens, marked)
            case _:
                return


def _list(token: Token, tokens: deque[Token], marked: MarkedText) -> Node:
    items: list[Node] = []
    is_tight = True
    while tokens.popleft().type == "list_item_open":
        if tokens[0].type == "paragraph_open":
            is_tight = tokens[0].hidden
        content = list(_blocks(tokens, marked))
        if not content or content[0]["type"] != "paragraph":
            content.insert(0, _node("paragraph", []))
        if is_tight and not all(map(_may_follow_at_once, content[1:])):
            raise NotEditable
        items.append(_node("list_item", content))
    if token.type == "bullet_list_open":
        return _node("bullet_list", items, tight=is_tight)
    start = token.attrGet("start")
    order = 1 if start is None else int(start)
    return _node("ordered_list", items, order=order, tight=is_tight)


def _may_follow_at_once(block: Node) -> bool:
    """Whether it can be written without an empty line before it."""
    return block["type"] != "paragraph" and bool(block["attrs"].get("order", 1) == 1)


def _inline(tokens: Sequence[Token], marked: MarkedText) -> list[Node]:
    """Text, fields and breaks with their marks."""
    nodes: list[Node] = []
    marks: list[Node] = []
    for at, token in enumerate(tokens):
        match token.type:
            case "text":
                nodes += _words(token.content, marked, marks)
            case "softbreak" | "hardbreak":
                nodes.append({"type": "hard_break"} | _with(marks))
            case "link_open":
                if token.attrGet("title") or tokens[at + 1].type == "link_close":
                    raise NotEditable
                href = marked.restored(str(token.attrGet("href") or ""), is_html=False)
                marks.append({"type": "link", "attrs": {"href": href}})
            case "strong_open" | "em_open":
                marks.append({"type": _MARKS[token.type]})
            case _:
                marks.pop()
    _check(nodes)
    return nodes


def _words(text: str, marked: MarkedText, marks: Sequence[Node]) -> Iterator[Node]:
    extra = _with(marks)
    for at, piece in enumerate(marked.split(text)):
        if at % 2:
            if "\n" in piece:
                raise NotEditable
            yield {"type": "field", "attrs": {"source": piece}} | extra
        elif piece:
            yield {"type": "text", "text": piece} | extra


def _with(marks: Sequence[Node]) -> Node:
    unique = {each["type"]: each for each in marks}  # *a *b* c* is no more italic than *a b c*
    return {"marks": list(unique.values())} if unique else {}


def _check(nodes: Sequence[Node]) -> None:
    """Refuse what only entities can write: spaces at the ends of lines, and braces of a field."""
    words = "".join(node.get("text", " " if node["type"] == "field" else "\n") for node in nodes)
    if not words or _BRACES.search(words) or _CONTROL.search(words.replace("\n", "")):
        raise NotEditable
    is_nested = any({"strong", "em"} <= _mark_names(node) for node in nodes)
    end = {"type": "hard_break"}
    for before, after in pairwise([end, *nodes, end]):
        if _is_lost(before, after, -1) or _is_lost(after, before, 0):
            raise NotEditable
        if _is_ambiguous(before, after, is_nested=is_nested):
            raise NotEditable


def _is_lost(node: Node, beside: Node, at: int) -> bool:
    """Whether a space is at the end of its line, where Markdown leaves it out."""
    if beside["type"] != "hard_break" or node.get("text", "x")[at] not in " \t":
        return False
    return "link" not in _mark_names(node) or "link" in _mark_names(beside)


def _is_ambiguous(before: Node, after: Node, *, is_nested: bool) -> bool:
    """Whether stars between the two could be read in two ways: italic in bold beside a field.

    So could a line break after a tag: the server drops it only if it directly follows the tag.
    """
    if after["type"] == "hard_break":
        source = before.get("attrs", {}).get("source", "")
        return "marks" in before and source.startswith("{%")
    is_field = "field" in (before["type"], after["type"])
    return is_nested and is_field and _mark_names(before) != _mark_names(after)


def _mark_names(node: Node) -> set[str]:
    return {mark["type"] for mark in node.get("marks", ())}
