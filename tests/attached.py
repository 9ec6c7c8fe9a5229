"""Attachments for tests, and what the standard library finds in an email."""

from __future__ import annotations

from email import message_from_bytes, policy
from email.message import EmailMessage

from postroom.domain.attachment import media_type_of
from postroom.mail.attachments import EncodedAttachments, encode_attachments

Files = tuple[tuple[str, str, bytes], ...]  # name, type and content of each
SMALL: Files = (
    ("programme.pdf", "application/pdf", bytes(range(256)) * 9),
    ("Übersicht „Herbst“ 講義.txt", "text/plain", "Grüße\r\n.\r\n--=_mixed\n".encode()),
)


def encoded(*files: tuple[str, bytes]) -> EncodedAttachments:
    return encode_attachments([(name, media_type_of(name), content) for name, content in files])


def attachments_in(source: bytes) -> Files:
    """Name, type and content of each attachment, as an independent parser reads them."""
    mail = message_from_bytes(source, policy=policy.default)
    assert isinstance(mail, EmailMessage)
    found = []
    for part in mail.iter_attachments():
        assert part.get_content_disposition() == "attachment"
        content = part.get_payload(decode=True)
        assert isinstance(content, bytes)
        found.append((part.get_filename() or "", part.get_content_type(), content))
    return tuple(found)
