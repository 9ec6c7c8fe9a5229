"""The house rules of size, naming and habit, each one a small function over one module."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests import syntax

ROOT = Path(__file__).parents[1]

MODULE_LINES_MAX = 500
FUNCTION_LINES_MAX = 60
LINE_CHARS_MAX = 100
NESTING_MAX = 3

NAMES_THAT_SAY_NOTHING = {"utils", "helpers", "common", "manager", "base", "core", "misc"}
MAY_PRINT = ("src/postroom/cli.py", "src/postroom/cli/")

# Put together here, so that this file passes its own rules.
LATER_WORDS = ["TO" + "DO", "FIX" + "ME"]
LEFT_FOR_LATER = re.compile(rf"\b({'|'.join(LATER_WORDS)})\b")
REGISTRY_HOSTS = [
    f"{name}.{top}"
    for name, top in [
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("npmjs", "org"),
        ("npmjs", "com"),
        ("yarnpkg", "com"),
    ]
]

# "path: rule" → why it may. An entry that is no longer needed fails the test as well.
EXCEPTIONS: dict[str, str] = {
    "src/postroom/settings.py: module is short": "the list of all settings, in one place",
}


@dataclass(frozen=True)
class Module:
    path: str  # from the project's root, with slashes
    text: str
    tree: ast.Module

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2].removesuffix(".py")

    @property
    def is_source(self) -> bool:
        return self.path.startswith(("src/", "tools/"))


Rule = Callable[[Module], Iterator[str]]
Function = ast.FunctionDef | ast.AsyncFunctionDef


# --- Size -------------------------------------------------------------------------------------


def module_is_short(module: Module) -> Iterator[str]:
    lines = len(module.text.splitlines())
    if lines > MODULE_LINES_MAX:
        yield f"{lines} lines"


def functions_are_short(module: Module) -> Iterator[str]:
    for node in ast.walk(module.tree):
        if isinstance(node, Function):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES_MAX:
                yield f"line {node.lineno}: {node.name} has {lines} lines"


def lines_are_short(module: Module) -> Iterator[str]:
    for number, line in enumerate(module.text.splitlines(), 1):
        if len(line) > LINE_CHARS_MAX:
            yield f"line {number}: {len(line)} characters"


NESTS = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.Match)


def nesting_is_shallow(module: Module) -> Iterator[str]:
    def too_deep(node: ast.AST, depth: int) -> Iterator[str]:
        for child in ast.iter_child_nodes(node):
            inside = depth + 1 if isinstance(child, NESTS) and not is_elif(child, node) else depth
            if isinstance(child, Function | ast.Lambda | ast.ClassDef):
                inside = 0
            if inside > NESTING_MAX and inside > depth:
                yield f"line {getattr(child, 'lineno', '?')}: nested {inside} deep"
            yield from too_deep(child, inside)

    yield from too_deep(module.tree, 0)


def is_elif(child: ast.AST, parent: ast.AST) -> bool:
    return isinstance(child, ast.If) and isinstance(parent, ast.If) and parent.orelse == [child]


# --- Names and words --------------------------------------------------------------------------


def name_says_something(module: Module) -> Iterator[str]:
    for part in module.path.removesuffix(".py").split("/"):
        if part in NAMES_THAT_SAY_NOTHING:
            yield f"{part} is a name for anything"


def has_a_docstring(module: Module) -> Iterator[str]:
    if module.is_source and not ast.get_docstring(module.tree):
        yield "no docstring"


def nothing_left_for_later(module: Module) -> Iterator[str]:
    for number, line in enumerate(module.text.splitlines(), 1):
        if found := LEFT_FOR_LATER.search(line):
            yield f"line {number}: {found[0]}"


# --- Habits -----------------------------------------------------------------------------------


def imports_are_absolute(module: Module) -> Iterator[str]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            yield f"line {node.lineno}: relative import"


def only_the_cli_prints(module: Module) -> Iterator[str]:
    if not module.is_source or module.path.startswith(MAY_PRINT):
        return
    for node in ast.walk(module.tree):
        match node:
            case ast.Call(func=ast.Name(id="print")):
                yield f"line {node.lineno}: print()"


def exceptions_are_not_swallowed(module: Module) -> Iterator[str]:
    for node in ast.walk(module.tree):
        match node:
            case ast.ExceptHandler(type=None):
                yield f"line {node.lineno}: bare except"
            case ast.ExceptHandler(
                type=ast.Name(id="Exception" | "BaseException"),
                body=[ast.Pass() | ast.Continue() | ast.Expr(value=ast.Constant())],
            ):
                yield f"line {node.lineno}: every exception swallowed"


def no_sleep_in_tests(module: Module) -> Iterator[str]:
    """A sleep of a literal 0 only lets other tasks run, and is no waiting."""
    if module.is_source:
        return
    sleeps = names_of_sleep(module.tree)
    for node in ast.walk(module.tree):
        match node:
            case ast.Call(args=[ast.Constant(value=0)]):
                continue
            case ast.Call(func=func) if ast.unparse(func) in sleeps:
                yield f"line {node.lineno}: {ast.unparse(func)}()"


def names_of_sleep(tree: ast.Module) -> set[str]:
    """What time.sleep and asyncio.sleep are called in this module."""
    names = set()
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=aliases):
                imported = {a.asname or a.name for a in aliases if a.name in ("time", "asyncio")}
                names |= {f"{name}.sleep" for name in imported}
            case ast.ImportFrom(module="time" | "asyncio", names=aliases):
                names |= {a.asname or a.name for a in aliases if a.name == "sleep"}
    return names


RULES: dict[str, Rule] = {
    "module is short": module_is_short,
    "functions are short": functions_are_short,
    "lines are short": lines_are_short,
    "nesting is shallow": nesting_is_shallow,
    "name says something": name_says_something,
    "has a docstring": has_a_docstring,
    "nothing left for later": nothing_left_for_later,
    "imports are absolute": imports_are_absolute,
    "only the cli prints": only_the_cli_prints,
    "exceptions are not swallowed": exceptions_are_not_swallowed,
    "no sleep in tests": no_sleep_in_tests,
}


# --- Holding the tree against the rules -------------------------------------------------------


def project_files(root: Path) -> Iterator[Path]:
    """Every file that belongs to the project: all but what .gitignore names, and Git itself."""
    listed = (root / ".gitignore").read_text(encoding="utf-8").splitlines()
    ignored = [".git", *(line.strip("/") for line in listed if not line.startswith("#"))]
    for path in sorted(root.iterdir()):
        yield from files_below(path, ignored)


def files_below(path: Path, ignored: list[str]) -> Iterator[Path]:
    if any(fnmatch(path.name, pattern) for pattern in ignored):
        return
    if path.is_dir():
        for child in sorted(path.iterdir()):
            yield from files_below(child, ignored)
    else:
        yield path


def modules(root: Path) -> Iterator[Module]:
    for path in project_files(root):
        if path.suffix == ".py":
            text = path.read_text(encoding="utf-8")
            yield Module(path.relative_to(root).as_posix(), text, syntax.parse(text))


def untidy(root: Path, exceptions: dict[str, str]) -> list[str]:
    """One line for every broken rule, and for every exception that excuses nothing."""
    found: dict[str, list[str]] = {}
    for module in modules(root):
        for rule, complaints in RULES.items():
            found.setdefault(f"{module.path}: {rule}", []).extend(complaints(module))
    broken = [f"{key} ({what})" for key, all_ in found.items() for what in all_]
    excused = [line for line in broken if line.partition(" (")[0] in exceptions]
    idle = [key for key in exceptions if not found.get(key)]
    return [line for line in broken if line not in excused] + [f"{key} (idle)" for key in idle]


def files_that_name(hosts: list[str], root: Path) -> list[str]:
    return [
        f"{path.relative_to(root)}: {host}"
        for path in project_files(root)
        for host in hosts
        if host.encode() in path.read_bytes()
    ]


def test_the_house_is_tidy() -> None:
    found = untidy(ROOT, EXCEPTIONS)
    assert not found, "\n".join(found)


def test_no_file_names_a_package_registry() -> None:
    assert files_that_name(REGISTRY_HOSTS, ROOT) == []


# --- The rules can fail -----------------------------------------------------------------------

DEEP = "for a in b:\n for c in a:\n  while c:\n   if c:\n    pass"
LADDER = "if a:\n pass\nelif b:\n pass\nelif c:\n pass\nelif d:\n pass\nelif e:\n pass"

BAD = [
    ("tests/a.py", "\n" * 501, "module is short"),
    ("tests/a.py", "def f():\n" + " a = 1\n" * 60, "functions are short"),
    ("tests/a.py", "async def f():\n" + " a = 1\n" * 60, "functions are short"),
    ("tests/a.py", "a = '" + "x" * 100 + "'", "lines are short"),
    ("tests/a.py", DEEP, "nesting is shallow"),
    ("src/postroom/utils.py", '"""U."""', "name says something"),
    ("src/postroom/core/a.py", '"""A."""', "name says something"),
    ("src/postroom/a.py", "a = 1", "has a docstring"),
    ("tests/a.py", f"a = 1  # {LATER_WORDS[0]}", "nothing left for later"),
    ("tests/a.py", "from . import b", "imports are absolute"),
    ("src/postroom/a.py", '"""A."""\nprint(1)', "only the cli prints"),
    ("tests/a.py", "try:\n a\nexcept:\n raise", "exceptions are not swallowed"),
    ("tests/a.py", "try:\n a\nexcept Exception:\n pass", "exceptions are not swallowed"),
    ("tests/a.py", "import time\ntime.sleep(1)", "no sleep in tests"),
    ("tests/a.py", "import asyncio as io\nio.sleep(0.1)", "no sleep in tests"),
    ("tests/a.py", "from time import sleep as nap\nnap(1)", "no sleep in tests"),
]


@pytest.mark.parametrize(("path", "text", "rule"), BAD)
def test_a_broken_rule_is_found(tmp_path: Path, path: str, text: str, rule: str) -> None:
    plant(tmp_path, path, text)
    (found,) = untidy(tmp_path, {})
    assert found.startswith(f"{path}: {rule} (")


GOOD = [
    ("tests/a.py", LADDER),
    ("tests/a.py", "import asyncio\nasyncio.sleep(0)"),
    ("tests/a.py", "clock.sleep(5)"),
    ("tests/a.py", "try:\n a\nexcept ValueError:\n pass"),
    ("src/postroom/cli.py", '"""C."""\nprint(1)'),
    (".venv/lib/a.py", "from . import b"),
]


@pytest.mark.parametrize(("path", "text"), GOOD)
def test_what_is_fine_passes(tmp_path: Path, path: str, text: str) -> None:
    plant(tmp_path, path, text)
    assert untidy(tmp_path, {}) == []


def test_an_exception_excuses_its_rule_alone_and_may_not_be_idle(tmp_path: Path) -> None:
    plant(tmp_path, "tests/a.py", "from . import b\nimport time\ntime.sleep(1)")
    allowed = {"tests/a.py: no sleep in tests": "shown here", "tests/b.py: has a docstring": "no"}
    assert untidy(tmp_path, allowed) == [
        "tests/a.py: imports are absolute (line 1: relative import)",
        "tests/b.py: has a docstring (idle)",
    ]


def test_a_registry_host_is_found_in_any_file(tmp_path: Path) -> None:
    plant(tmp_path, "docs/a.md", f"see https://{REGISTRY_HOSTS[0]}/simple")
    assert files_that_name(REGISTRY_HOSTS, tmp_path) == [f"docs/a.md: {REGISTRY_HOSTS[0]}"]


def plant(root: Path, path: str, text: str) -> None:
    (root / ".gitignore").write_text("/.venv/\n", encoding="utf-8")
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text, encoding="utf-8")
