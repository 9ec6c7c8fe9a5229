"""Write emails as bytes: each message is compiled once, then spliced for each recipient.

Everything that is the same for all recipients is encoded when the message is compiled; a splice
copies a list of byte strings and fills in the values (rendition.py). This is our own writer because
the standard library's `email` takes a thousand times as long, encodes long URLs and lets headers be
injected (standards F7).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property, lru_cache

import msgspec

from postroom.domain.address import Address, Mailbox
from postroom.domain.message import BODY_BYTES_MAX as TEMPLATE_BYTES_MAX
from postroom.domain.message import SUBJECT_CHARS_MAX
from postroom.domain.texts import _
from postroom.mail import control_flow, header, merge
from postroom.mail.attachments import EncodedAttachments
from postroom.mail.body import text_from_html
from postroom.mail.control_flow import Region, Regions
from postroom.mail.escape_context import EscapeContext
from postroom.mail.header import LINE_OCTETS_MAX, BadHeader
from postroom.mail.html_shape import check_shape
from postroom.mail.merge import BadTemplate, Field, Segment, fill, line_of
from postroom.mail.quoted_printable import encode_lines
from postroom.mail.rendition import (
    EMAIL,
    UNSUBSCRIBE_URL,
    EightBit,
    QuotedPrintable,
    SplicedMail,
)

BODY_BYTES_MAX = TEMPLATE_BYTES_MAX + 8192  # a template and its footer
LITERAL_LINE_MAX = 400  # octets of a template's line sent as 8bit, which leaves room for values
URL_CHARS_MAX = 900  # of an unsubscribe URL, which must fit on one header line

_CAPITALS = str.maketrans("0123456789abcdef", "ABCDEFGHIJKLMNOP")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_UNCARRIED = re.compile("[\x00\ud800-\udfff]")  # no encoding of a text part can carry them
_DOMAIN = re.compile(r"[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*")
# The headers that differ from recipient to recipient, apart from the subject.
_RECIPIENT_HEADERS = re.compile(
    r"Date: [A-Za-z0-9 ,:+-]{1,40}\r\n"
    r"To: [^\x00-\x20\x7f-\xa0\u2028\u2029\ud800-\udfff\"(),:;<>@\[\\\]]{1,64}"
    r"@[a-z0-9.-]{1,253}\r\n"
    r"Message-ID: <[!#-'*+/-9=?A-Z^-~.-]{1,200}@[A-Za-z0-9.-]{1,253}>\r\n"
    rf"(?:List-Unsubscribe: <https?://[!-;=?-~]{{1,{URL_CHARS_MAX}}}>\r\n"
    r"(?:List-Unsubscribe-Post: List-Unsubscribe=One-Click\r\n)?)?"
)
_ONE_CLICK = "List-Unsubscribe=One-Click"


class MailParts(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a message; subject, html and text are templates."""

    sender: Mailbox
    subject: str
    html: str | None = None
    text: str | None = None  # made from the HTML if there is none
    list_id: tuple[str, str] | None = None  # name for people, identifier (RFC 2919)
    reply_to: Mailbox | None = None
    headers: tuple[tuple[str, str], ...] = ()
    precedence_bulk: bool = True
    auto_submitted: bool = False
    feedback_id: str | None = None
    attachments: EncodedAttachments | None = None


def compile_mail(parts: MailParts) -> CompiledMail:
    """Check and encode what all recipients share; BadTemplate or BadHeader says what to change."""
    header.check_header("Subject", parts.subject)
    if len(parts.subject) > SUBJECT_CHARS_MAX:
        raise BadTemplate(
            _("The subject is over {limit} characters; shorten it.", limit=SUBJECT_CHARS_MAX)
        )
    if control_flow.has_tags(parts.subject):
        raise BadTemplate(_("The subject cannot have conditions; use merge fields in it."))
    bodies, regions = _bodies(parts)
    return CompiledMail(parts, merge.compile_header(parts.subject), bodies, regions)


