"""Every sentence for people is a text: written out in place, by name, and never read too early.

What a module raises or puts into a form is read by somebody, unless its kind is listed here as one
for programmers. A literal there is a sentence that nobody can translate.
"""

from __future__ import annotations

import ast
import string
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import syntax

SOURCE = Path(__file__).parents[1] / "src" / "postroom"
PACKAGES = ("actions", "domain", "flow", "mail", "migration", "records", "web")
MAKERS = {"_": 1, "gettext": 1, "ngettext": 2, "pgettext": 2}  # arguments that are written out

# Who reads these is a programmer, in a log or a traceback.
FOR_PROGRAMMERS = {
    "BadItem",  # a work item that none of ours wrote: it is buried, and its name logged
    "Conflict",  # pages and commands say what happened in words of their own
    "FormParserError",  # caught where it is raised from
    "Unreadable",  # a row of another version: logged, and pages say “try again”
    "OtherFormat",
    "ValueError",  # a mistake of the caller
}
# What a terminal alone shows, where everything is English.
ON_A_TERMINAL = {
    "migration/migrate.py",  # “postroom storage migrate”, before anybody opens a page
    "migration/table_writer.py",  # the same
}
# Not raised alone, but made and handed on; the argument that people read.
HANDED_ON = {"Refused": 1, "_wrong": 1, "Mistake": 1, "BadRow": 2}
IN_A_FORM = {"mistake", "mistakes"}


