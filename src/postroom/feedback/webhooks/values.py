"""Read single values from a post: bounded and printable, but not otherwise trusted."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TypeVar

import msgspec

from postroom.feedback.webhooks.post import WebhookLimits

ID_CHARS_MAX = 128
ADDRESS_CHARS_MAX = 320  # 64 + @ + 255
NAME_CHARS_MAX = 256  # the provider's own name for an email
WORDS_CHARS_MAX = 500
DELIVERY_ARGUMENT = "postroom_delivery"  # what our transports call it in custom arguments

T = TypeVar("T")

_TOKEN = re.compile(r"(?:[a-z2-7]{32}|[a-z2-7]{40})")
_SAFE_ID = re.compile(rf"[A-Za-z0-9._=:+-]{{1,{ID_CHARS_MAX}}}")  # also as a key in storage
_STATUS = re.compile(r"[245]\.[0-9]{1,3}\.[0-9]{1,3}")
_SECONDS = re.compile(r"[0-9]{1,12}")
_EARLIEST_S = 946_684_800  # 2000: before it there was no provider
_LATEST_S = 4_102_444_800  # 2100


def decoded(decoder: msgspec.json.Decoder[T], text: bytes | str | msgspec.Raw) -> T | None:
    """What the decoder reads; None if it is not JSON, too deeply nested, or of another form."""
    try:
        return decoder.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def decoded_base64(text: str, chars_max: int) -> bytes:
    """Empty if it is too long or not base64."""
    if len(text) > chars_max:
        return b""
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        return b""


def event_id(*parts: str) -> str:
    """The parts joined; if they do not fit a storage key, their hash, the same every time."""
    joined = ".".join(parts)
    if _SAFE_ID.fullmatch(joined):
        return joined
    return digest(*parts)


def digest(*parts: str) -> str:
    text = "\0".join(parts).encode("utf-8", "surrogatepass")
    return hashlib.sha256(text).hexdigest()[:40]


def line(text: str, chars_max: int = WORDS_CHARS_MAX) -> str:
    """One printable line of bounded length."""
    if len(text) <= chars_max and text.isprintable():
        return text
    kept = "".join(each if each.isprintable() else " " for each in text[: chars_max * 2])
    return " ".join(kept.split())[:chars_max]


def address(text: str) -> str:
    """The recipient as reported; empty if it cannot be an address."""
    is_one = len(text) <= ADDRESS_CHARS_MAX and text.isprintable() and "@" in text
    return text if is_one else ""


def name(text: str) -> str:
    """The provider's name for an email; empty if it is not one."""
    return text if len(text) <= NAME_CHARS_MAX and text.isprintable() else ""


def status(text: str) -> str:
    """An enhanced status code (RFC 3463), or nothing."""
    return text if _STATUS.fullmatch(text) else ""


def delivery(text: str) -> str:
    """A delivery token, checked only by its form; the caller checks its MAC."""
    token = text.lower()
    return token if _TOKEN.fullmatch(token) else ""


def delivery_of_message_id(text: str) -> str:
    """The delivery token in the local part of a Message-ID of ours."""
    return delivery(text.strip().removeprefix("<").partition("@")[0][:ID_CHARS_MAX])


def moment(value: float | str | None) -> datetime | None:
    """Seconds since the epoch or RFC 3339, as an aware time in UTC; None if it is neither."""
    if isinstance(value, str):
        return _parsed(value)
    if value is None or not _EARLIEST_S <= value <= _LATEST_S:  # also refuses NaN
        return None
    return datetime.fromtimestamp(value, UTC)


def _parsed(text: str) -> datetime | None:
    try:
        at = msgspec.convert(text[:64], datetime)
        at = at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    except (msgspec.ValidationError, OverflowError):
        return None
    return at if _EARLIEST_S <= at.timestamp() <= _LATEST_S else None


def is_in_window(signed_at: str, now: datetime, limits: WebhookLimits) -> bool:
    """Whether a signature's time, in seconds, is neither too old nor in the future."""
    if not _SECONDS.fullmatch(signed_at):
        return False
    age_s = now.timestamp() - int(signed_at)
    return -limits.skew_s <= age_s <= limits.window_s + limits.skew_s


def is_secret(given: str, secrets: Iterable[str]) -> bool:
    """Compare with each secret in constant time; an empty secret matches nothing."""
    found = False
    for secret in secrets:
        same = hmac.compare_digest(given.encode("utf-8", "replace"), secret.encode())
        found |= same and bool(secret)
    return found
