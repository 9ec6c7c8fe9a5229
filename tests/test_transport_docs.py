"""docs/transports.md has the table of capabilities and the example as they are in the code.

Write them again: python -m tests.test_transport_docs
"""

from __future__ import annotations

import re
from pathlib import Path

from postroom.transport import acs, sendgrid, ses
from postroom.wiring.transports import TRANSPORTS, capabilities_table

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "transports.md"
EXAMPLE = ROOT / "examples" / "folder_transport.py"
EXAMPLE_LINES_MAX = 50
TABLE = re.compile(r"(<!-- capabilities:[^\n]*-->\n).*?(<!-- /capabilities -->)", re.DOTALL)
CODE = re.compile(r"(<!-- example:[^\n]*-->\n).*?(<!-- /example -->)", re.DOTALL)


def as_written(page: str) -> str:
    """The page with the table and the example of today."""
    example = EXAMPLE.read_text(encoding="utf-8")
    page = TABLE.sub(lambda found: f"{found[1]}{capabilities_table()}{found[2]}", page)
    return CODE.sub(lambda found: f"{found[1]}```python\n{example}```\n{found[2]}", page)


def test_the_page_of_transports_says_what_the_code_says() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert TABLE.search(page)
    assert CODE.search(page)
    assert as_written(page) == page, "run: python -m tests.test_transport_docs"


def test_every_transport_names_its_capabilities() -> None:
    table = capabilities_table()
    for entry in TRANSPORTS.values():
        assert f"| `{entry.form}` |" in table


def test_the_limits_of_the_table_are_those_of_the_transports() -> None:
    assert TRANSPORTS["sendgrid"].capabilities.batch_max == sendgrid.BATCH_MAX
    assert TRANSPORTS["ses"].capabilities.batch_max == ses.ENTRIES_MAX
    assert TRANSPORTS["ses"].capabilities.bytes_max == ses.RAW_BYTES_MAX
    assert TRANSPORTS["acs"].capabilities.bytes_max == acs.CALL_BYTES_MAX


def test_the_example_is_short() -> None:
    assert len(EXAMPLE.read_text(encoding="utf-8").splitlines()) <= EXAMPLE_LINES_MAX


if __name__ == "__main__":
    PAGE.write_text(as_written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
