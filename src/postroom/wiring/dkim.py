"""The DKIM keys that the settings name, read from their files."""

from __future__ import annotations

from postroom.domain.dkim import parse_key_places
from postroom.domain.errors import BadInput
from postroom.mail.dkim_keys import DkimKey, load_keys
from postroom.settings import BadSettings, Settings


def dkim_keys_of(settings: Settings) -> tuple[DkimKey, ...]:
    """Read all keys; BadSettings if one cannot be used.

    Only senders and the commands about keys do so, because nobody else has to be able to.
    """
    try:
        return load_keys(parse_key_places(settings.dkim_keys))
    except BadInput as error:
        origin = settings.origin("dkim_keys")
        why = str(error).rstrip(".")
        raise BadSettings([f"POSTROOM_DKIM_KEYS: {why} (from {origin})."]) from error
