"""What was sent and could not be saved, given back: the same fields, and a button to try again.

The page is the answer to the request that brought the fields, so it tells nobody anything new, and
needs neither storage nor a session: whoever signed out in another tab gets it, too. It is made for
what our own pages sent alone: a form of another site, given back, would come from ours when it is
sent again. Passwords and files do not come back;
the page asks for them anew.

If nothing of the form was read before it failed, it is read now. Whoever sent it may be a stranger,
so there is a limit on how much, how long, and for how many at once.
"""

from __future__ import annotations

import asyncio
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

CHARS_MAX = 2 * BODY_BYTES_MAX + 64 * 1024  # both bodies of a message, and what stands around them
READ_BYTES_MAX = 10 * 1024 * 1024  # the same as it is sent
READ_S_MAX = 5.0
READ_AT_ONCE_MAX = 4
FILES_MAX = 2
_CARRIED = ("etag", ONCE)
_LENGTH = re.compile(r"[0-9]{1,12}")
_LABELS: Mapping[str, Text] = {
    "old_password": _("Password now"),
    "new_password": _("New password"),
    "html_file": _("HTML file"),
    "text_file": _("Text file"),
}


class FieldToRepeat(msgspec.Struct, frozen=True):
    """A field that must be filled in once more."""

    name: str
    label: Text
    type: str


class RecoveredForm(msgspec.Struct, frozen=True):
    """A form that can be sent again as it was."""

    action: str
    fields: dict[str, str]
    again: list[FieldToRepeat]
    is_multipart: bool

    @property
    def typed(self) -> list[str]:
        """The names of what people typed or chose; the rest forms carry for themselves."""
        return [name for name, text in self.fields.items() if text and name not in _CARRIED]


async def recovered_form(request: Request) -> RecoveredForm | None:
    """None if it is no form of ours, or more than can be given back."""
    if not _is_own_form(request):
        return None
    sent = getattr(request.state, "sent", None) or await _read_now(request)
    if sent is None or sum(map(len, sent.fields.values())) > CHARS_MAX:
        return None
    passwords = [name for name in sent.fields if _is_password(name)]
    files = [name for name, file in sent.files.items() if file.filename]
    return RecoveredForm(
        action=request.url.path + (f"?{request.url.query}" if request.url.query else ""),
        fields={name: text for name, text in sent.fields.items() if name not in passwords},
        again=[
            *(
                FieldToRepeat(name, _LABELS.get(name, _("Password")), "password")
                for name in passwords
            ),
            *(FieldToRepeat(name, _LABELS.get(name, _("File")), "file") for name in files),
        ],
        is_multipart=_kind(request).startswith(MULTIPART.decode()),
    )


def _is_own_form(request: Request) -> bool:
    """Not a part of a page, which nobody could send again; nor what another site sent."""
    is_page = request.headers.get("sec-fetch-dest", "document") == "document"
    if request.method != "POST" or not is_page or "hx-request" in request.headers:
        return False
    if not request.url.path.startswith(f"{ADMIN}/"):
        return False
    try:
        check_network_and_origin(request)
    except NotAllowed:
        return False
    return True


async def _read_now(request: Request) -> SubmittedForm | None:
    readers = _readers_of(request)
    if is_body_begun(request.scope) or not _is_small(request) or readers.locked():
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


def _is_small(request: Request) -> bool:
    """Browsers say how long a form is; whoever does not is none."""
    length = request.headers.get("content-length", "")
    return bool(_LENGTH.fullmatch(length)) and int(length) <= READ_BYTES_MAX


def _readers_of(request: Request) -> asyncio.Semaphore:
    return one_per_app(request.app, _readers)


def _readers() -> asyncio.Semaphore:
    return asyncio.Semaphore(READ_AT_ONCE_MAX)


def _is_password(name: str) -> bool:
    return "password" in name


def _kind(request: Request) -> str:
    return request.headers.get("content-type", "").lower()