class CompiledMail:
    """A message ready to be sent; the two renditions of its bodies are made when needed.

    Transports that take no MIME read its structure: the sender, the segments of the subject and of
    both bodies, and the headers that are the same for everybody.
    """

    def __init__(
        self,
        parts: MailParts,
        subject: list[Segment],
        bodies: tuple[_Body, ...],
        regions: Regions,
    ) -> None:
        self.parts = parts
        self.regions = regions  # conditions and loops, whose values are computed per recipient
        self.subject = subject
        self._headers = _fixed_headers(parts)
        self._bodies = bodies
        has_fields = any(isinstance(segment, Field) for segment in subject)
        self._fixed_subject = b"" if has_fields else _subject_line(subject, {})

    @property
    def tail(self) -> bytes:
        """The attachments, with which every email ends; empty if there are none."""
        return self.parts.attachments.tail if self.parts.attachments else b""

    @cached_property
    def template_bytes(self) -> int:
        """The size of the bodies before values are filled in."""
        segments = [part for body in self._bodies for part in body.segments]
        return sum(len(part.encode()) for part in segments if isinstance(part, str))

    @property
    def text(self) -> list[Segment]:
        return self._bodies[0].segments

    @property
    def html(self) -> list[Segment] | None:
        return self._bodies[1].segments if len(self._bodies) > 1 else None

    @property
    def fixed_headers(self) -> list[tuple[str, str]]:
        """Headers that are the same for everybody, decoded, without From and Reply-To."""
        return _header_values(self.parts)

    @property
    def fields(self) -> frozenset[str]:
        """The names of all merge fields."""
        segments = [*self.subject, *(part for body in self._bodies for part in body.segments)]
        segments += [part for region in self.regions.each for part in region.pieces]
        names = {
            part.name
            for part in segments
            if isinstance(part, Field) and part.context is not EscapeContext.READY
        }
        return frozenset(names.union(*(region.names for region in self.regions.each)))

    def splice(
        self,
        recipient: Address,
        values: Mapping[str, str],
        *,
        message_id: str,
        date: str,
        unsubscribe_url: str | None = None,
        one_click: bool = True,
        eight_bit: bool = False,
    ) -> SplicedMail:
        """Write the whole email for one recipient, in pure ASCII unless `eight_bit`.

        Only the To of a recipient who `needs_utf8` is always UTF-8, because such an email goes
        through a server with SMTPUTF8 or not at all. No value of a subscriber makes this fail;
        BadHeader means that the address, Message-ID, Date or URL did not come from us.
        """
        own = {EMAIL: recipient.typed, UNSUBSCRIBE_URL: unsubscribe_url or ""}
        if self.regions:
            values = self.regions.with_values({**values, **own})
        head = _recipient_headers(recipient, message_id, date, unsubscribe_url, one_click)
        if not self._fixed_subject:
            head += _subject_line(self.subject, {**values, **own})
        if eight_bit and self._eight_bit is not None:
            spliced = self._eight_bit.fill(head, values, own)
            if spliced is not None:
                return spliced
        spliced = self._quoted_printable.fill(head, values, own)
        assert spliced is not None  # ASCII in short lines carries every value
        return spliced

    @cached_property
    def _quoted_printable(self) -> QuotedPrintable:
        encoded = [
            [part if isinstance(part, Field) else encode_lines(part) for part in body.segments]
            for body in self._bodies
        ]
        headers = self._mixed_headers(self._fixed_subject + self._headers)
        layout = _layout(headers, self._bodies, encoded, b"quoted-printable")
        return QuotedPrintable(layout, self.tail)

    def _mixed_headers(self, headers: bytes) -> bytes:
        """The headers with MIME-Version; with attachments, up to those of the first part."""
        headers += b"MIME-Version: 1.0\r\n"
        if self.parts.attachments is None:
            return headers
        boundary = self.parts.attachments.boundary
        kind = b'Content-Type: multipart/mixed;\r\n boundary="%b"\r\n' % boundary
        return b"%b%b\r\n--%b\r\n" % (headers, kind, boundary)

    @cached_property
    def _eight_bit(self) -> EightBit | None:
        room = _room_for_values(self._bodies)
        if not room or self.parts.attachments:  # beside base64, 8bit saves nothing
            return None
        encoded = [
            [part.encode() if isinstance(part, str) else part for part in body.segments]
            for body in self._bodies
        ]
        headers = self._mixed_headers(self._fixed_subject + self._headers)
        layout = _layout(headers, self._bodies, encoded, b"8bit")
        delimiters = len(self._bodies) + 1 if len(self._bodies) > 1 else 0
        return EightBit(layout, b"\r\n--" + _boundary(self._bodies), delimiters, room)


