"""The six templates have the same elements in the same order as Node's mjml makes of them.

node_mjml.json has what Node made; `tools/node_mjml.py` writes it after a change of the templates or
of the layout.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from postroom.writing.layout import html_from_blocks, mjml_from_blocks
from postroom.writing.mjml import html_from_mjml
from postroom.writing.ready_made import READY_MADE, ready_made
from tests.unit.writing.element_order import digest, elements

RECORDED = json.loads((Path(__file__).parent / "node_mjml.json").read_text(encoding="utf-8"))
HTML_BYTES_MAX = 60_000  # Gmail clips an email at 102 kB, and people add words


@pytest.mark.parametrize("name", READY_MADE)
def test_a_template_has_the_elements_that_node_makes(name: str) -> None:
    source = mjml_from_blocks(ready_made(name))
    recorded = RECORDED["templates"][name]
    assert digest(source) == recorded["source"], "the template changed: run tools/node_mjml.py"
    found = elements(html_from_mjml(source))
    assert len(found) == recorded["elements"]
    assert digest(" ".join(found)) == recorded["order"]


@pytest.mark.parametrize("name", READY_MADE)
def test_a_template_is_small(name: str) -> None:
    assert len(html_from_blocks(ready_made(name)).encode()) <= HTML_BYTES_MAX


def test_a_missing_and_a_moved_element_are_noticed() -> None:
    page = html_from_mjml(mjml_from_blocks(ready_made("letter")))
    order = elements(page)
    assert elements(page.replace("<tbody>", "", 1)) != order
    assert elements(page.replace("</td></tr>", "</tr></td>", 1)) != order
    outlook = page.replace("<!--[if mso | IE]>\n<table", "<!--[if mso | IE]>\n<div", 1)
    assert outlook != page
    assert elements(outlook) != order
