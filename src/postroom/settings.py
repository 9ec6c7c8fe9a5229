"""Every setting: its default, its unit, its reason. docs/settings.md is made from this file."""

from __future__ import annotations

import os
import re
import tomllib
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Any

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from postroom.domain.errors import PostroomError
from postroom.domain.web_address import base_url, host_and_port, url_of

PREFIX = "POSTROOM_"
FILE = Path("postroom.toml")


ENVIRONMENT, DEFAULT = "the environment", "the default"

Found = dict[str, tuple[Any, str]]  # value and origin, by the name of the setting


class BadSettings(PostroomError):
    """All mistakes at once, one sentence each."""

    def __init__(self, mistakes: list[str]) -> None:
        super().__init__("\n".join(mistakes))
        self.mistakes = mistakes


class Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    storage: SecretStr = Field(
        SecretStr("sqlite:///data/postroom.db"),
        description="Where everything is kept: `sqlite:///path.db` (embedded, one file; a fourth "
        "slash makes the path absolute), or Azure Storage: `azure:` and a connection string, "
        "`azure:https://ACCOUNT.table.core.windows.net` (with this machine's managed identity), or "
        "`azure:emulator` (Azurite on this machine; other ports by `?blob=…&queue=…&table=…`).",
    )
    azure_prefix: str = Field(
        "",
        description="Put before the names of all tables, queues and the container in Azure, so "
        "that two services can share an account: at most 20 small letters and digits.",
    )
    transport: SecretStr = Field(
        SecretStr("outbox:"),
        description="How mails leave: `outbox:` keeps them in storage to be looked at, "
        "`smtp://[user:password@]host:port[?tls=require|implicit|none]` sends them.",
    )
    bind: str = Field("127.0.0.1:8025", description="Address and port the web role listens on.")
    url: str = Field(
        "",
        validate_default=True,
        description="Public base URL, without a path: links in mails begin with it. Mailbox "
        "providers want https. Default: `http://` and `POSTROOM_BIND`, which works on this machine "
        "and serves to try things out.",
    )
    data: Path = Field(
        Path("data"),
        description="Folder for what belongs to this machine alone: ack journals and bells.",
    )
    senders_min: int = Field(1, ge=0, le=64, description="Sender processes `serve` keeps running.")
    senders_max: int = Field(
        max(1, os.cpu_count() or 1),
        ge=1,
        le=64,
        description="Sender processes `serve` starts at most when the queue is long. "
        "Default: one per core, more do not pay.",
    )
    lanes: int = Field(
        4,
        ge=1,
        le=256,
        description="Connections a sender uses at once. More hide a slow relay. While there are "
        "confirmations or test emails to send, it uses one more for them.",
    )
    slice_size: int = Field(
        99,
        ge=1,
        le=99,
        description="Deliveries announced, sent and recorded together. Smaller means fewer in "
        "doubt when a whole machine is lost, and more writes.",
    )
    smtp_window: int = Field(
        8,
        ge=1,
        le=100,
        description="Mails on the wire of one connection where the server offers CHUNKING: what "
        "is in doubt if the line breaks. Up to four times as many where it takes long to answer.",
    )
    smtp_mails_per_connection: int = Field(
        1000, ge=1, description="Mails after which a connection is replaced; relays cut long ones."
    )
    smtp_ehlo_name: str = Field(
        "", description="Name given in EHLO. Empty: this machine's full name."
    )
    smtp_ca_file: str = Field(
        "", description="Certificate authorities in PEM. Empty: those of the system."
    )
    retry_first_s: float = Field(
        60.0,
        gt=0,
        description="Seconds until a temporarily refused delivery, or confirmation email, is tried "
        "again.",
    )
    retry_longest_s: float = Field(
        3600.0, gt=0, description="Longest pause between two tries, in seconds; pauses double."
    )
    retry_window_s: float = Field(
        86400.0,
        gt=0,
        description="Seconds after which a delivery, or confirmation email, still refused has "
        "failed.",
    )
    lease_s: float | None = Field(
        None,
        ge=1,
        le=600,
        description="Seconds a role may be silent before another takes its work over. "
        "Default: 30, and 60 on Azure, where every sign of life is a paid call.",
    )
    claim_s: float = Field(
        60.0,
        ge=10,
        le=600,
        description="Seconds a work item is hidden from others. A batch that takes longer is safe; "
        "one whose sender dies in the moment of taking it waits for so long.",
    )
    poll_s: float | None = Field(
        None,
        gt=0,
        le=600,
        description="Longest pause between two looks for work, in seconds; short ones come first. "
        "Within one machine a bell wakes the roles at once. Default: 1, and 15 on Azure, where "
        "every look is a paid call.",
    )
    items_ahead: int = Field(
        32,
        ge=0,
        le=32,
        description="Work items waiting to be taken at which the scheduler stops queuing more. Few "
        "let a new message begin at once beside a big one. 0: no limit.",
    )
    archive_days: int = Field(
        365, ge=1, le=36500, description="Days the fate of every recipient is kept in the archive."
    )
    unconfirmed_days: int = Field(
        30,
        ge=1,
        le=3650,
        description="Days somebody who signed up has to confirm; after that the sign-up is "
        "forgotten, but for its consent record. Whom an administrator added stays.",
    )
    trusted_proxies: str = Field(
        "",
        description="Addresses or networks of reverse proxies, separated by commas, whose "
        "`X-Forwarded-For` is believed.",
    )
    admin_networks: str = Field(
        "",
        description="Addresses or networks, separated by commas, that may see the admin pages. "
        "Empty: all.",
    )
    metrics_bind: str = Field(
        "",
        description="Address and port where a role shows its metrics to Prometheus, such as "
        "127.0.0.1:9464. Under `serve` the web role has this port, the scheduler the next one, the "
        "senders those after it. Empty: nowhere.",
    )
    stop_grace_s: float = Field(
        30.0, ge=0, le=3600, description="Seconds work in hand has to finish after SIGTERM."
    )
    stop_notice_s: float = Field(
        0.0,
        ge=0,
        description="Seconds of the grace for which the web role goes on answering after SIGTERM, "
        "with `/readyz` failing: as long as whoever sends it requests needs to notice. One behind "
        "no load balancer needs none.",
    )
    log_level: str = Field("info", description="`debug`, `info`, `warning` or `error`.")

    _origins: dict[str, str] = PrivateAttr(default_factory=dict)

    @property
    def is_url_given(self) -> bool:
        """Whether somebody set it; else it follows the bound address."""
        return "url" in self.model_fields_set

    @property
    def given(self) -> list[str]:
        """The names of the settings that do not come from a default."""
        return [name for name in type(self).model_fields if name in self._origins]

    def origin(self, name: str) -> str:
        """Where the value comes from: the environment, a file, or the default."""
        return self._origins.get(name, DEFAULT)

    @model_validator(mode="before")
    @classmethod
    def _without_empty_url(cls, values: dict[str, Any]) -> dict[str, Any]:
        """An empty one is none: compose files pass on variables that nobody set."""
        return {name: value for name, value in values.items() if name != "url" or value != ""}

    @field_validator("url")
    @classmethod
    def _base_url(cls, value: str, info: ValidationInfo) -> str:
        if not value and "bind" not in info.data:
            return value  # the bound address is wrong, and told
        return base_url(value or url_of(info.data["bind"]))

    @field_validator("azure_prefix")
    @classmethod
    def _prefix(cls, value: str) -> str:
        if not re.fullmatch(r"([a-z][a-z0-9]{0,19})?", value):
            raise ValueError("must be at most 20 small letters and digits, beginning with a letter")
        return value

    @field_validator("bind", "metrics_bind")
    @classmethod
    def _bind(cls, value: str, info: ValidationInfo) -> str:
        if not value and info.field_name == "metrics_bind":
            return value
        if not re.fullmatch(r"[^\s]+:\d{1,5}", value) or host_and_port(value)[1] > 65535:
            raise ValueError("must be an address and a port such as 127.0.0.1:8025")
        return value

    @field_validator("trusted_proxies", "admin_networks")
    @classmethod
    def _networks(cls, value: str) -> str:
        try:
            networks(value)
        except ValueError as error:
            raise ValueError(f"{error}; write networks such as 10.0.0.0/8, 2001:db8::/32") from None
        return value

    @field_validator("stop_notice_s")
    @classmethod
    def _notice(cls, value: float, info: ValidationInfo) -> float:
        if value > info.data.get("stop_grace_s", value):
            raise ValueError("must not be longer than POSTROOM_STOP_GRACE_S, of which it is a part")
        return value

    @field_validator("log_level")
    @classmethod
    def _level(cls, value: str) -> str:
        if value not in ("debug", "info", "warning", "error"):
            raise ValueError("must be debug, info, warning or error")
        return value


