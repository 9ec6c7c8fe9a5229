"""HTML pages from other tools: decoded, cleaned, and their pictures found.

The page is rewritten tag by tag, not parsed and written out again: conditional comments for Outlook
and whatever else email programs need stay as they are. What an email cannot have is removed, with
one sentence for each kind.
"""

from __future__ import annotations

import codecs
import hashlib
import posixpath
import re
from collections.abc import Callable, Iterator
from urllib.parse import unquote

import msgspec

from postroom.domain.errors import BadInput
from postroom.domain.message import BODY_BYTES_MAX
from postroom.domain.texts import Text, _, ngettext
from postroom.mail.entities import unescape
from postroom.mail.html_shape import ATTRIBUTE, ATTRIBUTE_PARTS, check_shape

CHARSET_SOUGHT_BYTES = 2048
PICTURES_MAX = 100  # of one page
SHOWN_MAX = 8  # names in one sentence
_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_CHARSET = re.compile(
    rb"<meta\b[^>]{0,300}?charset\s*=\s*[\"']?\s*([A-Za-z0-9_:.-]{1,40})", re.IGNORECASE
)
# Here and below, what may be repeated is never read again (“*+”): a page is hostile.
_META_CHARSET = re.compile(r"(charset\s*+=\s*+[\"']?+\s*+)[A-Za-z0-9_:.-]{1,40}", re.IGNORECASE)
_ENCODINGS = re.compile(
    r"utf-?8|cp125\d|windows-125\d|iso-?8859-\d{1,2}|latin-?\d|us-ascii|ascii"
    r"|koi8-[ru]|shift_jis|sjis|euc-jp|euc-kr|gb2312|gbk|gb18030|big5|utf-16(?:le|be)?|macintosh",
    re.IGNORECASE,
)
_TOKEN = re.compile(
    r"<!--(?!\[if)(?:-?>|.*?(?:--!?>|\Z))"
    rf"|<(/?)([A-Za-z][^\s/>]*+)((?:{ATTRIBUTE})*+)[\s/]*+(?:>|\Z)",
    re.DOTALL,
)
_CSS_URL = re.compile(
    r"url\(\s*+(?:\"([^\"()]*+)\"|'([^'()]*+)'|([^\"'()\s]*+))\s*+\)", re.IGNORECASE
)
_CSS_IMPORT = re.compile(r"@import\b[^;{}]*;?", re.IGNORECASE)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:|//|#|\{\{")
_SCRIPT_LINK = re.compile(r"\s*(?:javascript|vbscript|data\s*:\s*text/html)\s*:?", re.IGNORECASE)
_TITLE = re.compile(r"<title[^>]*>([^<]{0,500})", re.IGNORECASE)
_MARK = re.compile(r"picture-[0-9a-f]{16}-[0-9]{1,3}-[ts]")
_MERGE_TAG = re.compile(r"\*\|([A-Z0-9_:]{1,40})\|\*")
# Fields of Mailchimp that mean the same here.
_MERGE_TAGS = {
    "UNSUB": "{{ unsubscribe_url }}",
    "ARCHIVE": "{{ view_url }}",
    "EMAIL": "{{ email }}",
    "FNAME": "{{ first_name }}",
    "LNAME": "{{ last_name }}",
    "LIST:COMPANY": "{{ list_title }}",
    "LIST:ADDRESS": "{{ postal_address }}",
}
_WITH_CONTENT = {"script": "scripts", "iframe": "frames", "select": "forms", "textarea": "forms"}
_TAGS_ONLY = {
    **dict.fromkeys(("form", "input", "button", "fieldset", "option"), "forms"),
    **dict.fromkeys(("object", "embed", "applet", "param", "frame", "frameset"), "frames"),
    "noscript": "scripts",
    "base": "base",
}
_SOURCES = frozenset(("src", "background", "poster"))
_SENTENCES = {
    "scripts": _("Scripts were removed, because no email program runs them."),
    "forms": _(
        "Forms were removed, because they do not work in most email programs. Use a button with a "
        "link."
    ),
    "frames": _("Embedded pages and objects were removed, because no email program shows them."),
    "handlers": _(
        "Event handlers (onclick and others) were removed, because no email program runs them."
    ),
    "script links": _("Links that run a script were left without a target."),
    "base": _("The base address of the page was removed, because email programs ignore it."),
    "refresh": _("A redirect to another page was removed, because no email program follows it."),
    "imports": _(
        "References to other style sheets (@import) were removed, because email programs do not "
        "load them."
    ),
    "fields": _("Mailchimp merge tags were converted to merge fields."),
}


