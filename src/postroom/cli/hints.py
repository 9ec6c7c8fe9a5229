"""Suggests a command or option after an error, because errors themselves do not name any."""

from __future__ import annotations

from postroom.actions.export_people import TooManyColumns
from postroom.domain.access_key import NoSuchKey, TooManyLists
from postroom.domain.mailing_list import NoSuchList
from postroom.domain.subscriber import AlreadySubscribed
from postroom.importing.csv_people import NoEmailColumn
from postroom.migration.migrate import AlreadyMoved
from postroom.migration.state import StorageClosed


def hint(error: BaseException) -> str:
    """Return one sentence, or an empty string."""
    match error:
        case AlreadySubscribed() if error.subscriber.inactive_reason:
            return "Then use --bring-back."
        case NoSuchList():
            return f"Create it with “postroom list create {error.name} --from ADDRESS”."
        case NoSuchKey():
            return "“postroom key all” shows their ids."
        case TooManyLists():
            return "Leave out --list for a key to every list."
        case NoEmailColumn():
            return "Choose the one with the addresses with --column email=NAME."
        case TooManyColumns():
            return "Use “postroom subscriber export --json”."
        case StorageClosed():
            return (
                "“postroom migrate” finishes a migration; “postroom migrate --reopen” opens its "
                "source again."
            )
        case AlreadyMoved():
            return "“--verify-only” compares the two again; “--reopen” opens it to be moved again."
    return ""
