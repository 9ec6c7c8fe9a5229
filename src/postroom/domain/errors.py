"""The family tree of errors. A test keeps this picture true.

    PostroomError              a person caused it or must fix it; its text is a sentence for them
        BadInput               what a person typed cannot be used
            AmbiguousTime      domain/due_time.py
            BadAddress         domain/address.py
            BadBlock           domain/block.py
            BadDesign          domain/theme.py
            BadHeader          mail/header.py
            BadTemplate        mail/merge.py
            NoEmailColumn      importing/csv_people.py
            NonexistentTime    domain/due_time.py
            SeveralPages       actions/import_page.py
            TimeInThePast      domain/due_time.py
            TooManyColumns     actions/export_people.py
            TooManyLists       domain/access_key.py
            UnknownZone        domain/due_time.py
            WrongPassword      actions/sign_in.py
        NotFound               the thing named does not exist
            NoSuchKey          domain/access_key.py
            NoSuchList         domain/mailing_list.py
            NotSuppressed      actions/manage_suppressions.py
        AlreadyThere           a thing of that name exists
            AlreadySubscribed  domain/subscriber.py
        WrongState             the thing exists, but this cannot be done with it now
            AlreadyMoved       migration/migrate.py
        BadSettings            settings.py: every mistake at once
    StorageError               storage/port.py: a storage call failed
        Conflict               the row is not the version that was expected; nothing changed
        ClaimLost              the claim on a queue item has expired
        Unavailable            no answer in time: it may or may not have taken effect
            StorageClosed      migration/state.py: the storage is being moved or was moved
            StorageGone        the storage that was opened no longer exists
            TableMissing       storage/azure/tables.py
            UnexpectedAnswer   storage/azure/retry.py
        StorageFull            nothing changed, and only a person can help
        Unreadable             records/rows.py: this one row cannot be read, all others can
            OtherFormat        records/rows.py: another version of the program can read it

What a mail server answers is a value (domain/outcome.py), not an error. Everything else is a bug.
"""

from __future__ import annotations


class PostroomError(Exception):
    """Its text is shown to people as it is."""


class BadInput(PostroomError, ValueError):
    """What was typed cannot be used."""


class NotFound(PostroomError):
    """The thing named does not exist."""


class AlreadyThere(PostroomError):
    """A thing of that name exists."""


class WrongState(PostroomError):
    """The thing exists, but what was asked cannot be done with it now."""
