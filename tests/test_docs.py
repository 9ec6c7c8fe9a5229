"""The documents tell the truth: links lead somewhere, settings are current, commands run."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from postroom import settings
from tests import console_blocks
from tests.console_blocks import Differs
from tests.forked_postroom import forked_postroom
from tests.test_tidy import project_files

ROOT = Path(__file__).parents[1]
FENCED = re.compile(r"^(```|~~~).*?^\1\s*$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")
LINK = re.compile(
    r"\[[^\]]*\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)|^\[[^\]]+\]:\s*(\S+)", re.M
)
HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*$", re.MULTILINE)
ELSEWHERE = re.compile(r"^[a-z][a-z0-9+.-]*:", re.IGNORECASE)


def documents(root: Path) -> list[Path]:
    return [path for path in project_files(root) if path.suffix == ".md"]


def with_commands(root: Path) -> list[Path]:
    """The documents that a reader follows by typing."""
    candidates = [root / "README.md", *sorted((root / "docs").glob("*.md"))]
    return [
        path for path in candidates if path.exists() and "```console" in path.read_text("utf-8")
    ]


# --- Links ------------------------------------------------------------------------------------


def dead_links(document: Path) -> Iterator[str]:
    """Relative links whose file, or whose heading in a Markdown file, does not exist."""
    prose = CODE.sub("", FENCED.sub("", document.read_text(encoding="utf-8")))
    for found in LINK.finditer(prose):
        link = found[1] or found[2]
        if not ELSEWHERE.match(link) and not leads_somewhere(document, link):
            yield f"{document.name}: {link}"


def leads_somewhere(document: Path, link: str) -> bool:
    name, _, anchor = link.partition("#")
    target = document.parent / name if name else document
    if not target.exists():
        return False
    return not anchor or target.suffix != ".md" or anchor in anchors(target)


def anchors(document: Path) -> set[str]:
    """The names that a heading gets on the usual hosts: lower case, dashes for blanks."""
    prose = FENCED.sub("", document.read_text(encoding="utf-8"))
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        for heading in HEADING.findall(prose)
    }


def test_every_link_leads_somewhere() -> None:
    found = [link for document in documents(ROOT) for link in dead_links(document)]
    assert not found, "\n".join(found)


def test_a_dead_link_is_found(tmp_path: Path) -> None:
    (tmp_path / "b.md").write_text("# One & two\n", encoding="utf-8")
    document = tmp_path / "a.md"
    document.write_text(
        "[b](b.md) [two](b.md#one--two) [web](https://contoso.edu/x) `[code](no.md)`\n"
        "```\n[fenced](no.md)\n```\n[gone](c.md) [moved](b.md#three) [here](#nowhere)\n"
        '![picture](c.png "title")\n[ref]: docs/d.md\n',
        encoding="utf-8",
    )
    dead = ["c.md", "b.md#three", "#nowhere", "c.png", "docs/d.md"]
    assert list(dead_links(document)) == [f"a.md: {link}" for link in dead]


# --- Settings ---------------------------------------------------------------------------------


def test_the_page_of_settings_is_what_the_settings_say() -> None:
    page = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    assert page == settings.as_markdown()


# --- Commands ---------------------------------------------------------------------------------


def test_the_readme_can_be_followed() -> None:
    assert ROOT / "README.md" in with_commands(ROOT)


@pytest.fixture(scope="module")
def programs() -> Iterator[Path]:
    with forked_postroom() as folder:
        yield folder


@pytest.mark.parametrize("document", with_commands(ROOT), ids=lambda path: path.name)
def test_the_commands_of_a_document_do_what_it_shows(
    document: Path, tmp_path: Path, programs: Path
) -> None:
    console_blocks.run(document.read_text(encoding="utf-8"), tmp_path, programs)


def test_a_forked_program_ends_and_speaks_as_the_real_one(tmp_path: Path, programs: Path) -> None:
    """With an exit code, an error and a usage error that are not 0."""
    for words in (["--version"], ["list", "show", "nothing"], ["list", "shwo"], []):
        ways = [str(programs / "postroom"), str(Path(sys.executable).with_name("postroom"))]
        ends = [
            subprocess.run([way, *words], cwd=tmp_path, capture_output=True, check=False)
            for way in ways
        ]
        forked, real = ((end.returncode, end.stdout, end.stderr) for end in ends)
        assert forked == real


def console(*lines: str) -> str:
    return "\n".join(["```console", *lines, "```", ""])


GOOD = [
    console("$ echo one; echo two", "one", "two"),
    console("$ echo anything"),
    console("$ printf 'no line feed'", "no line feed"),
    console("$ echo sent 17 mails in 3 s", "sent 17 mails in … s"),
    console("$ seq 5", "1", "…", "5"),
    console("$ seq 2", "1", "2", "…"),
    console("$ mkdir d", "$ cd d", "$ export A=b") + console('$ echo "$A $(basename $PWD)"', "b d"),
    console("$ cat >f <<X", "> text", "> X", "$ cat f", "text"),
    console("$ cat", "$ echo 'standard input is empty'"),
    console("$ echo http://127.0.0.1:8025/x", "http://127.0.0.1:8025/x"),
    "<!-- not run: it would fail -->\n" + console("$ false"),
    "```sh\n$ false\n```\n",
]


@pytest.mark.parametrize("text", GOOD)
def test_a_true_document_passes(tmp_path: Path, text: str) -> None:
    console_blocks.run(text, tmp_path)


BAD = [
    (console("$ false"), "exit code 1"),
    (console("$ echo one", "two"), "prints"),
    (console("$ seq 3", "1", "2"), "prints"),
    (console("$ seq 3", "1", "…", "4"), "prints"),
    (console("$ true", "something"), "prints"),
    (console("$ exit 0"), "did not end"),
    (console("output first"), "begins with a command"),
    (console("$ ./dev test"), "not run"),
    ("<!-- not run: -->\n" + console("$ false"), "exit code 1"),
    ("<!-- not run: only the next block -->\n" + console("$ true") + console("$ false"), "code 1"),
]


@pytest.mark.parametrize(("text", "complaint"), BAD)
def test_an_untrue_document_is_found(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(Differs, match=complaint):
        console_blocks.run(text, tmp_path)


SERVER = """#!/bin/sh
trap 'exit {code}' TERM
echo "starting"; echo "listening on $POSTROOM_BIND"
while :; do read -r _; done
"""


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `postroom` found first on PATH, to be given a behaviour by the test."""
    program = tmp_path / "bin" / "postroom"
    program.parent.mkdir()
    program.touch(mode=0o755)
    monkeypatch.setattr("sys.executable", str(program))
    return program


SERVE = console("$ ./dev serve", "…", "listening on 127.0.0.1:8025") + console("$ echo on")


def test_a_server_runs_beside_the_other_commands_and_is_stopped(stand_in: Path) -> None:
    stand_in.write_text(SERVER.format(code=0), encoding="utf-8")
    console_blocks.run(SERVE, stand_in.parent)


@pytest.mark.parametrize(
    ("program", "complaint"),
    [
        (SERVER.format(code=3), "stopped with exit code 3"),
        ("#!/bin/sh\necho starting; exit 0\n", "prints"),
    ],
)
def test_a_server_that_does_not_do_as_shown_is_found(
    stand_in: Path, program: str, complaint: str
) -> None:
    stand_in.write_text(program, encoding="utf-8")
    with pytest.raises(Differs, match=complaint):
        console_blocks.run(SERVE, stand_in.parent)