class _Body(msgspec.Struct, frozen=True):
    """One text of the email; its lines end with CRLF, including the last one."""

    subtype: str
    segments: list[Segment]


def message_id_end(domain: str) -> str:
    """The end of a Message-ID, after "<" and a token that is the same at every try (RFC 5322)."""
    if not _DOMAIN.fullmatch(domain):
        raise BadHeader(_("A Message-ID must end in an ASCII domain name; change it."))
    return f"@{domain}>"


def format_date(moment: datetime) -> str:
    """Format the Date of an email (RFC 5322 3.3), in UTC."""
    if moment.tzinfo is None:
        raise ValueError("a Date needs a time with a zone")
    return _date_of(int(moment.timestamp()))


@lru_cache(maxsize=16)
def _date_of(second: int) -> str:
    moment = datetime.fromtimestamp(second, UTC)
    # Not strftime, because its names of days and months depend on the locale.
    day = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")[moment.weekday()]
    month = _MONTHS[moment.month - 1]
    return f"{day}, {moment.day:02} {month} {moment.year:04} {moment:%H:%M:%S} +0000"


def _recipient_headers(
    recipient: Address, message_id: str, date: str, unsubscribe_url: str | None, one_click: bool
) -> bytes:
    """Write the headers that differ from recipient to recipient, and check them all at once."""
    lines = f"Date: {date}\r\nTo: {recipient.typed}\r\nMessage-ID: {message_id}\r\n"
    if unsubscribe_url:
        lines += f"List-Unsubscribe: <{unsubscribe_url}>\r\n"
        # One-click without TLS would expose the token on its way (RFC 8058 3.1).
        if one_click and unsubscribe_url.startswith("https:"):
            lines += f"List-Unsubscribe-Post: {_ONE_CLICK}\r\n"
    if not _RECIPIENT_HEADERS.fullmatch(lines):
        raise BadHeader(
            _(
                "The address, the Message-ID, the Date or the unsubscribe URL (http or https, "
                "up to {limit} ASCII characters) cannot be used in a header.",
                limit=URL_CHARS_MAX,
            )
        )
    return lines.encode()


def unsubscribe_headers(url: str) -> list[tuple[str, str]]:
    """The same headers as pairs, for transports that take no MIME."""
    one_click = [("List-Unsubscribe-Post", _ONE_CLICK)] if url.startswith("https:") else []
    return [("List-Unsubscribe", f"<{url}>"), *one_click]


def _machine_headers(parts: MailParts) -> list[tuple[str, str]]:
    headers: list[tuple[str, str]] = []
    if parts.precedence_bulk:
        headers.append(("Precedence", "bulk"))
    if parts.auto_submitted:
        headers.append(("Auto-Submitted", "auto-generated"))
    if parts.precedence_bulk or parts.auto_submitted:
        headers.append(("X-Auto-Response-Suppress", "OOF, AutoReply"))
    if parts.feedback_id is not None:
        headers.append(("Feedback-ID", parts.feedback_id))
    return headers


def _header_values(parts: MailParts) -> list[tuple[str, str]]:
    list_id = [("List-Id", "{} <{}>".format(*parts.list_id))] if parts.list_id else []
    return [*list_id, *_machine_headers(parts), *parts.headers]


def _fixed_headers(parts: MailParts) -> bytes:
    lines = [header.mailbox("From", parts.sender)]
    if parts.reply_to is not None:
        lines.append(header.mailbox("Reply-To", parts.reply_to))
    if parts.list_id is not None:
        lines.append(header.list_id(*parts.list_id))
    lines += [header.structured(name, value) for name, value in _machine_headers(parts)]
    names: set[str] = set()
    for name, value in parts.headers:
        header.check_custom_header(name, value)
        if name.lower() in names:
            raise BadHeader(_("{name} is given twice; use each header only once.", name=name))
        names.add(name.lower())
        lines.append(header.unstructured(name, value))
    return b"".join(lines)


def _subject_line(subject: list[Segment], values: Mapping[str, str]) -> bytes:
    return header.unstructured("Subject", fill(subject, values)[:SUBJECT_CHARS_MAX])