class FoundPicture(msgspec.Struct, frozen=True):
    """A picture of the page, and what stands for its address until that is known."""

    name: str  # in the zip
    mark: str
    alt: str = ""


class ImportReport(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What happened to a page; stored as data, so that each reader has it in their language."""

    pictures: int = 0  # that are in the media library now
    removed: list[str] = []  # keys of _SENTENCES
    missing: list[str] = []  # addresses of pictures that lead to no file
    missing_styles: list[str] = []
    refused: list[str] = []  # pictures that the media library did not take
    archives: list[str] = []  # within the archive
    keeps_styles: bool = False  # they could not be put into the tags

    def sentences(self) -> Iterator[Text]:
        yield from self.changes()
        yield from self.problems()

    def changes(self) -> Iterator[Text]:
        if self.pictures:
            yield ngettext(
                "{count} picture was added to the media library.",
                "{count} pictures were added to the media library.",
                self.pictures,
            )
        yield from (_SENTENCES[each] for each in _SENTENCES if each in self.removed)

    def problems(self) -> Iterator[Text]:
        """What the page has lost, and people will miss."""
        if self.missing:
            yield ngettext(
                "{count} picture is missing and will not be shown: {names}",
                "{count} pictures are missing and will not be shown: {names}",
                len(self.missing),
                names=_first_few(self.missing),
            )
        if self.missing_styles:
            yield _("Style sheets that are missing: {names}", names=_first_few(self.missing_styles))
        if self.refused:
            yield _(
                "Files that were left out, because they are damaged, too large, or in a format "
                "that email programs do not show, such as SVG: {names}",
                names=_first_few(self.refused),
            )
        if self.archives:
            yield _(
                "Archives inside the archive were left out: {names}",
                names=_first_few(self.archives),
            )
        if self.keeps_styles:
            yield _(
                "The style sheets are too long to be copied into the tags, so they stay where "
                "they are."
            )


class ImportedHtml(msgspec.Struct):
    """A page ready to be used once its pictures have addresses."""

    html: str
    title: str = ""
    pictures: list[FoundPicture] = []
    report: ImportReport = msgspec.field(default_factory=ImportReport)

    def with_addresses(self, addresses: dict[str, tuple[str, str]]) -> str:
        """The HTML with the address of each picture for attributes, and the one for styles."""
        by_mark: dict[str, str] = {}
        for picture in self.pictures:
            by_mark[f"{picture.mark}t"], by_mark[f"{picture.mark}s"] = addresses[picture.name]
        return _MARK.sub(lambda mark: by_mark.get(mark[0], mark[0]), self.html)


Find = Callable[[str], str | None]  # the name of the file at a path
Read = Callable[[str], bytes]


def decoded(content: bytes) -> str:
    """The text of a page by its byte order mark, the charset it names, UTF-8 or Windows-1252."""
    for mark, encoding in _BOMS:
        if content.startswith(mark):
            return content.decode(encoding, "replace").lstrip("\ufeff")
    named = _CHARSET.search(content[:CHARSET_SOUGHT_BYTES])
    encodings = [named[1].decode()] if named and _ENCODINGS.fullmatch(named[1].decode()) else []
    for encoding in (*encodings, "utf-8"):
        try:
            return content.decode(encoding)
        except (UnicodeDecodeError, LookupError):
            continue
    return content.decode("cp1252", "replace")


def import_html(page: str, folder: str, find: Find, read: Read) -> ImportedHtml:
    """Clean a page and find its pictures; BadInput if it is too long or too crowded."""
    page = page.replace("\r\n", "\n").replace("\0", "")
    check_shape(page)
    title = _TITLE.search(page)
    cleaner = _Cleaner(page, folder, find, read)
    return ImportedHtml(
        cleaner.cleaned(),
        " ".join(unescape(title[1]).split()) if title else "",
        list(cleaner.pictures.values()),
        ImportReport(
            removed=sorted(cleaner.removed),
            missing=list(cleaner.missing),
            missing_styles=cleaner.missing_styles,
        ),
    )


def _first_few(names: list[str]) -> str:
    return ", ".join(names[:SHOWN_MAX]) + (", …" if len(names) > SHOWN_MAX else "")


class _Cleaner:
    """Rewrites one page tag by tag."""

    def __init__(self, page: str, folder: str, find: Find, read: Read) -> None:
        self.pictures: dict[str, FoundPicture] = {}
        self.missing: dict[str, None] = {}
        self.missing_styles: list[str] = []
        self.removed: set[str] = set()
        self._page = page
        self._folder = folder
        self._find = find
        self._read = read
        # Known to nobody who writes a page, so no page contains one.
        self._nonce = hashlib.sha256(page.encode(errors="replace")).hexdigest()[:16]
        self._alt = ""
        self._style_bytes = 0  # of the style sheets that became part of the page

    def cleaned(self) -> str:
        pieces: list[str] = []
        position = 0
        while token := _TOKEN.search(self._page, position):
            pieces.append(self._text(self._page[position : token.start()]))
            position = token.end()
            name = (token[2] or "").lower()
            if not name:  # a comment
                pieces.append(token[0])
                continue
            if name in ("style", *_WITH_CONTENT) and not token[1]:
                end = self._end_of(name, position)
                content = self._page[position:end]
                position = end
                if name == "style":
                    pieces += [token[0], self._css(content, self._folder)]
                    continue
            pieces.append(self._tag(token, name))
        return "".join(pieces) + self._text(self._page[position:])

    def _text(self, text: str) -> str:
        if "*|" not in text:
            return text
        return _MERGE_TAG.sub(self._merge_field, text)

    def _merge_field(self, tag: re.Match[str]) -> str:
        known = _MERGE_TAGS.get(tag[1])
        self.removed |= {"fields"} if known else set()
        return known or tag[0]

    def _end_of(self, name: str, position: int) -> int:
        """Where the end tag of an element begins whose content is not HTML."""
        end = re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE).search(self._page, position)
        return end.start() if end else len(self._page)

    def _tag(self, token: re.Match[str], name: str) -> str:
        is_end = bool(token[1])
        kind = _WITH_CONTENT.get(name) or _TAGS_ONLY.get(name)
        if kind:
            self.removed.add(kind)
            return ""
        if is_end:
            return token[0]
        found = {each[1].lower(): unescape(_value(each)) for each in _attributes(token[3])}
        if name == "meta" and found.get("http-equiv", "").lower() == "refresh":
            self.removed.add("refresh")
            return ""
        if name == "meta" and ("charset" in found or "charset" in found.get("content", "")):
            return _META_CHARSET.sub(r"\1utf-8", token[0])
        if name == "link":
            return self._linked(token[0], found)
        self._alt = found.get("alt", "")
        head, tail = (
            token[0][: token.start(3) - token.start()],
            token[0][token.end(3) - token.start() :],
        )
        return head + ATTRIBUTE_PARTS.sub(self._attribute, token[3]) + tail

    def _attribute(self, found: re.Match[str]) -> str:
        name = found[1].lower()
        value = unescape(_value(found))
        changed = value
        if name.startswith("on") and found[2]:
            self.removed.add("handlers")
            return ""
        if name in ("href", "xlink:href", "action") and _SCRIPT_LINK.match(value):
            self.removed.add("script links")
            changed = "#"
        elif name == "style":
            changed = self._css(value, self._folder)
        elif name in _SOURCES:
            changed = self._address(value, self._folder) or value
        elif name == "srcset":
            changed = ", ".join(self._candidate(each) for each in value.split(","))
        if "*|" in changed:
            changed = _MERGE_TAG.sub(self._merge_field, changed)
        if changed == value or not found[2]:
            return found[0]
        quote = "'" if '"' in changed and "'" not in changed else '"'
        escaped = changed.replace("&", "&amp;").replace(
            quote, "&quot;" if quote == '"' else "&#39;"
        )
        return f"{found[1]}={quote}{escaped}{quote}"

    def _candidate(self, text: str) -> str:
        """One address of a srcset, with the width or density after it."""
        address, space, width = text.strip().partition(" ")
        return (self._address(address, self._folder) or address) + space + width

    def _linked(self, tag: str, found: dict[str, str]) -> str:
        """A style sheet of the zip becomes part of the page; others on the web stay."""
        href = found.get("href", "")
        if "stylesheet" not in found.get("rel", "").lower().split():
            return "" if href and not _SCHEME.match(href) else tag
        if _SCHEME.match(href):
            return tag
        path = _resolved(href, self._folder)
        name = self._find(path)
        if name is None:
            self.missing_styles.append(href[:100])
            return ""
        content = self._read(name)
        self._style_bytes += len(content)
        if self._style_bytes > BODY_BYTES_MAX:  # before anything else is done with it
            limit = BODY_BYTES_MAX // 1024**2
            raise BadInput(
                _("The style sheets are larger than {limit} MB. Shorten them.", limit=limit)
            )
        css = self._css(decoded(content), posixpath.dirname(name))
        safe = css.replace("</", r"<\/")
        return f"<style>{safe}</style>"

    def _css(self, css: str, folder: str) -> str:
        if "@import" in css.lower():
            css, count = _CSS_IMPORT.subn("", css)
            self.removed |= {"imports"} if count else set()

        def url(found: re.Match[str]) -> str:
            address = found[1] or found[2] or found[3] or ""
            made = self._address(address.strip(), folder, place="s")
            return f"url({made})" if made else found[0]

        return _CSS_URL.sub(url, css)

    def _address(self, address: str, folder: str, place: str = "t") -> str | None:
        """The mark of a picture in the zip; None if the address stays as it is."""
        if not address.strip() or _SCHEME.match(address.strip()):
            return None
        name = self._find(_resolved(address, folder))
        if name is None:
            self.missing[address.strip()[:100]] = None
            return None
        if name not in self.pictures:
            if len(self.pictures) >= PICTURES_MAX:
                self.missing[address.strip()[:100]] = None
                return None
            mark = f"picture-{self._nonce}-{len(self.pictures)}-"
            self.pictures[name] = FoundPicture(name, mark)
        if place == "t" and self._alt and not self.pictures[name].alt:
            named = msgspec.structs.replace(self.pictures[name], alt=self._alt)
            self.pictures[name] = named
        return self.pictures[name].mark + place


def _attributes(text: str) -> Iterator[re.Match[str]]:
    return ATTRIBUTE_PARTS.finditer(text)


def _value(attribute: re.Match[str]) -> str:
    value = attribute[3] or ""
    return value[1:-1] if value[:1] in ("'", '"') and len(value) > 1 else value


def _resolved(address: str, folder: str) -> str:
    """The path in the zip that an address in a file of this folder means."""
    path = unquote(address.strip().partition("#")[0].partition("?")[0]).replace("\\", "/")
    return posixpath.normpath(posixpath.join(folder, path))
