"""Turn a body written in Markdown into the HTML of an email, leaving its merge fields untouched.

For the Markdown parser each field is one plain word, so it can be anywhere: in a sentence, in a
link, in a table.
"""

from __future__ import annotations

import hashlib
import html
import re
from enum import StrEnum

from markdown_it import MarkdownIt

from postroom.domain.texts import _
from postroom.mail.merge import BadTemplate, split_fields

MARKDOWN_CHARS_MAX = 128 * 1024  # Gmail clips emails over 102 kB
MARKS_MAX = 3000  # lines, signs and table cells: what takes the parser time
_SIGNS = re.compile(r"[][*_`<>|!&\\~#{+-]")
_LINE_END = re.compile("\r\n|\r|\n")  # as in the parser; str.splitlines knows more
_OPEN_ENDED = re.compile(r"<[!?]|[(\[]<")  # the parser searches all that follows for their end
_TABLE_RULE_CHARS = frozenset(" \t>|:-")  # of the line under the headings of a table
_SCANNED_CHARS = 1000  # take as long as one mark
# HTML within Markdown is trusted, as in a body written in HTML. Line breaks are kept, because the
# lines of an address or a signature belong apart.
_parser = MarkdownIt("commonmark", {"html": True, "breaks": True})
_parser.enable(["table", "strikethrough"])

_PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
body {{ margin: 0; padding: 24px 16px; color: #1c2420; background: #ffffff; \
font: 16px/1.6 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }}
.page {{ max-width: 600px; margin: 0 auto; }}
h1 {{ font-size: 26px; line-height: 1.25; }} h2 {{ font-size: 20px; line-height: 1.3; }}
a {{ color: #1f7a5c; }} img {{ max-width: 100%; height: auto; }}
blockquote {{ margin: 0; padding-left: 16px; border-left: 3px solid #dfe5e1; color: #55615b; }}
pre {{ white-space: pre-wrap; background: #f6f7f6; padding: 12px; }}
table {{ border-collapse: collapse; }} \
th, td {{ border: 1px solid #dfe5e1; padding: 6px 10px; text-align: left; }}
</style>
</head>
<body>
<div class="page">
{content}</div>
</body>
</html>
"""
_PAGE_BEGINS = _PAGE.partition("{content}")[0].replace("{{", "{").replace("}}", "}")
_DOCUMENT = re.compile(r"<(?:!doctype|html|head|body)\b", re.IGNORECASE)
# Without any of these, HTML has neither paragraphs nor line breaks.
_BREAKS_LINES = re.compile(
    r"<(?:p|br|div|table|tr|td|h[1-6]|ul|ol|li|dl|hr|pre|blockquote|center|section|article|header"
    r"|footer|main|address|figure|body|html|!doctype)\b",
    re.IGNORECASE,
)


def html_from_markdown(source: str) -> str:
    """Make a whole HTML page; BadTemplate if a merge field is never closed, or it is too long."""
    _check_size(source)
    mark = f"field{hashlib.sha256(source.encode(errors='replace')).hexdigest()[:16]}n"
    assert mark not in source  # a text cannot contain its own hash
    pieces = split_fields(source)
    fields = pieces[1::2]
    pieces[1::2] = [f"{mark}{number}z" for number in range(len(fields))]
    content = str(_parser.render("".join(pieces)))
    # As entities: a field may be in an attribute, and its fallback has quotation marks.
    field = re.compile(rf"{mark}([0-9]+)z")
    return _PAGE.format(content=field.sub(lambda at: html.escape(fields[int(at[1])]), content))


class FormatMismatch(StrEnum):
    """A body that is not in the format its author chose."""

    TEXT_AS_HTML = "text as html"  # would show as a single line
    HTML_AS_MARKDOWN = "html as markdown"  # a page within a page


def format_mismatch(html: str) -> FormatMismatch | None:
    """Whether an HTML body, or one made from Markdown, was probably meant in the other format."""
    if html.startswith(_PAGE_BEGINS):
        is_document = _DOCUMENT.search(html, len(_PAGE_BEGINS)) is not None
        return FormatMismatch.HTML_AS_MARKDOWN if is_document else None
    is_text = "\n" in html.strip() and not _BREAKS_LINES.search(html)
    return FormatMismatch.TEXT_AS_HTML if is_text else None


def _check_size(source: str) -> None:
    if len(source) > MARKDOWN_CHARS_MAX:
        raise BadTemplate(
            _("The Markdown is over {limit:,} characters; shorten it.", limit=MARKDOWN_CHARS_MAX)
        )
    lines = _LINE_END.split(source)
    marks = len(lines) + len(_SIGNS.findall(source))
    marks += len(_OPEN_ENDED.findall(source)) * len(source) // _SCANNED_CHARS
    # Cells last: a text with too many signs is refused before its lines are examined.
    if marks > MARKS_MAX or marks + _cells(lines) > MARKS_MAX:
        raise BadTemplate(
            _(
                "The Markdown has over {limit:,} lines, formatting marks and table cells; shorten "
                "it, or write it as HTML.",
                limit=MARKS_MAX,
            )
        )


def _cells(lines: list[str]) -> int:
    """Count the cells of all tables; the parser fills each row up to the number of headings."""
    cells = columns = 0
    for line in lines:
        if not line.strip(" \t"):  # the parser takes other blanks for words
            columns = 0
        elif "-" in line and _TABLE_RULE_CHARS.issuperset(line):
            columns = max(columns, line.count("|"))
        cells += columns
    return cells
