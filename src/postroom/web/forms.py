"""Forms: their values, their errors, and what somebody else saved in the meantime."""

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
ONCE = "once"  # the field with the token of a form that acts once
FIELDS_MAX = 100
FIELD_BYTES_MAX = 64 * 1024
SLICE_BYTES = 32 * 1024  # unescaped at a time, in 3 ms at most
URLENCODED = b"application/x-www-form-urlencoded"
MULTIPART = b"multipart/form-data"
_BOUNDARY = re.compile(rb"[0-9A-Za-z'()+_,./:=? -]{1,70}")  # RFC 2046, 5.1.1


@dataclass
class Form:
    """A form as the page shows it again, with everything that was typed."""

    values: dict[str, str] = field(default_factory=dict)
    mistakes: dict[str, Text | str] = field(default_factory=dict)  # sentences beside the fields
    others: dict[str, str] = field(default_factory=dict)  # what somebody else saved
    mistake: Text | str = ""  # about the whole form
    status: int = HTTPStatus.UNPROCESSABLE_ENTITY  # of the page that shows it again
    picture: tuple[str, bytes] | None = None  # the name and content of an uploaded one

    def value(self, name: str) -> str:
        return self.values.get(name, "")

    def is_ticked(self, name: str) -> bool:
        return bool(self.values.get(name))

    def take(self, name: str, check: Callable[[str], T]) -> T | None:
        """The checked value; None, with an error beside the field, if it is not valid."""
        try:
            return check(self.value(name))
        except BadInput as error:
            self.mistakes[name] = str(error)
            return None

    @property
    def is_good(self) -> bool:
        return not self.mistakes and not self.others and not self.mistake

    def differences(self, now_there: Mapping[str, str]) -> dict[str, str]:
        """The stored values that differ from ours."""
        return {
            name: value
            for name, value in now_there.items()
            if value.strip() != self.value(name).strip()
        }

    def show_others(self, now_there: Mapping[str, str], etag: str) -> bool:
        """Show what somebody else saved beside our values; saving again overwrites it.

        False if nothing differs, as after a second click on the button: the form is saved already.
        """
        self.others = self.differences(now_there)
        if self.others:  # else the etag stays: a repeat must be known as the same submission
            self.values["etag"] = etag
            self.status = HTTPStatus.CONFLICT
        return bool(self.others)

    def keep_for_later(self) -> None:
        """Show the form again after storage failed, before or after it saved the form."""
        self.mistake = _(
            "Storage is not responding. What you entered is still here. Wait and save again."
        )
        self.status = HTTPStatus.SERVICE_UNAVAILABLE


class SubmittedForm(msgspec.Struct):
    """The fields and files of a request; the files exist while it is open."""

    fields: dict[str, str] = {}
    files: dict[str, UploadFile] = {}  # the last one of each field
    all_files: dict[str, list[UploadFile]] = {}  # by field, those without a name left out


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
    """Read a form, urlencoded or multipart; any other body has no fields.

    Line ends become line feeds, as they are stored. `request.state.sent` keeps the form, so that it
    can be recovered after an error.
    """
    kind, options = parse_options_header(request.headers.get("content-type"))
    sent = SubmittedForm()
    if kind == URLENCODED:
        sent.fields = await _urlencoded_fields(request, fields_max, field_bytes_max)
        request.state.sent = SubmittedForm(dict(sent.fields))
    if kind != MULTIPART:
        yield sent
        return
    async with _in_utf_8(request, options.get(b"boundary", b"")).form(
        max_files=files_max, max_fields=fields_max, max_part_size=field_bytes_max
    ) as form:
        for name, value in form.multi_items():
            if isinstance(value, UploadFile):
                sent.files[name] = value
                sent.all_files.setdefault(name, []).extend([value] if value.filename else [])
            else:
                sent.fields[name] = value.replace("\r\n", "\n")
        request.state.sent = SubmittedForm(dict(sent.fields), dict(sent.files))
        yield sent


async def _urlencoded_fields(
    request: Request, fields_max: int, field_bytes_max: int
) -> dict[str, str]:
    """The last value of each name; HTTPException if there are too many or one is too long.

    The framework's parser would block all other requests, for 0.6 s with 4 MB of escapes.
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
    """Percent-decode slice by slice, serving other requests in between."""
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
    """The same request without a charset, because our pages are UTF-8 and send UTF-8.

    The parser would accept any Python codec that a stranger names, and some of them fail.
    """
    if not _BOUNDARY.fullmatch(boundary):
        raise HTTPException(HTTPStatus.BAD_REQUEST)
    kind = MULTIPART + b'; boundary="' + boundary + b'"'
    others = [each for each in request.scope["headers"] if each[0] != b"content-type"]
    scope = {**request.scope, "headers": [*others, (b"content-type", kind)]}
    return Request(scope, request.receive)


def new_token() -> str:
    """The token of a form that acts once."""
    return secrets.token_urlsafe(18)


def list_named(name: str) -> str:
    """Check a list name from a URL: NotFound, not BadInput, because nobody typed it."""
    try:
        return check_list_name(name)
    except BadInput as error:
        raise NotFound(str(error)) from None
