"""Messages in blocks, Markdown and MJML on the command line; templates and snippets."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

from tests.component.typed import Postroom
from tests.picture_samples import png

BLOCKS = {
    "blocks": [{"kind": "heading", "text": "Hello {{ name }}"}, {"kind": "text", "text": "*one*"}],
    "theme": {"link": "#000001"},
}


def written(postroom: Postroom, *options: str) -> str:
    common = ("message", "create", "--list", "contoso1", "--subject", "News")
    return str(postroom(*common, *options, "--json").json["ref"])


def test_a_message_is_written_in_blocks_and_its_source_makes_another(contoso1: Postroom) -> None:
    Path("blocks.json").write_text(json.dumps(BLOCKS), encoding="utf-8")
    ref = written(contoso1, "--blocks", "blocks.json", "--language", "de", "--preview-text", "Look")
    source = contoso1("message", "source", ref).out
    Path("again.json").write_text(source, encoding="utf-8")
    again = written(contoso1, "--blocks", "again.json")
    assert contoso1("message", "source", again).out == source
    shown = contoso1("message", "source", ref, "--json").json
    assert (shown["format"], shown["source"]["theme"]) == ("blocks", {"link": "#000001"})
    assert '<html lang="de"' in contoso1("message", "source", ref, "--rendered").out
    assert contoso1("message", "show", ref, "--json").json["preview_text"] == "Look"


def test_a_message_is_written_in_markdown_mjml_or_a_template(contoso1: Postroom) -> None:
    Path("a.md").write_text("Hello *you*", encoding="utf-8")
    Path("a.mjml").write_text(
        "<mjml><mj-body><mj-text>you</mj-text></mj-body></mjml>", encoding="utf-8"
    )
    ref = written(contoso1, "--markdown", "a.md")
    assert contoso1("message", "source", ref).out == "Hello *you*\n"
    assert "<em>you</em>" in contoso1("message", "source", ref, "--rendered").out
    ref = written(contoso1, "--mjml", "a.mjml")
    assert contoso1("message", "source", ref, "--json").json["format"] == "mjml"
    ref = written(contoso1, "--template", "letter")
    assert contoso1("message", "source", ref, "--json").json["source"]["blocks"]
    both = contoso1(
        *("message", "create", "--list", "contoso1", "--subject", "x"),
        *("--markdown", "a.md", "--template", "letter"),
    )
    assert (both.code, both.out) == (1, "")
    assert "Send one body" in both.err


def test_what_is_wrong_with_a_file_of_blocks_is_named(contoso1: Postroom) -> None:
    for content, words in (
        ("x", "is not the JSON"),
        ('{"blocks": [{"kind": "button", "url": ""}]}', "blocks[0]"),
        ('{"blocks": [{"kind": "button", "href": "x"}]}', "Block 1 (Button)"),
    ):
        Path("bad.json").write_text(content, encoding="utf-8")
        told = contoso1(
            *("message", "create", "--list", "contoso1", "--subject", "x", "--blocks", "bad.json")
        )
        assert (told.code, told.out) == (1, "")
        assert words in told.err


def test_templates_are_added_shown_and_deleted(contoso1: Postroom) -> None:
    Path("blocks.json").write_text(json.dumps(BLOCKS), encoding="utf-8")
    made = contoso1("template", "add", "Ours", "--blocks", "blocks.json", "--json").json
    contoso1("template", "add", "Sign", "--snippet", "--from", "letter")
    ref = written(contoso1, "--template", "OURS")
    kept = contoso1("template", "add", "Kept", "--message", ref).out
    assert "“Kept” was added" in kept
    lines = contoso1("template", "list").out.splitlines()
    assert [line.split()[0] for line in lines[:3]].count(made["id"]) == 1
    assert len(contoso1("template", "list", "--json").json) == 9
    shown = contoso1("template", "show", "ours", "--json").json
    assert shown["blocks"][1]["text"] == "*one*"
    assert json.loads(contoso1("template", "show", "Ours").out)["theme"] == {"link": "#000001"}
    assert contoso1("template", "delete", "event", "--yes").code == 1
    assert contoso1("template", "delete", "Ours").code == 1
    assert "was deleted" in contoso1("template", "delete", "Ours", "--yes").out
    assert contoso1("template", "show", "Ours").code == 1
    twice = contoso1("template", "add", "x", "--from", "letter", "--message", ref)
    assert twice.code == 1


def test_a_zip_with_pictures_becomes_a_draft(contoso1: Postroom) -> None:
    with zipfile.ZipFile("page.zip", "w") as archive:
        archive.writestr("index.html", "<title>News</title><img src='a.png' alt='A'>")
        archive.writestr("a.png", png())
    made = contoso1("message", "import", "page.zip", "--list", "contoso1", "--json").json
    assert (made["subject"], made["status"]) == ("News", "draft")
    assert made["notes"] == ["1 picture was added to the media library."]
    assert "{{ site_url }}/m/" in contoso1("message", "source", made["ref"]).out
    Path("none.zip").write_bytes(b"PK\x03\x04")
    told = contoso1("message", "import", "none.zip", "--list", "contoso1")
    assert (told.code, told.out) == (1, "")
    assert "damaged" in told.err
