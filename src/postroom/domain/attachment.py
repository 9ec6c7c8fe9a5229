"""Files attached to a message: what is allowed, their names, types and sizes."""

from __future__ import annotations

import hashlib
import mimetypes
import re
import unicodedata
from collections.abc import Sequence

import msgspec

from postroom.domain.errors import BadInput
from postroom.domain.texts import _, clipped
from postroom.domain.token import new_guid

FILES_MAX = 10  # for more, link to a page with downloads
# Of all files of a message. Encoded they have a third more, and many servers refuse emails over
# 10 to 25 MB: Azure Communication Services 10, Exchange Online and Gmail 25.
ATTACHED_BYTES_MAX = 10 * 1024**2
HEAVY_BYTES = 5 * 1024**2  # from here on the checks suggest a link
NAME_CHARS_MAX = 120  # leaves room for a folder where people save it
_NAME_CHARS_COMPOSED = 4 * NAME_CHARS_MAX  # composing a long text takes quadratic time
LINE_BYTES = 57  # of a file in one line of base64, which is 76 characters (RFC 2045 6.8)
ENCODED_LINE_BYTES = 78  # with its line end

UNKNOWN_TYPE = "application/octet-stream"
# Without the files of the operating system, so that every machine has the same types.
_TYPES = mimetypes.MimeTypes()
_OWN_TYPES = {  # which older versions of Python do not know
    "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    "odt": "application/vnd.oasis.opendocument.text",
    "ods": "application/vnd.oasis.opendocument.spreadsheet",
    "odp": "application/vnd.oasis.opendocument.presentation",
    "epub": "application/epub+zip",
    "ics": "text/calendar",
    "vcf": "text/vcard",
    "md": "text/markdown",
    "webp": "image/webp",
    "heic": "image/heic",
    "gz": "application/gzip",
    "7z": "application/x-7z-compressed",
    "rtf": "application/rtf",
}
# What Gmail or Outlook refuses to deliver or to open.
# https://support.google.com/mail/answer/6590 and Outlook’s list of blocked attachments.
_BLOCKED = """
    ade adp apk app appcontent-ms application appref-ms appx appxbundle asp aspx asx bas bat bgi
    cab cer chm cmd cnt com cpl crt csh der diagcab diagcfg diagpkg dll dmg ex ex_ exe fxp gadget
    grp hlp hpj hta htc img inf ins iso isp its jar jnlp js jse ksh lib lnk mad maf mag mam maq mar
    mas mat mau mav maw mcf mda mdb mde mdt mdw mdz mjs msc msh msh1 msh2 mshxml msi msix
    msixbundle msp mst msu nsh ops osd pcd pif pl plg prf prg printerexport ps1 ps1xml ps2 ps2xml
    psc1 psc2 psd1 psdm1 pst py pyc pyo pyw pyz pyzw reg scf scr sct sh shb shs sys theme tmp url
    vb vbe vbp vbs vhd vhdx vsmacros vsw vxd webpnp website ws wsb wsc wsf wsh xbap xll xnk
"""
BLOCKED_ENDINGS = frozenset(_BLOCKED.split())
# Invisible characters that turn the reading direction, so that “exe.pdf” may be a program.
_TURNING = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_RESERVED = re.compile(r'[<>:"|?*]')  # in file names of Windows
_DEVICES = re.compile(r"(?i)(con|prn|aux|nul|com[0-9]|lpt[0-9])(\.|\Z)")
_PLAIN_TYPE = re.compile(r"[a-z0-9][a-z0-9.+-]{0,60}/[a-z0-9][a-z0-9.+-]{0,80}")


