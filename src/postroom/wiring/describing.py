"""What people may see of the addresses in the settings, and of the disk behind the storage."""

from __future__ import annotations

import shutil

from postroom.settings import Settings
from postroom.wiring.engines import engine_of
from postroom.wiring.mailboxes import mailbox_of
from postroom.wiring.transports import transport_of


def describe(settings: Settings) -> dict[str, str]:
    """The settings that contain secrets, described without them."""
    mailbox = mailbox_of(settings)
    return {
        "storage": engine_of(settings).description,
        "transport": transport_of(settings).description,
        "bounce_mailbox": mailbox.description if mailbox else "none",
    }


def free_bytes_of(settings: Settings) -> int | None:
    """The space left for the database; None if it is not a file, or its disk is gone."""
    path = engine_of(settings).path
    try:
        return shutil.disk_usage(path.parent).free if path else None
    except OSError:
        return None
