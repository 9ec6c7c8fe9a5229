"""Action, import page: make a body from an HTML file, or from a zip with its pictures.

Before: an editor or a program has a page that another tool exported.   After: its HTML, and its
pictures in the media library; the caller stores the message.
Dies half-way: some pictures are in the library, and no message uses them yet. The next try finds
them there by their bytes.
Commit point: none; each picture has its own (manage_media.py), and the caller stores the message.
"""

from __future__ import annotations

import posixpath

import msgspec

from postroom.act import Act
from postroom.actions import manage_media
from postroom.actions.write_body import BodyInput, write_body
from postroom.domain.errors import BadInput
from postroom.domain.message import BODY_BYTES_MAX, check_body
from postroom.domain.texts import _, clipped
from postroom.mail.merge import BadTemplate
from postroom.parsing import in_thread
from postroom.records.bodies import MessageBodies
from postroom.writing.html_import import ImportedHtml, ImportReport, decoded, import_html
from postroom.writing.zip_files import ZipFiles, is_zip

PAGES_OFFERED_MAX = 20
_PAGE_ENDINGS = (".htm", ".html")


class SeveralPages(BadInput):
    """A zip with several pages; `names` are those to choose from."""

    def __init__(self, names: list[str]) -> None:
        self.names = names
        super().__init__(
            _(
                "The zip contains several pages. Choose one: {names}.",
                names=", ".join(names[:PAGES_OFFERED_MAX]),
            )
        )


class ImportedPage(msgspec.Struct, frozen=True):
    """A page as the body of a message, and notes for the person who imports it."""

    content: MessageBodies
    title: str
    report: ImportReport

    @property
    def notes(self) -> list[str]:
        return [str(each) for each in self.report.sentences()]


async def import_file(
    act: Act, content: bytes, language: str, site_url: str, page: str = ""
) -> ImportedPage:
    """Read a file or a zip, and add its pictures to the media library; BadInput says why not."""
    found, archive = await in_thread(_opened, content, page)
    report = found.report
    addresses: dict[str, tuple[str, str]] = {}
    for picture in found.pictures:
        assert archive is not None
        addresses[picture.name] = (picture.name, picture.name)
        try:
            file = await in_thread(archive.read, picture.name)
            added = await manage_media.add(act, file, picture.name, clipped(picture.alt, 300))
        except BadInput:
            report.refused.append(picture.name)
            continue
        report.pictures += 1
        addresses[picture.name] = (
            "{{ site_url }}" + added.path,  # follows the installation to another address
            site_url + added.path,  # in styles there can be no merge fields
        )
    html = check_body(await in_thread(found.with_addresses, addresses))
    return ImportedPage(await _body(act, html, language, report), found.title, report)


async def _body(act: Act, html: str, language: str, report: ImportReport) -> MessageBodies:
    """The HTML with its styles in the tags, if they can be put there."""
    try:
        return await write_body(act.storage, BodyInput(html=html, inline_styles=True), language)
    except BadTemplate:
        report.keeps_styles = True
        return MessageBodies(html=html)


def _opened(content: bytes, page: str) -> tuple[ImportedHtml, ZipFiles | None]:
    if not content.strip():
        raise BadInput(_("The file is empty. Choose another one."))
    if not is_zip(content):
        return import_html(_page_text(content), "", lambda path: None, lambda name: b""), None
    archive = ZipFiles(content)
    name = _chosen_page(archive, page)
    text = _page_text(archive.read(name))
    found = import_html(text, posixpath.dirname(name), archive.find, archive.read)
    check_body(found.html)  # before its pictures are read
    found.report.archives = archive.archives
    return found, archive


def _page_text(content: bytes) -> str:
    if len(content) > BODY_BYTES_MAX:
        limit = BODY_BYTES_MAX // 1024**2
        raise BadInput(_("The page is larger than {limit} MB. Shorten it.", limit=limit))
    text = decoded(content)
    if "\0" in text[:1000] or "<" not in text:
        raise BadInput(_("This is not an HTML page. Choose a .htm, .html or .zip file."))
    return text


def _chosen_page(archive: ZipFiles, wanted: str) -> str:
    """The page that was asked for, the only one, or the one called index."""
    pages = [name for name in archive.names if name.lower().endswith(_PAGE_ENDINGS)]
    if wanted:
        if wanted not in pages:
            raise BadInput(_("There is no page “{name}” in the zip.", name=clipped(wanted, 60)))
        return wanted
    if not pages:
        raise BadInput(_("There is no .htm or .html file in the zip."))
    index = [name for name in pages if posixpath.basename(name).lower().startswith("index.")]
    found = pages if len(pages) == 1 else index
    if len(found) != 1:
        raise SeveralPages(pages)
    return found[0]