def networks(value: str) -> tuple[IPv4Network | IPv6Network, ...]:
    return tuple(ip_network(each.strip()) for each in value.split(",") if each.strip())


def load(environ: dict[str, str] | None = None, file: Path = FILE) -> Settings:
    """Environment first, then postroom.toml, then defaults."""
    environ = dict(os.environ) if environ is None else environ
    mistakes: list[str] = []
    found = _from_file(file, mistakes) | _from_environ(environ, mistakes)
    origins = {name: origin for name, (_, origin) in found.items()}
    try:
        settings = Settings(**{name: value for name, (value, _) in found.items()})
        settings._origins = origins
    except ValidationError as error:
        mistakes += [_sentence(each["loc"], each["msg"], origins) for each in error.errors()]
    if mistakes:
        raise BadSettings(mistakes)
    return settings


def _from_file(file: Path, mistakes: list[str]) -> Found:
    try:
        values = tomllib.loads(file.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        mistakes.append(f"{file} cannot be read: {error}")
        return {}
    unknown = sorted(set(values) - set(Settings.model_fields))
    mistakes += [f"{file}: there is no setting “{name}”." for name in unknown]
    where = str(file.absolute())
    return {name: (value, where) for name, value in values.items() if name not in unknown}


def _from_environ(environ: dict[str, str], mistakes: list[str]) -> Found:
    """A file goes before a value: an image has values, and a deployment names its secrets."""
    values: Found = {}
    from_files: Found = {}
    for name, value in environ.items():
        if not name.startswith(PREFIX):
            continue
        field = name.removeprefix(PREFIX).lower()
        named = field.removesuffix("_file")
        if field in Settings.model_fields:
            values[field] = value, ENVIRONMENT
        elif named in Settings.model_fields:
            from_files |= _from_secret_file(named, name, Path(value), mistakes)
        else:
            mistakes.append(f"{name}: there is no such setting; docs/settings.md lists them.")
    return values | from_files


def _from_secret_file(field: str, name: str, path: Path, mistakes: list[str]) -> Found:
    try:
        return {field: (path.read_text(encoding="utf-8").strip(), f"{path}, named by {name}")}
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
        mistakes.append(f"{name}: {path} cannot be read ({why}).")
        return {}


def _sentence(where: tuple[int | str, ...], message: str, origins: dict[str, str]) -> str:
    field = str(where[0]) if where else "settings"
    words = message.removeprefix("Value error, ")
    return f"{PREFIX}{field.upper()}: {words} (from {origins.get(field, DEFAULT)})."


def as_markdown() -> str:
    """docs/settings.md, whole."""
    lines = [
        "# Settings",
        "",
        "Made from `src/postroom/settings.py`; a test compares the two.",
        "",
        f"A setting is read from the environment (`{PREFIX}…`), then from `{FILE}` in the working",
        "folder (lower-case names without the prefix), then its default holds. Every one can also",
        "be given as a file that holds the value, with `_FILE` after its name:",
        f"`{PREFIX}TRANSPORT_FILE=/run/secrets/transport`. Where both are given, the file counts.",
        "",
        "| setting | default | what it is for |",
        "|---|---|---|",
    ]
    for name, field in Settings.model_fields.items():
        default = field.default
        if isinstance(default, SecretStr):
            default = default.get_secret_value()
        if name == "senders_max":
            default = "number of cores"
        if default is None:
            default = "by engine"
        if name == "url":
            default = f"follows {PREFIX}BIND"
        lines.append(f"| `{PREFIX}{name.upper()}` | `{default}` | {field.description} |")
    return "\n".join(lines) + "\n"
