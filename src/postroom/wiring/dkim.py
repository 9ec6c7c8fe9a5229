"""The DKIM keys that the settings name, read from their files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroom.domain.dkim import parse_key_places
from postroom.domain.errors import BadInput
from postroom.settings import BadSettings, Settings

if TYPE_CHECKING:
    from postroom.mail.dkim_keys import DkimKey


def dkim_keys_of(settings: Settings) -> tuple[DkimKey, ...]:
    """Read all keys; BadSettings if one cannot be used.

    Only senders and the commands about keys read them; nothing else needs access to the files.
    """
    if not settings.dkim_keys:
        return ()
    from postroom.mail.dkim_keys import load_keys

    try:
        return load_keys(parse_key_places(settings.dkim_keys))
    except BadInput as error:
        origin = settings.origin("dkim_keys")
        why = str(error).rstrip(".")
        raise BadSettings([f"POSTROOM_DKIM_KEYS: {why} (from {origin})."]) from error
