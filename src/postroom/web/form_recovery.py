"""Recovery of forms that could not be saved: a page with the same fields and a button to retry.

The page answers the request that sent the fields, so it reveals nothing new and needs neither
storage nor a session; a user who signed out in another tab gets it, too. Only forms of our own
pages are recovered, because a form of another site would count as ours when submitted again. The
page asks for passwords and files again.

If the form was not read before the failure, it is read now. The caller may be a stranger, so size,
time and the number of forms read at once are limited.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Mapping

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

from postroom.domain.message import BODY_BYTES_MAX
from postroom.domain.texts import Text, _
from postroom.web.context import one_per_app
from postroom.web.forms import MULTIPART, ONCE, SubmittedForm, opened
from postroom.web.security import TooLarge, is_body_begun
from postroom.web.signed_in import ADMIN, NotAllowed, check_network_and_origin

CHARS_MAX = 2 * BODY_BYTES_MAX + 64 * 1024  # both bodies of a message, and the other fields
READ_BYTES_MAX = 10 * 1024 * 1024  # the same, encoded
READ_S_MAX = 5.0
READ_AT_ONCE_MAX = 4
FILES_MAX = 13  # the two bodies, a picture and the attachments of a message
_HIDDEN = ("etag", ONCE)
_LENGTH = re.compile(r"[0-9]{1,12}")
_LABELS: Mapping[str, Text] = {
    "old_password": _("Current password"),
    "new_password": _("New password"),
    "html_file": _("HTML file"),
    "text_file": _("Text file"),
    "attachments": _("Attachments"),
    "picture_file": _("Picture"),
    "pictures": _("Pictures"),
}


class FieldToRepeat(msgspec.Struct, frozen=True):
    """A field that must be filled in again."""

    name: str
    label: Text
    type: str


class RecoveredForm(msgspec.Struct, frozen=True):
    """A form that can be submitted again as it was."""

    action: str
    fields: dict[str, str]
    again: list[FieldToRepeat]
    is_multipart: bool

    @property
    def typed(self) -> list[str]:
        """The names of the fields that people fill in."""
        return [name for name, text in self.fields.items() if text and name not in _HIDDEN]


async def recovered_form(request: Request) -> RecoveredForm | None:
    """The form of a request; None if it is too large or not from our pages."""
    if not _is_own_form(request):
        return None
    sent = getattr(request.state, "sent", None) or await _read_now(request)
    if sent is None or sum(map(len, sent.fields.values())) > CHARS_MAX:
        return None
    content_type = request.headers.get("content-type", "")
    again = [("password", name, _("Password")) for name in sent.fields if "password" in name]
    again += [("file", name, _("File")) for name, file in sent.files.items() if file.filename]
    return RecoveredForm(
        action=path_and_query(request),
        fields={name: text for name, text in sent.fields.items() if "password" not in name},
        again=[FieldToRepeat(name, _LABELS.get(name, label), kind) for kind, name, label in again],
        is_multipart=content_type.lower().startswith(MULTIPART.decode()),
    )


def path_and_query(request: Request) -> str:
    return request.url.path + (f"?{request.url.query}" if request.url.query else "")


def _is_own_form(request: Request) -> bool:
    """Exclude fragments of a page, which nobody can submit again, and forms of other sites."""
    is_post = request.method == "POST" and request.url.path.startswith(f"{ADMIN}/")
    is_page = request.headers.get("sec-fetch-dest", "document") == "document"
    if not is_post or not is_page or "hx-request" in request.headers:
        return False
    with contextlib.suppress(NotAllowed):
        check_network_and_origin(request)
        return True
    return False


async def _read_now(request: Request) -> SubmittedForm | None:
    readers = one_per_app(request.app, _semaphore)
    length = request.headers.get("content-length", "")  # browsers send it with every form
    is_small = bool(_LENGTH.fullmatch(length)) and int(length) <= READ_BYTES_MAX
    if is_body_begun(request.scope) or not is_small or readers.locked():
        return None
    try:
        async with (
            readers,
            asyncio.timeout(READ_S_MAX),
            opened(request, field_bytes_max=CHARS_MAX, files_max=FILES_MAX) as sent,
        ):
            return sent
    except (HTTPException, TooLarge, ClientDisconnect, TimeoutError):
        return None


def _semaphore() -> asyncio.Semaphore:
    return asyncio.Semaphore(READ_AT_ONCE_MAX)
