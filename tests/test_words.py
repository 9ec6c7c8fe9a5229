"""Names have one meaning: classes, packages, and docs/words.md held against the source.

`python -m tests.test_words` writes the table of modules in docs/words.md anew.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import syntax

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "postroom"
WORDS = ROOT / "docs" / "words.md"
TABLE_BEGINS = "<!-- modules: written by `python -m tests.test_words` -->"
TABLE_ENDS = "<!-- end of modules -->"
PREFIX_MAX = 2  # modules of one folder that may share a first word

# A class name that several modules may define, and why.
SHARED_CLASS_NAMES: dict[str, str] = {}
# A first word that more modules may share, and why.
SHARED_PREFIXES: dict[str, str] = {
    "actions/manage": "the verb; each module manages another noun",
}


def trees(source: Path) -> Iterator[tuple[str, ast.Module]]:
    """Every module by its path below the package."""
    for path in sorted(source.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        yield path.relative_to(source).as_posix(), syntax.parse(text)


# --- Classes and packages ---------------------------------------------------------------------


def ambiguous_classes(source: Path) -> list[str]:
    """Class names that more than one module defines."""
    defined: dict[str, list[str]] = {}
    for path, tree in trees(source):
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                defined.setdefault(node.name, []).append(path)
    return [
        f"{name}: {', '.join(paths)}"
        for name, paths in sorted(defined.items())
        if len(paths) > 1 and name not in SHARED_CLASS_NAMES
    ]


def shared_prefixes(source: Path) -> list[str]:
    """Modules of one folder whose names begin alike: they should be a package."""
    found: dict[str, list[str]] = {}
    for path, _ in trees(source):
        folder, _, name = path.removesuffix(".py").rpartition("/")
        prefix, underscore, _ = name.partition("_")
        if underscore and prefix:
            found.setdefault(f"{folder}/{prefix}", []).append(name)
    return [
        f"{prefix}: {', '.join(names)}"
        for prefix, names in sorted(found.items())
        if len(names) > PREFIX_MAX and prefix not in SHARED_PREFIXES
    ]


def test_a_class_name_has_one_meaning() -> None:
    assert ambiguous_classes(SOURCE) == []


def test_modules_with_a_common_prefix_are_a_package() -> None:
    assert shared_prefixes(SOURCE) == []


# --- docs/words.md ----------------------------------------------------------------------------


def nouns_missing(source: Path, words: str) -> list[str]:
    """Public classes of domain/ that the document does not explain.

    Errors are explained in domain/errors.py.
    """
    errors = (source / "domain" / "errors.py").read_text(encoding="utf-8")
    return [
        f"{path}: {node.name}"
        for path, tree in trees(source)
        if path.startswith("domain/")
        for node in tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
        if f"`{node.name}`" not in words and not re.search(rf"\b{node.name}\b", errors)
    ]


def nouns_unknown(source: Path, words: str) -> list[str]:
    """Class names in the table of words that the source does not define."""
    table = words.partition(TABLE_BEGINS)[0]
    defined = {
        node.name for _, tree in trees(source) for node in tree.body if hasattr(node, "name")
    }
    named = re.findall(r"`([A-Z][A-Za-z]+)`", table)
    return sorted({name for name in named if name not in defined})


def module_table(source: Path) -> str:
    """Every module with the first sentence of its docstring."""
    rows = ["| module | what it is |", "|---|---|"]
    for path, tree in trees(source):
        first = (ast.get_docstring(tree) or "").partition("\n\n")[0].replace("\n", " ")
        rows.append(f"| `{path.removesuffix('/__init__.py')}` | {first.replace('|', '/')} |")
    return "\n".join(rows)


def with_module_table(words: str, source: Path) -> str:
    before, _, rest = words.partition(TABLE_BEGINS)
    _, _, after = rest.partition(TABLE_ENDS)
    return f"{before}{TABLE_BEGINS}\n\n{module_table(source)}\n\n{TABLE_ENDS}{after}"


def test_every_noun_of_the_domain_is_explained() -> None:
    words = WORDS.read_text(encoding="utf-8")
    assert nouns_missing(SOURCE, words) == []
    assert nouns_unknown(SOURCE, words) == []


def test_the_table_of_modules_is_current() -> None:
    words = WORDS.read_text(encoding="utf-8")
    assert with_module_table(words, SOURCE) == words, "run: python -m tests.test_words"


# --- The rules can fail -----------------------------------------------------------------------


@pytest.fixture
def package(tmp_path: Path) -> Path:
    (tmp_path / "domain").mkdir()
    (tmp_path / "domain" / "errors.py").write_text('"""BadEntry."""\n')
    (tmp_path / "domain" / "list.py").write_text('"""Lists."""\nclass Entry: ...\n')
    return tmp_path


def test_a_class_name_used_twice_is_found(package: Path) -> None:
    (package / "menu.py").write_text('"""Menus."""\nclass Entry: ...\n')
    assert ambiguous_classes(package) == ["Entry: domain/list.py, menu.py"]


def test_a_third_module_with_a_prefix_is_found(package: Path) -> None:
    for name in ("smtp_reply", "smtp_slice", "smtp_window"):
        (package / f"{name}.py").write_text('"""SMTP."""\n')
    assert shared_prefixes(package) == ["/smtp: smtp_reply, smtp_slice, smtp_window"]


def test_a_noun_without_an_entry_and_an_entry_without_a_noun_are_found(package: Path) -> None:
    assert nouns_missing(package, "| entry (`Entry`) |") == []
    assert nouns_missing(package, "| entry |") == ["domain/list.py: Entry"]
    assert nouns_unknown(package, "`Entry` and `Ghost`") == ["Ghost"]


def test_a_module_missing_from_the_table_is_found(package: Path) -> None:
    words = with_module_table(f"{TABLE_BEGINS}{TABLE_ENDS}", package)
    assert "| `domain/list.py` | Lists. |" in words
    (package / "menu.py").write_text('"""Menus."""\n')
    assert with_module_table(words, package) != words


if __name__ == "__main__":
    WORDS.write_text(with_module_table(WORDS.read_text(encoding="utf-8"), SOURCE), encoding="utf-8")