class Attachment(msgspec.Struct, frozen=True):
    """One file of a message, as its row describes it; the blob has the content."""

    id: str
    name: str
    media_type: str
    bytes: int
    sha256: str

    @property
    def encoded_bytes(self) -> int:
        """The size of the content in an email."""
        lines, rest = divmod(self.bytes, LINE_BYTES)
        return lines * ENCODED_LINE_BYTES + (-(-rest // 3) * 4 + 2 if rest else 0)


class NewFile(msgspec.Struct, frozen=True):
    """A file that somebody wants to attach."""

    name: str
    content: bytes


def new_attachment(file: NewFile, others: Sequence[Attachment], id: str = "") -> Attachment:
    """Check a file and those the message already has; BadInput explains what to change."""
    name = clean_name(file.name)
    if len(others) >= FILES_MAX:
        raise BadInput(_("A message has at most {limit} attachments.", limit=FILES_MAX))
    if not file.content:
        raise BadInput(_("“{name}” is empty.", name=name))
    total = len(file.content) + total_bytes(others)
    if total > ATTACHED_BYTES_MAX:
        raise BadInput(
            _(
                "“{name}” cannot be attached: all attachments together may be at most {limit} "
                "MiB. Put it on a website and link to it.",
                name=name,
                limit=ATTACHED_BYTES_MAX // 1024**2,
            )
        )
    return Attachment(
        id or new_guid(),
        _unlike(name, {each.name.lower() for each in others}),
        media_type_of(name),
        len(file.content),
        hashlib.sha256(file.content).hexdigest(),
    )


def new_attachments(files: Sequence[NewFile], others: Sequence[Attachment]) -> list[Attachment]:
    """Check all files together; BadInput is about the first that cannot be attached."""
    added: list[Attachment] = []
    for file in files:
        added.append(new_attachment(file, [*others, *added]))
    return added


def total_bytes(attachments: Sequence[Attachment]) -> int:
    return sum(each.bytes for each in attachments)


def encoded_bytes(attachments: Sequence[Attachment]) -> int:
    return sum(each.encoded_bytes for each in attachments)


def clean_name(text: str) -> str:
    """The file name without folders and reserved characters; BadInput if it cannot be used."""
    name = text.replace("\\", "/").rpartition("/")[2]
    if len(name) > _NAME_CHARS_COMPOSED:
        raise _name_too_long(name)
    name = unicodedata.normalize("NFC", name)
    has_control = any(unicodedata.category(each) in ("Cc", "Cs", "Zl", "Zp") for each in name)
    if has_control or _TURNING.search(name):
        raise BadInput(
            _(
                "The file name “{name}” contains invisible characters. Rename the file.",
                name=_shown(name),
            )
        )
    name = " ".join(_RESERVED.sub("_", name).split()).rstrip(". ")
    if not name:
        raise BadInput(_("The file has no name. Give it one."))
    if len(name) > NAME_CHARS_MAX:
        raise _name_too_long(name)
    if (ending := _ending(name)) in BLOCKED_ENDINGS:
        raise BadInput(
            _(
                "“{name}” cannot be attached: Gmail and Outlook block files that end in "
                ".{ending}, and often the whole email. Put it on a website and link to it.",
                name=name,
                ending=ending,
            )
        )
    return f"_{name}" if _DEVICES.match(name) else name


def _name_too_long(name: str) -> BadInput:
    return BadInput(
        _(
            "The file name “{name}” is longer than {limit} characters. Shorten it.",
            name=_shown(name[:_NAME_CHARS_COMPOSED]),
            limit=NAME_CHARS_MAX,
        )
    )


def media_type_of(name: str) -> str:
    """The media type for the file extension; only types that can be sent as base64."""
    guessed, encoding = _TYPES.guess_type(f"x.{_ending(name)}", strict=True)
    found = _OWN_TYPES.get(_ending(name)) or (guessed if not encoding else None) or UNKNOWN_TYPE
    # An email or a multipart in base64 is not allowed (RFC 2046 5).
    is_container = found.startswith(("message/", "multipart/"))
    return found if _PLAIN_TYPE.fullmatch(found) and not is_container else UNKNOWN_TYPE


def _ending(name: str) -> str:
    """The extension as people see it: without invisible characters, wide letters made plain."""
    seen = "".join(
        each
        for each in unicodedata.normalize("NFKC", name)
        if unicodedata.category(each) not in ("Cf", "Mn")
    ).rstrip(". ")
    return seen.rpartition(".")[2].lower() if "." in seen else ""


def _shown(name: str) -> str:
    return clipped("".join(each if each.isprintable() else "?" for each in name), 60)


def _unlike(name: str, taken: set[str]) -> str:
    """“plan (2).pdf” if there is a “plan.pdf”."""
    stem, dot, ending = name.rpartition(".")
    if not stem:
        stem, dot, ending = name, "", ""
    number = 1
    unique = name
    while unique.lower() in taken:
        number += 1
        unique = f"{stem} ({number}){dot}{ending}"
    return unique
