"""A mail as a provider wants it: templates with its own placeholders, values escaped by us.

Providers merge differently, and none of them escapes a value for the place where it is used. So
each field becomes a placeholder, and its value is sent as our own merge would write it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

from postroom.domain.message import SUBJECT_CHARS_MAX
from postroom.mail import header
from postroom.mail.attachments import EncodedFile
from postroom.mail.merge import Field, Segment, escape, fill, value_of
from postroom.mail.mime import CompiledMail
from postroom.transport.port import OutgoingMail


class PlaceholderTemplate:
    """One compiled mail with numbered placeholders instead of its fields."""

    def __init__(
        self,
        compiled: CompiledMail,
        placeholder: Callable[[int], str],
        protect: Callable[[Sequence[Segment]], Sequence[Segment]] = lambda segments: segments,
    ) -> None:
        self._placeholder = placeholder
        self._names: dict[Field, str] = {}
        self._protect = protect
        self.text = self._written(compiled.text)
        self.html = self._written(compiled.html) if compiled.html is not None else None

    def _written(self, segments: Sequence[Segment]) -> str:
        return "".join(
            part if isinstance(part, str) else self._name(part) for part in self._protect(segments)
        )

    def _name(self, field: Field) -> str:
        if field not in self._names:
            self._names[field] = self._placeholder(len(self._names))
        return self._names[field]

    def values(self, values: Mapping[str, str]) -> dict[str, str]:
        """The escaped value of every placeholder."""
        return {
            name: escape(value_of(field, values), field.context)
            for field, name in self._names.items()
        }


def has_fields(segments: Sequence[Segment]) -> bool:
    return any(isinstance(part, Field) for part in segments)


def subject_of(compiled: CompiledMail, values: Mapping[str, str]) -> str:
    """The merged subject; a space if it is empty, because providers refuse an empty one."""
    return fill(compiled.subject, values)[:SUBJECT_CHARS_MAX] or " "


@lru_cache(maxsize=16)
def shared_headers(compiled: CompiledMail) -> tuple[tuple[str, str], ...]:
    """The headers that are the same for everybody, as ASCII on one line each."""
    list_id = compiled.parts.list_id
    return tuple(
        (
            name,
            _on_one_line(
                header.list_id(*list_id)
                if name == "List-Id" and list_id
                else header.unstructured(name, value)
            ),
        )
        for name, value in compiled.fixed_headers
    )


def attached_files(compiled: CompiledMail) -> list[tuple[EncodedFile, str]]:
    """The attachments, each with its content as base64 without line ends."""
    attachments = compiled.parts.attachments
    if attachments is None:
        return []
    return [(each, attachments.base64_of(each)) for each in attachments.files]


def mailbox_of(compiled: CompiledMail) -> str:
    """The From as it is written in a header."""
    return _on_one_line(header.mailbox("From", compiled.parts.sender))


def same_message(mails: Sequence[OutgoingMail]) -> list[list[int]]:
    """The places of the mails of each message, in order."""
    found: dict[int, list[int]] = {}
    for place, mail in enumerate(mails):
        found.setdefault(id(mail.compiled), []).append(place)
    return list(found.values())


def _on_one_line(line: bytes) -> str:
    return line.decode("ascii").replace("\r\n", "").partition(":")[2].strip()
