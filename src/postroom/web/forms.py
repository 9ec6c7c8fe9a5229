"""Forms: what was typed, what is wrong with it, and what somebody else typed meanwhile."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TypeVar
from urllib.parse import unquote_to_bytes

import msgspec
from python_multipart.multipart import parse_options_header
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request

from postroom.domain.errors import BadInput, NotFound
from postroom.domain.mailing_list import check_list_name
from postroom.domain.texts import Text, _

T = TypeVar("T")
ONCE = "once"  # the field with the token of a form that acts once (once.py)
FIELDS_MAX = 100
FIELD_BYTES_MAX = 64 * 1024
SLICE_BYTES = 32 * 1024  # unescaped at a time, in 3 ms at most
URLENCODED, MULTIPART = b"application/x-www-form-urlencoded", b"multipart/form-data"
_BOUNDARY = re.compile(rb"[0-9A-Za-z'()+_,./:=? -]{1,70}")  # RFC 2046, 5.1.1


@dataclass
class Form:
    """A form as it goes back to the page: nothing typed is lost."""

    values: dict[str, str] = field(default_factory=dict)
    mistakes: dict[str, Text | str] = field(default_factory=dict)  # a sentence beside the field
    others: dict[str, str] = field(default_factory=dict)  # what stands there now, by somebody else
    mistake: Text | str = ""  # about the whole

    def value(self, name: str) -> str:
        return self.values.get(name, "")

    def is_ticked(self, name: str) -> bool:
        return bool(self.values.get(name))

    def take(self, name: str, check: Callable[[str], T]) -> T | None:
        """The value as it is stored; None, and a sentence beside the field, if it cannot be."""
        try:
            return check(self.value(name))
        except BadInput as error:
            self.mistakes[name] = str(error)
            return None

    @property
    def is_good(self) -> bool:
        return not self.mistakes and not self.others and not self.mistake

    def show_others(self, now_there: Mapping[str, str], etag: str) -> bool:
        """Somebody else was faster: their values beside ours; sending again overwrites them.

        False if nothing differs: what was typed is there already, as after a second click on the
        button, and the form is as good as saved.
        """
        self.others = {
            name: value
            for name, value in now_there.items()
            if value.strip() != self.value(name).strip()
        }
        self.values["etag"] = etag
        return bool(self.others)

    def keep_for_later(self) -> None:
        """Storage failed, and nobody knows whether before or after it took what was typed."""
        self.mistake = _(
            "Storage does not answer: what you typed is still here. Wait a little, and save again."
        )


class SubmittedForm(msgspec.Struct):
    """What a browser sent; files are there as long as it is open."""

    fields: dict[str, str] = {}
    files: dict[str, UploadFile] = {}


async def posted(request: Request) -> Form:
    async with opened(request) as sent:
        return Form(sent.fields)


@asynccontextmanager
async def opened(
    request: Request,
    *,
    fields_max: int = FIELDS_MAX,
    field_bytes_max: int = FIELD_BYTES_MAX,
    files_max: int = 0,
) -> AsyncIterator[SubmittedForm]:
    """The one reader of forms: a urlencoded or multipart body; one that is neither has no fields.

    Lines end in a line feed, as they do where they are stored, whatever browsers make of them. The
    request remembers what was sent, for kept.py.
    """
    asked = request
    kind, options = parse_options_header(request.headers.get("content-type"))
    if kind not in (URLENCODED, MULTIPART):
        yield SubmittedForm()
        return
    if kind == URLENCODED:
        fields = await _urlencoded_fields(request, fields_max, field_bytes_max)
        asked.state.sent = SubmittedForm(dict(fields))
        yield SubmittedForm(fields)
        return
    request = _in_utf_8(request, options.get(b"boundary", b""))
    async with request.form(
        max_files=files_max, max_fields=fields_max, max_part_size=field_bytes_max
    ) as form:
        sent = SubmittedForm()
        for name, value in form.items():
            if isinstance(value, UploadFile):
                sent.files[name] = value
            else:
                sent.fields[name] = value.replace("\r\n", "\n")
        asked.state.sent = SubmittedForm(dict(sent.fields), dict(sent.files))
        yield sent


async def _urlencoded_fields(
    request: Request, fields_max: int, field_bytes_max: int
) -> dict[str, str]:
    """The last of each name; HTTPException if there are too many, or one is too long.

    Not the framework's parser: it takes 0.6 s for 4 MB of escapes, and nobody else is answered
    meanwhile.
    """
    body = bytearray()
    ends = 0
    async for chunk in request.stream():
        body += chunk
        ends += chunk.count(b"&")
        if ends > fields_max:
            raise HTTPException(HTTPStatus.BAD_REQUEST)
    fields: dict[str, str] = {}
    for pair in filter(None, bytes(body).split(b"&")):
        if len(pair) > field_bytes_max:
            raise HTTPException(HTTPStatus.BAD_REQUEST)
        name, _equals, value = pair.partition(b"=")
        fields[await unescaped(name)] = (await unescaped(value)).replace("\r\n", "\n")
    return fields


async def unescaped(text: bytes, slice_bytes: int = SLICE_BYTES) -> str:
    """Percent-decoded slice by slice, and others get their turn in between."""
    text = text.replace(b"+", b" ")
    slices: list[bytes] = []
    start = 0
    while start < len(text):
        end = start + slice_bytes
        cut = text.rfind(b"%", end - 2, end)  # an escape is not cut in two
        end = cut if cut > start else end
        slices.append(unquote_to_bytes(text[start:end]))
        start = end
        if start < len(text):
            await asyncio.sleep(0)
    return b"".join(slices).decode("utf-8", "replace")


def _in_utf_8(request: Request, boundary: bytes) -> Request:
    """The same request without a charset: pages of ours are UTF-8, and so is what they send.

    The parser would take every codec of Python that a stranger names, and some of them fail.
    """
    if not _BOUNDARY.fullmatch(boundary):
        raise HTTPException(HTTPStatus.BAD_REQUEST)
    kind = MULTIPART + b'; boundary="' + boundary + b'"'
    others = [each for each in request.scope["headers"] if each[0] != b"content-type"]
    scope = {**request.scope, "headers": [*others, (b"content-type", kind)]}
    return Request(scope, request.receive)


def new_token() -> str:
    """For a form that acts once, made when it is shown."""
    return secrets.token_urlsafe(18)


def list_named(name: str) -> str:
    """A list name out of an address of ours: NotFound, not BadInput, for nobody typed it."""
    try:
        return check_list_name(name)
    except BadInput as error:
        raise NotFound(str(error)) from None
