"""The audit log: who changed what, when, and from where, including sign-ins.

It records what administrators and programs do. What subscribers do themselves is in the consent
record (consent.py), and what Postroom does on its own is in its logs.

It contains no secrets, and subscribers appear with a masked address, so that nothing has to be
found and removed when a person is erased.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import StrEnum

import msgspec

from postroom.domain.consent import SourceKind, Trace
from postroom.domain.texts import Text, _, pgettext

NAME_CHARS_MAX = 300
CHANGE_CHARS_MAX = 600  # of the values before and of those after; a log line, not a copy
VALUE_CHARS_MAX = 120
# Spaces and the signs between parts of a storage key or a list of values end an address. A key has
# at most 480 characters, and without a limit a long word would take quadratic time.
_ADDRESS = re.compile(
    r"([^\s@<>()\[\]\"',;:=/|•])[^\s@<>()\[\]\"',;:=/|]{0,500}@([^\s@<>\"',;:=/|]+)"
)


class ActorKind(StrEnum):
    USER = "user"  # signed in on the admin pages; the name is their address
    KEY = "key"  # a program; the name is the id of its access key
    COMMAND_LINE = "command_line"  # the name is user@host
    VISITOR = "visitor"  # not signed in: somebody at the sign-in page


ACTOR_TEXTS = {
    ActorKind.USER: pgettext("audit log, who", "user"),
    ActorKind.KEY: pgettext("audit log, who", "access key"),
    ActorKind.COMMAND_LINE: pgettext("audit log, who", "command line"),
    ActorKind.VISITOR: pgettext("audit log, who", "visitor"),
}


class AuditActor(msgspec.Struct, frozen=True):
    kind: ActorKind
    name: str = ""
    client: str = ""  # IP address, where there is one


class AuditKind(StrEnum):
    """What was changed."""

    LIST = "list"
    SUBSCRIBER = "subscriber"
    SUPPRESSION = "suppression"
    IMPORT = "import"
    MESSAGE = "message"
    TEMPLATE = "template"
    PICTURE = "picture"
    MAILBOX = "mailbox"  # the test mailbox
    KEY = "key"
    USER = "user"
    SIGN_IN = "sign_in"
    LIMIT = "limit"
    WEBHOOK = "webhook"
    SETTING = "setting"
    DEAD_LETTER = "dead_letter"
    ROW = "row"
    ITEM = "item"
    BLOB = "blob"


KIND_TEXTS = {
    AuditKind.LIST: pgettext("audit log", "list"),
    AuditKind.SUBSCRIBER: pgettext("audit log", "subscriber"),
    AuditKind.SUPPRESSION: pgettext("audit log", "suppression"),
    AuditKind.IMPORT: pgettext("audit log", "import"),
    AuditKind.MESSAGE: pgettext("audit log", "message"),
    AuditKind.TEMPLATE: pgettext("audit log", "template"),
    AuditKind.PICTURE: pgettext("audit log", "picture"),
    AuditKind.MAILBOX: pgettext("audit log", "test mailbox"),
    AuditKind.KEY: pgettext("audit log", "access key"),
    AuditKind.USER: pgettext("audit log", "user"),
    AuditKind.SIGN_IN: pgettext("audit log", "sign-in"),
    AuditKind.LIMIT: pgettext("audit log", "limit"),
    AuditKind.WEBHOOK: pgettext("audit log", "webhook"),
    AuditKind.SETTING: pgettext("audit log", "setting"),
    AuditKind.DEAD_LETTER: pgettext("audit log", "dead letter"),
    AuditKind.ROW: pgettext("audit log", "row"),
    AuditKind.ITEM: pgettext("audit log", "queue item"),
    AuditKind.BLOB: pgettext("audit log", "blob"),
}


class AuditAction(StrEnum):
    """What was done; a message has the actions of control_message.py as well."""

    CREATE = "create"
    CHANGE = "change"
    DELETE = "delete"
    MOVE = "move"
    ERASE = "erase"
    ASK = "ask"
    EXPORT = "export"
    IMPORT = "import"
    START = "start"
    STOP = "stop"
    SCHEDULE = "schedule"
    UNSCHEDULE = "unschedule"
    PAUSE = "pause"
    RESUME = "resume"
    CANCEL = "cancel"
    RETRY = "retry"
    SEND_AGAIN = "send-again"
    COUNT_AS_SENT = "count-as-sent"
    TEST = "test"
    INVITE = "invite"
    REVOKE = "revoke"
    SIGN_IN = "sign_in"
    SIGN_OUT = "sign_out"
    PASSWORD = "password"
    CONFIRM = "confirm"
    DISMISS = "dismiss"
    EMPTY = "empty"
    PUT = "put"
    PUT_BACK = "put_back"
    CLEAR = "clear"


ACTION_TEXTS = {
    AuditAction.CREATE: pgettext("audit log", "created"),
    AuditAction.CHANGE: pgettext("audit log", "changed"),
    AuditAction.DELETE: pgettext("audit log", "deleted"),
    AuditAction.MOVE: pgettext("audit log", "moved"),
    AuditAction.ERASE: pgettext("audit log", "erased"),
    AuditAction.ASK: pgettext("audit log", "asked to confirm"),
    AuditAction.EXPORT: pgettext("audit log", "exported"),
    AuditAction.IMPORT: pgettext("audit log", "imported"),
    AuditAction.START: pgettext("audit log", "started"),
    AuditAction.STOP: pgettext("audit log", "stopped"),
    AuditAction.SCHEDULE: pgettext("audit log", "scheduled"),
    AuditAction.UNSCHEDULE: pgettext("audit log", "unscheduled"),
    AuditAction.PAUSE: pgettext("audit log", "paused"),
    AuditAction.RESUME: pgettext("audit log", "resumed"),
    AuditAction.CANCEL: pgettext("audit log", "cancelled"),
    AuditAction.RETRY: pgettext("audit log", "retried failed recipients"),
    AuditAction.SEND_AGAIN: pgettext("audit log", "sent again to held recipients"),
    AuditAction.COUNT_AS_SENT: pgettext("audit log", "counted held recipients as sent"),
    AuditAction.TEST: pgettext("audit log", "test email requested"),
    AuditAction.INVITE: pgettext("audit log", "invited"),
    AuditAction.REVOKE: pgettext("audit log", "revoked"),
    AuditAction.SIGN_IN: pgettext("audit log", "signed in"),
    AuditAction.SIGN_OUT: pgettext("audit log", "signed out"),
    AuditAction.PASSWORD: pgettext("audit log", "password changed"),
    AuditAction.CONFIRM: pgettext("audit log", "confirmed"),
    AuditAction.DISMISS: pgettext("audit log", "dismissed"),
    AuditAction.EMPTY: pgettext("audit log", "emptied"),
    AuditAction.PUT: pgettext("audit log", "written"),
    AuditAction.PUT_BACK: pgettext("audit log", "put back"),
    AuditAction.CLEAR: pgettext("audit log", "cleared"),
}


class AuditOutcome(StrEnum):
    STARTED = "started"  # and then nothing: its process died, or storage did not answer
    DONE = "done"
    REFUSED = "refused"  # nothing was changed
    FAILED = "failed"  # by an accident: it may or may not have been changed


OUTCOME_TEXTS: dict[AuditOutcome, Text] = {
    AuditOutcome.STARTED: _("started, outcome not recorded: check whether it was done"),
    AuditOutcome.DONE: pgettext("audit log", "done"),
    AuditOutcome.REFUSED: _("attempt refused, nothing was changed"),
    AuditOutcome.FAILED: _("failed: check whether it was done"),
}


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    at: datetime
    actor_kind: ActorKind
    actor: str
    client: str
    kind: AuditKind
    name: str  # of what was changed
    action: AuditAction
    before: str = ""
    after: str = ""
    outcome: AuditOutcome = AuditOutcome.STARTED


AUDIT_COLUMNS = (
    "at",
    "actor_kind",
    "actor",
    "client",
    "kind",
    "name",
    "action",
    "before",
    "after",
    "outcome",
)


def actor_of(trace: Trace) -> AuditActor | None:
    """Who is behind an action on the web; None for subscribers and for Postroom itself."""
    match trace.source.kind:
        case SourceKind.USER:
            return AuditActor(ActorKind.USER, trace.source.name, trace.client)
        case SourceKind.KEY:
            return AuditActor(ActorKind.KEY, trace.source.name, trace.client)
        case _:
            return None


def new_entry(
    actor: AuditActor,
    kind: AuditKind,
    name: str,
    action: AuditAction,
    now: datetime,
    *,
    before: str = "",
    after: str = "",
    outcome: AuditOutcome = AuditOutcome.STARTED,
) -> AuditEntry:
    """An entry without addresses of subscribers; users and visitors of the sign-in page keep theirs
    if the caller passes them."""
    has_users = kind in {AuditKind.USER, AuditKind.SIGN_IN}
    return AuditEntry(
        at=now,
        actor_kind=actor.kind,
        actor=actor.name,
        client=actor.client,
        kind=kind,
        name=_clipped(name if has_users else mask_addresses(name), NAME_CHARS_MAX),
        action=action,
        before=_clipped(mask_addresses(before), CHANGE_CHARS_MAX),
        after=_clipped(mask_addresses(after), CHANGE_CHARS_MAX),
        outcome=outcome,
    )


def mask_addresses(text: str) -> str:
    """Mask email addresses: “ada@contoso.edu” becomes “a•••@contoso.edu”."""
    return _ADDRESS.sub(r"\1•••@\2", text)


def values_text(values: Mapping[str, object]) -> str:
    """Values in short: “name: value; …”."""
    return "; ".join(f"{name}: {_value_text(value)}" for name, value in values.items())


def changed_values(
    before: Mapping[str, object], after: Mapping[str, object], *, secret: Iterable[str] = ()
) -> tuple[str, str]:
    """The differences before and after, in short; secret values are not shown."""
    hidden = frozenset(secret)
    names = [
        name for name in {**before, **after} if before.get(name, None) != after.get(name, None)
    ]

    def text(values: Mapping[str, object]) -> str:
        return values_text(
            {name: "•••" if name in hidden else values[name] for name in names if name in values}
        )

    return text(before), text(after)


def _value_text(value: object) -> str:
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S UTC")
    return _clipped(str(value), VALUE_CHARS_MAX)


def _clipped(text: str, chars_max: int) -> str:
    return text if len(text) <= chars_max else text[: chars_max - 1] + "…"
