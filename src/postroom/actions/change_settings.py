"""Action, change settings: set some of them while the service runs, or reset them.

Before: the process has the settings it was started with, and a person wants another value.
After: every role uses the new value within seconds: it reads the row again (wiring/following.py).
Dies half-way: one guarded write: done or not done.
Commit point: the row of changes.

A change applies to the whole installation, and overrides the environment and postroom.toml until
it is reset.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import structlog
from pydantic import SecretStr, ValidationError

from postroom.act import Act
from postroom.domain.audit import AuditAction, AuditKind, changed_values
from postroom.domain.consent import SourceKind
from postroom.domain.errors import BadInput, NotFound
from postroom.domain.texts import Text, _
from postroom.records import setting_changes
from postroom.records.retry import retry_on_conflict
from postroom.records.setting_changes import ChangedSetting, SettingChanges
from postroom.records.stored import Stored
from postroom.settings import PREFIX, Settings
from postroom.storage.port import Conflict, Value
from postroom.wakeup import SETTINGS

log = structlog.get_logger("settings")
LIVE = (  # they are numbers and words that a role looks up each time it needs them
    "senders_min",
    "senders_max",
    "retry_first_s",
    "retry_longest_s",
    "retry_window_s",
    "claim_s",
    "items_ahead",
    "soft_bounces_max",
    "soft_bounces_days",
    "pause_refused_share",
    "bounce_poll_s",
    "archive_days",
    "unconfirmed_days",
    "audit_days",
    "dead_letter_days",
    "log_level",
    "trace_level",
)
_RESTART = {  # the roles that read a setting at their start; all of them if it is not listed
    "web": (
        "bind", "trusted_proxies", "admin_networks", "stop_notice_s", "sendgrid_webhook_key",
        "mailgun_webhook_key", "sns_topics",
    ),
    "sender": (
        "lanes", "slice_size", "bounce_domain", "smtp_window", "smtp_mails_per_connection",
        "smtp_ehlo_name", "smtp_ca_file", "dkim_keys",
    ),
    "scheduler": (),
}  # fmt: skip
VALUE_CHARS_MAX = 200
NewChanges = Callable[[SettingChanges], dict[str, ChangedSetting]]


def roles_to_restart(name: str) -> list[str]:
    """Which roles have to be restarted for a setting; none if it can be changed live."""
    if name in LIVE:
        return []
    return [role for role, names in _RESTART.items() if name in names] or list(_RESTART)


def setting_name(text: str) -> str:
    """Accept `senders_max` and `POSTROOM_SENDERS_MAX`; NotFound if there is no such setting."""
    name = text.strip().lower().removeprefix(PREFIX.lower())
    if name not in Settings.model_fields:
        raise NotFound(
            _("There is no setting {name}. “postroom settings show” lists them.", name=text[:60])
        )
    return name


def checked_value(name: str, value: str | Value) -> Value:
    """Check a value by the rules of the settings; BadInput says what is wrong with it."""
    if name not in LIVE:
        roles = ", ".join(roles_to_restart(name))
        raise BadInput(
            _(
                "{name} cannot be changed while Postroom runs. Set it where Postroom is started, "
                "and restart: {roles}.",
                name=f"{PREFIX}{name.upper()}",
                roles=roles,
            )
        )
    if isinstance(value, str):
        value = value.strip()[:VALUE_CHARS_MAX]
    try:
        checked: Value = getattr(Settings.model_validate({name: value}), name)
    except ValidationError as error:
        raise BadInput(str(_sentence(error))) from None
    return checked


def _sentence(error: ValidationError) -> Text:
    first = error.errors()[0]
    limits = first.get("ctx", {})
    match first["type"]:
        case "greater_than_equal":
            return _("Enter {limit} or more.", limit=limits["ge"])
        case "less_than_equal":
            return _("Enter {limit} or less.", limit=limits["le"])
        case "greater_than":
            return _("Enter more than {limit}.", limit=limits["gt"])
        case "int_parsing" | "int_from_float" | "int_type" | "int_parsing_size":
            return _("Enter a whole number.")
        case "float_parsing" | "float_type" | "finite_number":
            return _("Enter a number.")
    words = first["msg"].removeprefix("Value error, ")
    return _("This value is not valid: {words}.", words=words.rstrip("."))


def merged(started: Settings, changes: SettingChanges) -> Settings:
    """The settings that apply now; a change that cannot be applied is left out and logged."""
    values: dict[str, Any] = {}
    for name, changed in changes.changed.items():
        try:
            values[name] = checked_value(name, changed.value)
        except BadInput as error:
            log.warning("setting_not_applied", name=name, words=str(error)[:200])
    return started.model_copy(update=values)


async def change(
    act: Act, started: Settings, values: Mapping[str, str | Value], etag: str | None
) -> Stored[SettingChanges]:
    """Set several settings at once; Conflict if the row is not the version `etag` names.

    None stands for any version.
    """
    new = {name: checked_value(name, value) for name, value in values.items()}

    def with_new(before: SettingChanges) -> dict[str, ChangedSetting]:
        now = merged(started, before)
        source = act.trace.source
        fresh = {
            name: ChangedSetting(value, act.now, source)
            for name, value in new.items()
            if getattr(now, name) != value
        }
        return {**before.changed, **fresh}

    return await _write(act, started, with_new, etag)


async def reset(
    act: Act, started: Settings, names: list[str], etag: str | None
) -> Stored[SettingChanges]:
    """Reset settings to their value in the environment, postroom.toml or the default."""
    return await _write(
        act,
        started,
        lambda before: {name: each for name, each in before.changed.items() if name not in names},
        etag,
    )


async def _write(
    act: Act, started: Settings, new: NewChanges, etag: str | None
) -> Stored[SettingChanges]:
    if etag is not None:
        return await _write_once(act, started, new, etag)
    return await retry_on_conflict(lambda: _write_once(act, started, new, None))


async def _write_once(
    act: Act, started: Settings, new: NewChanges, etag: str | None
) -> Stored[SettingChanges]:
    found = await setting_changes.read(act.tables)
    if etag is not None and etag != found.etag:
        raise Conflict("the settings have changed")
    after = SettingChanges(new(found.value))
    if after == found.value:
        return found
    then = merged(started, after)
    check_together(then)
    before = merged(started, found.value)
    names = [name for name in LIVE if getattr(before, name) != getattr(then, name)]
    values_before, values_after = changed_values(
        {name: getattr(before, name) for name in names},
        {name: getattr(then, name) for name in names},
    )
    async with act.audited(
        AuditKind.SETTING,
        ", ".join(names),
        AuditAction.CHANGE,
        before=values_before,
        after=values_after,
    ):
        written = await setting_changes.write(act.tables, after, found.etag)
    for name in names:
        record_change(act, name, getattr(before, name), getattr(then, name))
    act.wake(SETTINGS)
    return written


def check_together(settings: Settings) -> None:
    """BadInput if two settings contradict each other."""
    if settings.senders_min > settings.senders_max:
        raise BadInput(
            _(
                "The minimum of {minimum} senders is more than the maximum of {maximum}.",
                minimum=settings.senders_min,
                maximum=settings.senders_max,
            )
        )
    if settings.retry_first_s > settings.retry_longest_s:
        raise BadInput(
            _("The first pause between attempts must not be longer than the longest one.")
        )


def record_change(act: Act, name: str, before: Value, after: Value) -> None:
    """Record who changed what; the log names no user, because it holds no addresses.

    On a terminal, the command itself prints what changed.
    """
    write = log.debug if act.trace.source.kind is SourceKind.COMMAND_LINE else log.info
    write(
        "setting_changed",
        name=name,
        before=before,
        after=after,
        by=act.trace.source.kind.value,
        at=act.now.isoformat(timespec="seconds"),
    )


class ShownSetting(msgspec.Struct, frozen=True, kw_only=True):
    """One setting as pages, commands and programs show it, without secrets."""

    name: str
    value: Value | None  # None for a secret that is set
    source: str  # environment, file, postroom.toml, default or changed
    meaning: str
    is_live: bool
    is_secret: bool = False
    restart: list[str] = []  # the roles that have to be restarted to change it
    without_change: Value | None = None  # its value once it is reset
    changed: ChangedSetting | None = None

    @property
    def variable(self) -> str:
        return f"{PREFIX}{self.name.upper()}"


def shown_settings(
    started: Settings, changes: SettingChanges, descriptions: Mapping[str, str]
) -> list[ShownSetting]:
    """Every setting with its value and source; `descriptions` show secrets as far as they may."""
    now = merged(started, changes)
    shown = []
    for name, field in Settings.model_fields.items():
        changed = changes.changed.get(name) if name in LIVE else None
        value = getattr(now, name)
        is_secret = isinstance(value, SecretStr)
        text: Value | None = descriptions.get(name)
        if is_secret and text is None:
            text = None if value.get_secret_value() else ""
        elif text is None:
            text = value if isinstance(value, Value) else "" if value is None else str(value)
        shown.append(
            ShownSetting(
                name=name,
                value=text,
                source="changed" if changed else started.source_kind(name),
                meaning=field.description or "",
                is_live=name in LIVE,
                is_secret=is_secret,
                restart=roles_to_restart(name),
                without_change=getattr(started, name) if changed else None,
                changed=changed,
            )
        )
    return shown
