"""The preview text is put into any HTML in linear time."""

from __future__ import annotations

import pytest

from postroom.mail.preview_text import with_preview_text


@pytest.mark.parametrize("piece", ["<body ", "<!--", "<body '", '<body "', "<body>"])
def test_no_html_is_read_again_and_again(piece: str) -> None:
    # With an expression that starts again at every piece: an hour.
    assert "Hello" in with_preview_text(piece * 100_000, "Hello")


@pytest.mark.parametrize(
    ("html", "before"),
    [
        ("<!doctype html><body class='>'><p>x", "<!doctype html><body class='>'>"),
        ("<!-- <body> --><BODY\n a=b><p>x", "<!-- <body> --><BODY\n a=b>"),
        ("<p>x", ""),
    ],
)
def test_it_is_the_beginning_of_the_body(html: str, before: str) -> None:
    assert with_preview_text(html, "Hello").startswith(f"{before}<div")