def complaints(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Raise(exc=ast.Call() as error):
                yield from about_error(error, 0)
            case ast.Call(func=ast.Name(id=name)) if name in HANDED_ON:
                yield from about_error(node, HANDED_ON[name])
            case ast.Call(func=ast.Name(id=name)) if name in MAKERS and is_imported(tree, name):
                yield from about_text(node, name)
            case ast.Assign(targets=[target], value=value) if is_of_a_form(target):
                yield from about_value(node, value)
            case ast.keyword(arg="mistake", value=value):
                yield from about_value(value, value)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield from about_names(node)
    yield from about_import(tree)


def about_error(error: ast.Call, at: int) -> Iterator[str]:
    name = getattr(error.func, "id", "")
    if name in FOR_PROGRAMMERS or len(error.args) <= (at := HANDED_ON.get(name, at)):
        return
    if is_sentence(error.args[at]):
        yield f"line {error.lineno}: {name} with a sentence that is no text"


def about_value(node: ast.stmt | ast.expr, value: ast.expr) -> Iterator[str]:
    if is_sentence(value):
        yield f"line {node.lineno}: a form with a sentence that is no text"


def about_text(call: ast.Call, name: str) -> Iterator[str]:
    """Tools find a text by its literal, and its values by their names."""
    literals = call.args[: MAKERS[name]]
    if not all(isinstance(each, ast.Constant) for each in literals):
        yield f"line {call.lineno}: a text that is not written out"
        return
    if any(keyword.arg is None for keyword in call.keywords):
        return
    values = {keyword.arg for keyword in call.keywords}
    messages = literals[1:] if name == "pgettext" else literals
    for message in messages if values or name == "ngettext" else ():
        assert isinstance(message, ast.Constant)
        parts = string.Formatter().parse(str(message.value))
        found = {field for _text, field, _spec, _kind in parts} - {None, "count"}
        if found != values - {"count"}:
            yield f"line {call.lineno}: places {found} and values {values}"


def about_names(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    """`for _ in …` would hide the maker of texts in the same function."""
    names = [each for each in ast.walk(function) if isinstance(each, ast.Name) and each.id == "_"]
    inner = {
        id(each)
        for part in ast.walk(function)
        if isinstance(part, ast.comprehension)
        for each in ast.walk(part.target)
    }
    hides = any(isinstance(each.ctx, ast.Store) and id(each) not in inner for each in names)
    hides |= any(argument.arg == "_" for argument in function.args.args)
    if hides and any(isinstance(each.ctx, ast.Load) for each in names):
        yield f"line {function.lineno}: {function.name} hides _"


def about_import(tree: ast.Module) -> Iterator[str]:
    """What is read when a module is imported is read once, by nobody."""
    is_at_once = any(
        isinstance(node, ast.ImportFrom)
        and node.module == "postroom.web.templating"
        and any(alias.asname == "_" or alias.name == "gettext" for alias in node.names)
        for node in tree.body
    )
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        for node in ast.walk(statement):
            match node:
                case ast.Call(func=ast.Name(id="_" | "gettext")) if is_at_once:
                    yield f"line {node.lineno}: a text that is read when the module is imported"
                case ast.Call(func=ast.Name(id="str"), args=[ast.Call(func=ast.Name(id="_"))]):
                    yield f"line {node.lineno}: a text that is read when the module is imported"


def is_imported(tree: ast.Module, name: str) -> bool:
    return any(
        name in (alias.asname or alias.name for alias in node.names)
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
    )


def is_of_a_form(target: ast.expr) -> bool:
    if isinstance(target, ast.Subscript):
        target = target.value
    return isinstance(target, ast.Attribute) and target.attr in IN_A_FORM


def is_sentence(value: ast.expr) -> bool:
    """A literal with letters, put together or not."""
    match value:
        case ast.Constant(value=str(text)):
            return any(letter.isalpha() for letter in text)
        case ast.JoinedStr(values=parts):
            return any(isinstance(part, ast.Constant) and is_sentence(part) for part in parts)
        case ast.BinOp(left=left, right=right):
            return is_sentence(left) or is_sentence(right)
        case ast.IfExp(body=body, orelse=other):
            return is_sentence(body) or is_sentence(other)
    return False


def untranslatable(source: Path) -> dict[str, list[str]]:
    """Complaints by module."""
    found = {
        str(path.relative_to(source)): list(
            complaints(syntax.parse(path.read_text(encoding="utf-8")))
        )
        for package in PACKAGES
        for path in sorted((source / package).rglob("*.py"))
    }
    return {path: told for path, told in found.items() if told}


def test_every_sentence_for_people_is_a_text() -> None:
    found = untranslatable(SOURCE)
    told = [f"{path} {each}" for path in found.keys() - ON_A_TERMINAL for each in found[path]]
    assert not told, "\n".join(sorted(told))
    assert not ON_A_TERMINAL - found.keys(), "an exception that is no longer needed"


# --- The check can fail -----------------------------------------------------------------------

LAZY = "from postroom.domain.texts import _, ngettext\n"
AT_ONCE = "from postroom.web.templating import gettext as _\n"
BAD = [
    ('raise BadInput("This is too long.")', "BadInput with a sentence"),
    ('raise BadInput(f"{name} is too long.")', "BadInput with a sentence"),
    ('raise NewError("a" + name)', "NewError with a sentence"),
    ('raise NewError("yes" if name else "no")', "NewError with a sentence"),
    ('x = Refused(status, "Send less.")', "Refused with a sentence"),
    ('form.mistake = "Too long."', "a form with a sentence"),
    ('form.mistakes["name"] = f"Not {name}."', "a form with a sentence"),
    ('Form(mistake="Too long.")', "a form with a sentence"),
    (LAZY + "raise BadInput(_(f'{name} is too long.'))", "not written out"),
    (LAZY + "raise BadInput(_('{name} is too long.', limit=3))", "places"),
    (LAZY + "ngettext('{count} row', '{number} rows', 3)", "places"),
    (LAZY + "def f(x):\n    _, y = x\n    return _('Yes.')", "hides _"),
    (LAZY + "def f(_):\n    return _('Yes.')", "hides _"),
    (LAZY + "YES = str(_('Yes.'))", "when the module is imported"),
    (AT_ONCE + "YES = {1: _('Yes.')}", "when the module is imported"),
]


@pytest.mark.parametrize(("text", "complaint"), BAD)
def test_the_check_finds_a_sentence_that_is_no_text(text: str, complaint: str) -> None:
    found = list(complaints(syntax.parse(text)))
    assert any(complaint in each for each in found), found


GOOD = [
    'raise Conflict("the row has changed")',
    "raise BadInput(str(error))",
    'raise Refused(status, "")',
    LAZY + "raise BadInput(_('{name} is too long.', name=name))",
    LAZY + "ngettext('{count} row', '{count} rows', 3)",
    LAZY + "YES = _('Yes.')\ndef f():\n    return str(_('Yes.'))",
    LAZY + "def f(x):\n    return [_('Yes.') for _each in x] + [y for _, y in x]",
    AT_ONCE + "def f():\n    return _('Yes.')",
    "for _ in range(3):\n    pass",
]


@pytest.mark.parametrize("text", GOOD)
def test_the_check_lets_a_text_pass(text: str) -> None:
    assert list(complaints(syntax.parse(text))) == []
