"""`postroom media …`: what people type, and what scripts read."""

from __future__ import annotations

from pathlib import Path

from tests.component.typed import Postroom
from tests.picture_samples import png, svg


def test_pictures_are_added_listed_shown_and_deleted(contoso1: Postroom) -> None:
    Path("square.png").write_bytes(png())
    Path("wide.png").write_bytes(png(90))
    added = contoso1("media", "add", "square.png", "wide.png", "--alt", "A square", "--json").json
    assert [each["name"] for each in added] == ["square.png", "wide.png"]
    assert contoso1("media", "add", "square.png", "--json").json == added[:1]
    assert contoso1("media", "list", "WIDE", "--json").json == added[1:]
    assert "square.png" in contoso1("media", "list").out
    shown = contoso1("media", "show", added[0]["id"])
    assert "A square" in shown.out
    assert contoso1("media", "delete", added[0]["id"], "--yes").out == "square.png was deleted.\n"
    gone = contoso1("media", "show", added[0]["id"])
    assert (gone.code, gone.err) == (1, "This picture no longer exists.\n")


def test_a_bad_file_is_refused_with_a_sentence(contoso1: Postroom) -> None:
    Path("logo.svg").write_bytes(svg())
    refused = contoso1("media", "add", "logo.svg")
    assert refused.code != 0
    assert "SVG" in refused.err
    missing = contoso1("media", "add", "nothing.png")
    assert missing.code != 0
    assert "nothing.png" in missing.err
