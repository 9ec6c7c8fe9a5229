"""Rich text in blocks: what is typed, pasted and switched, and that every text survives it."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from uuid import uuid4

import pytest
import pytest_asyncio
from playwright.async_api import Locator, Page, expect

from postroom.act import Act
from postroom.actions import manage_templates
from postroom.domain.block import BlockDocument, TextBlock
from postroom.domain.errors import BadInput
from postroom.domain.message_template import TemplateKind
from postroom.writing.editor_text import editor_document
from postroom.writing.rich_text import html_of_text
from tests.browser.chromium import axe
from tests.browser.running_site import RunningSite
from tests.browser.signed_in import sign_in_page

TEXTS = 4000
WRITE_ALL = """documents => documents.map(each => {
    const node = PostroomEditor.schema.nodeFromJSON(JSON.parse(each))
    node.check()
    return PostroomEditor.toMarkdown(node)
})"""


@pytest_asyncio.fixture(scope="session")
async def template(site: RunningSite) -> str:
    """The address of a new message with one empty text."""
    name = f"rich_{uuid4().hex[:8]}"
    await site.run("list", "create", name, "--from", "a@contoso.edu")
    person = ("ada@contoso.edu", "--verified", "--attribute", "first_name=Ada")
    await site.run("subscriber", "add", name, *person)
    act = Act(site.parts.storage, site.parts.clock, site.parts.clock.now())
    document = BlockDocument(blocks=[TextBlock(id="b1")])
    made = await manage_templates.create(act, TemplateKind.TEMPLATE, name, document)
    return f"{site.url}/admin/messages/new?template={made.id}&list={name}"


@pytest_asyncio.fixture
async def writer(site: RunningSite, page: Page, template: str) -> Page:
    """A new message with one empty text."""
    await sign_in_page(site, page)
    await page.goto(template)
    await expect(editor(page)).to_be_visible()
    return page


def editor(page: Page) -> Locator:
    return page.get_by_role("textbox", name="Text", exact=True)


async def markdown(page: Page) -> str:
    return await page.locator("#blocks textarea").first.input_value()


async def test_what_is_typed_is_markdown_and_is_seen_in_the_preview(writer: Page) -> None:
    await editor(writer).click()
    keys = writer.keyboard
    await keys.type("Dear {{ first_name }}, a ")
    await keys.press("Control+b")
    await keys.type("bold")
    await keys.press("Control+b")
    await keys.type(" word, 2 * 3 and snake_case")
    await keys.press("Shift+Enter")
    await keys.type("- no list")
    await keys.press("Enter")
    await writer.get_by_role("button", name="Bullet list").click()
    await keys.type("one")
    await keys.press("Enter")
    await keys.type("two")
    assert await markdown(writer) == (
        "Dear {{ first_name }}, a **bold** word, 2 \\* 3 and snake_case\n"
        "\\- no list\n\n- one\n- two"
    )
    mail = writer.frame_locator("iframe.mail")
    await expect(mail.locator("strong")).to_have_text("bold")
    await expect(mail.get_by_role("listitem")).to_have_text(["one", "two"])
    for _each in range(3):
        await keys.press("Control+z")
    assert "two" not in await markdown(writer)
    await keys.press("Control+Shift+z")
    assert await axe(writer) == []


async def test_a_link_is_set_changed_and_removed_by_keyboard(writer: Page) -> None:
    await editor(writer).click()
    keys = writer.keyboard
    await keys.type("our site")
    await keys.press("Control+a")
    address = writer.get_by_label("Address", exact=True)
    await keys.press("Control+k")
    await expect(address).to_be_focused()
    await keys.type("contoso.edu/a_(b)")
    await keys.press("Enter")
    await expect(address).to_be_hidden()
    assert await markdown(writer) == "[our site](https://contoso.edu/a_\\(b\\))"
    await keys.press("Control+k")
    await expect(address).to_have_value("https://contoso.edu/a_(b)")
    assert await axe(writer) == []
    await writer.get_by_role("button", name="Remove link").click()
    await expect(address).to_be_hidden()
    assert await markdown(writer) == "our site"
    await keys.press("End")
    await keys.press("Control+k")
    await expect(address).to_be_focused()
    await keys.type("javascript:alert(1)")
    await keys.press("Enter")
    await expect(writer.get_by_role("dialog")).to_be_visible()
    await keys.press("Escape")
    assert await markdown(writer) == "our site"
    await expect(editor(writer)).to_be_focused()


async def test_a_field_of_the_list_is_inserted_with_a_default(writer: Page) -> None:
    await editor(writer).click()
    await writer.keyboard.type("Dear ")
    await writer.get_by_role("button", name="Merge field", exact=True).click()
    await writer.locator("#blocks").get_by_label("If it is empty, show:").fill("friend")
    await writer.get_by_role("button", name="first_name", exact=True).click()
    await writer.keyboard.type(",")
    assert await markdown(writer) == 'Dear {{ first_name | default("friend") }},'
    await expect(editor(writer)).to_be_focused()


async def test_markdown_is_edited_as_it_is_and_comes_back(writer: Page) -> None:
    switch = writer.get_by_role("button", name="Edit as Markdown")
    await switch.click()
    await editor(writer).fill('1. *one*\n2. [two](https://contoso.edu "a title")')
    await switch.click()  # a title is not for the editor
    await expect(writer.get_by_text("Markdown that the visual editor can’t show")).to_be_visible()
    await editor(writer).fill("1. *one*\n2. {% if a %}two{% endif %}")
    await switch.click()
    rich = writer.locator(".ProseMirror")
    await expect(rich.locator("ol li")).to_have_count(2)
    await expect(rich.locator("em")).to_have_text("one")
    await expect(editor(writer)).to_be_focused()
    assert await markdown(writer) == "1. *one*\n2. {% if a %}two{% endif %}"


WORD = """<html xmlns:o="urn:schemas-microsoft-com:office:office"><head><style>p {color:red}</style>
</head><body><p class=MsoNormal style='margin:0cm'><b style='mso-bidi-font-weight:normal'>Dear
all</b>,<o:p></o:p></p><p class=MsoListParagraph style='text-indent:-18.0pt;mso-list:l0 level1 lfo1'
><![if !supportLists]><span style='font-family:Symbol'><span style='mso-list:Ignore'>·<span>&nbsp;
</span></span></span><![endif]>first<o:p></o:p></p><p class=MsoListParagraph
style='mso-list:l0 level1 lfo1'><span style='mso-list:Ignore'>·</span>second</p>
<script>alert(1)</script><img src=x onerror=alert(1)></body></html>"""
DOCS = """<b style="font-weight:normal" id="docs-internal-guid-1"><p dir="ltr" style="color:red">
<span style="font-weight:400">plain
</span><span style="font-weight:700;font-style:italic">both</span>
</p><p>see
<a href="https://www.google.com/url?q=https://contoso.edu/&amp;sa=D"><span>site</span></a>,
<a href="javascript:alert(1)">no</a></p></b>"""


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        (WORD, "**Dear all**,\n\n- first\n- second"),
        (DOCS, "plain **_both_**\n\nsee [site](https://contoso.edu/), no"),
        ("<h1>Head</h1><table><tr><td>a<td>b</table>", "Head\n\na\n\nb"),
    ],
    ids=["Word", "Google Docs", "web"],
)
async def test_what_is_pasted_is_cleaned(writer: Page, html: str, expected: str) -> None:
    await editor(writer).click()
    await writer.evaluate(
        """html => {
            const data = new DataTransfer()
            data.setData("text/html", html)
            document.activeElement.dispatchEvent(
                new ClipboardEvent("paste", {clipboardData: data, bubbles: true, cancelable: true}))
        }""",
        html,
    )
    assert await markdown(writer) == expected


# --- Every text survives the editor -------------------------------------------------------------

PIECES = [
    *("a", "word", "é", "日", "😀", "€", "1", "*", "**", "***", "_", "__", "[", "]", "(", ")"),
    *("\\", "&", "&amp;", "&nbsp;", "&#32;", "&lt;", "\u00a0", "\u3000", "<b>", "<", "#", "`", "~"),
    *(" ", " ", " ", "  ", "\t", "\n", "\n", "\n\n", "\r\n", "\n- ", "\n  - ", "\n1. ", "\n   1. "),
    *(
        "- ",
        "* ",
        "+ ",
        "1. ",
        "2) ",
        "0. ",
        "-",
        "\n5. ",
        "\n\n  ",
        "{",
        "}",
        "{\\{",
        "!",
        '"',
        "'",
    ),
    *("{{ n }}", '{{ a_b | default("a*b") }}', "{% if x %}", "{% endif %}", "**b**", "*i*", "_i_"),
    *("](https://x.y/)", "[l](https://x.y/a_(b))", "[x]({{ u }})", "[**b** c](mailto:a@b.c)"),
    *("***x***", "\x0c", "|", "$", "&copy;", "[t](/x 'y')", "[](https://x.y/)"),
]
NOT_FOR_THE_EDITOR = ["[a](https://x.y 'title')", "{\\{ a", "[](https://x.y)", "a&#32;"]


def texts() -> Iterator[str]:
    chosen = random.Random(15)
    for _each in range(TEXTS):
        length = chosen.randint(1, chosen.choice([4, 8, 16, 30]))
        yield "".join(chosen.choices(PIECES, k=length))


class Shown(HTMLParser):
    """What HTML shows: blocks, and each character with its marks, which spaces do not show."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[object] = []
        self._open: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag in ("p", "ul", "ol", "li", "br"):
            self.found.append((tag, values.get("start"), values.get("style")))
        if tag != "br":
            self._open.append((tag, values.get("href") or ""))

    def handle_endtag(self, tag: str) -> None:
        self._open.pop()
        if tag in ("p", "ul", "ol", "li"):
            self.found.append(f"/{tag}")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)

    def handle_data(self, data: str) -> None:
        for character in re.sub(r"\{%.*?%\}", "\x1c", data):  # a tag is gone when it is sent
            marks = {each for each in self._open if each[0] in ("a", "strong", "em")}
            if character.isspace():
                marks = {each for each in marks if each[0] == "a"}
            self.found.append((character, frozenset(marks)))


def shown(markdown_text: str) -> list[object]:
    parser = Shown()
    parser.feed(html_of_text(markdown_text, link_colour="#000000"))
    parser.close()
    return parser.found


async def test_every_text_is_shown_the_same_after_the_editor_wrote_it(writer: Page) -> None:
    tried: dict[str, str] = {}
    for text in texts():
        document = editor_document(text)
        if document:
            tried[text] = document
    assert len(tried) > TEXTS / 2
    written = await writer.evaluate(WRITE_ALL, list(tried.values()))
    wrong = [
        (text, after)
        for text, after in zip(tried, written, strict=True)
        if shown(text) != shown(after)
    ]
    assert wrong == []


@pytest.mark.parametrize("text", NOT_FOR_THE_EDITOR)
def test_what_the_editor_cannot_write_stays_markdown(text: str) -> None:
    assert editor_document(text) == ""


def test_a_text_that_cannot_be_read_stays_markdown() -> None:
    with pytest.raises(BadInput):
        html_of_text("{{ a", link_colour="#000000")
    assert editor_document("{{ a") == ""
    assert json.loads(editor_document("")) == {"type": "doc", "content": [{"type": "paragraph"}]}