def _bodies(parts: MailParts) -> tuple[tuple[_Body, ...], Regions]:
    """Compile the texts of the email, plainest first (RFC 2046 5.1.4), and their conditions."""
    if parts.html is None:
        if parts.text is None:
            raise BadTemplate(_("The message has no body; write one."))
        text, regions = _compiled(parts.text, is_html=False)
        return (_Body("plain", text),), Regions(regions)
    check_shape(parts.html)
    rich, rich_regions = _compiled(parts.html, is_html=True)
    source = text_from_html(parts.html) if parts.text is None else parts.text
    text, regions = _compiled(source, is_html=False, first=len(rich_regions))
    return (_Body("plain", text), _Body("html", rich)), Regions([*rich_regions, *regions])


def _compiled(
    template: str, *, is_html: bool, first: int = 0
) -> tuple[list[Segment], list[Region]]:
    template = _canonical(template)
    if control_flow.has_tags(template):
        return control_flow.compile_body(template, is_html=is_html, first=first)
    return (merge.compile_html(template) if is_html else merge.compile_text(template)), []


def check_template(template: str, *, is_html: bool) -> None:
    """Check merge fields and conditions of a body; BadTemplate names the line."""
    _compiled(template, is_html=is_html)


def filled_with_defaults(template: str, *, is_html: bool) -> str:
    """A body as nobody in particular would get it: each field shows its default."""
    segments, regions = _compiled(template, is_html=is_html)
    return fill(segments, Regions(regions).with_values({}))


def _canonical(template: str) -> str:
    """End every line with CRLF, including the last one; BadTemplate if it cannot be sent."""
    refused = _UNCARRIED.search(template)
    if refused:
        line = line_of(template, refused.start())
        raise BadTemplate(
            _("Line {line} has a character that is not allowed in emails; remove it.", line=line)
        )
    if len(template.encode()) > BODY_BYTES_MAX:
        limit = BODY_BYTES_MAX >> 20
        raise BadTemplate(_("The body is over {limit} MiB; shorten it.", limit=limit))
    lines = template.replace("\r\n", "\n").replace("\r", "\n").replace("\n", "\r\n")
    return lines if lines.endswith("\r\n") else lines + "\r\n"


def _room_for_values(bodies: tuple[_Body, ...]) -> int:
    """Octets that every value may have in 8bit; 0 if the template's own lines are too long."""
    fields_most = 1
    for body in bodies:
        # NUL, which no template contains, marks a value.
        joined = "".join(part if isinstance(part, str) else "\0" for part in body.segments)
        for line in joined.encode().split(b"\r\n"):
            fields = line.count(b"\0")
            if len(line) - fields > LITERAL_LINE_MAX:
                return 0
            fields_most = max(fields_most, fields)
    return (LINE_OCTETS_MAX - LITERAL_LINE_MAX) // fields_most


def _boundary(bodies: tuple[_Body, ...]) -> bytes:
    """A boundary that quoted-printable cannot produce ("=_") and no author can foresee.

    In capitals, which are rare in text, so that searching for it is four times as fast.
    """
    digest = hashlib.sha256(repr(bodies).encode()).hexdigest()
    return b"=_" + digest[:24].translate(_CAPITALS).encode()


def _layout(
    headers: bytes,
    bodies: tuple[_Body, ...],
    encoded: Sequence[Sequence[bytes | Field]],
    encoding: bytes,
) -> list[bytes | Field]:
    """Lay out the email from its fixed headers on: one part alone, two as multipart/alternative."""
    layout: list[bytes | Field] = [headers]
    part_headers = [
        b"Content-Type: text/%b; charset=utf-8\r\nContent-Transfer-Encoding: %b\r\n\r\n"
        % (body.subtype.encode(), encoding)
        for body in bodies
    ]
    if len(bodies) == 1:
        return [*layout, part_headers[0], *encoded[0]]
    boundary = _boundary(bodies)
    layout.append(b'Content-Type: multipart/alternative;\r\n boundary="%b"\r\n' % boundary)
    for part, content in zip(part_headers, encoded, strict=True):
        layout += [b"\r\n--%b\r\n" % boundary, part, *content]
    return [*layout, b"\r\n--%b--\r\n" % boundary]
