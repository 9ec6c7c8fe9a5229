"""All settings, each with its default, unit and reason; docs/settings.md is generated from them."""

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

from postroom.domain.dkim import parse_key_places
from postroom.domain.errors import PostroomError
from postroom.domain.web_address import base_url, host_and_port, url_of

PREFIX = "POSTROOM_"
FILE = Path("postroom.toml")
ENVIRONMENT, DEFAULT = "the environment", "the default"
Found = dict[str, tuple[Any, str]]  # value and origin by setting name


class BadSettings(PostroomError):
    """All mistakes in the settings, one sentence each."""

    def __init__(self, mistakes: list[str]) -> None:
        super().__init__("\n".join(mistakes))
        self.mistakes = mistakes


class Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    storage: SecretStr = Field(
        SecretStr("sqlite:///data/postroom.db"),
        description="Where everything is stored: `sqlite:///path.db` (one file; a fourth slash "
        "makes the path absolute), or Azure Storage: `azure:` and a connection string, "
        "`azure:https://ACCOUNT.table.core.windows.net` (signs in with this machine's managed "
        "identity), or `azure:emulator` (Azurite on this machine; set other ports with "
        "`?blob=…&queue=…&table=…`). Default: `postroom.db` in `POSTROOM_DATA`.",
    )
    azure_prefix: str = Field(
        "",
        description="Prefix for the names of all tables, queues and the container in Azure, so "
        "that two services can share an account: at most 20 lower-case letters and digits.",
    )
    transport: SecretStr = Field(
        SecretStr("outbox:"),
        description="How emails are sent: "
        "`smtp://[user:password@]host:port[?tls=require|implicit|none]`, "
        "`sendgrid:[?region=eu&sandbox=1&batch=100]`, `acs:https://NAME.communication.azure.com` "
        "and `ses:REGION` send them, `outbox:` keeps them in the test mailbox. "
        "[docs/transports.md](transports.md) compares them.",
    )
    sendgrid_key: SecretStr = Field(
        SecretStr(""), description="API key for `sendgrid:`; it needs the permission *Mail Send*."
    )
    acs_key: SecretStr = Field(
        SecretStr(""), description="Access key of the Azure Communication Services resource."
    )
    ses_key_id: str = Field(
        "",
        description="Access key id for `ses:`; it needs the permissions `ses:SendBulkEmail`, "
        "`ses:SendEmail` and `ses:SendRawEmail`, and `ses:GetAccount` for `postroom doctor`.",
    )
    ses_secret: SecretStr = Field(
        SecretStr(""), description="Secret access key that belongs to `POSTROOM_SES_KEY_ID`."
    )
    ses_configuration_set: str = Field(
        "", description="Configuration set for `ses:`, which publishes SES’s events."
    )
    bind: str = Field("127.0.0.1:8025", description="Address and port the web role listens on.")
    url: str = Field(
        "",
        validate_default=True,
        description="Public base URL, without a path. Links in emails start with it; mailbox "
        "providers expect https. Default: `http://` and `POSTROOM_BIND`, which works only on this "
        "machine.",
    )
    data: Path = Field(
        Path("data"),
        description="Folder for data that belongs to this machine: ack journals, and the named "
        "pipes by which roles wake each other.",
    )
    senders_min: int = Field(
        1,
        ge=0,
        le=64,
        description="Sender processes `serve` always runs. With 0, senders run only while there is "
        "something to send; the first one then starts within seconds.",
    )
    senders_max: int = Field(
        max(1, os.cpu_count() or 1),
        ge=1,
        le=64,
        description="Maximum number of sender processes on each machine under `serve`. Senders are "
        "added while many emails are waiting, have waited for a long time, or are sent slowly. "
        "Default: one per core; more senders would not send faster.",
    )
    lanes: int = Field(
        4,
        ge=1,
        le=256,
        description="Connections a sender uses at the same time. More of them help with a slow "
        "relay. It opens one more while there are confirmations or test emails to send.",
    )
    slice_size: int = Field(
        99,
        ge=1,
        le=99,
        description="Deliveries that are announced, sent and recorded together. A smaller number "
        "leaves fewer in doubt when a whole machine is lost, and costs more writes.",
    )
    bounce_domain: str = Field(
        "",
        description="Domain whose mail reaches Postroom, such as `bounces.contoso.edu`. Each "
        "email then has its own envelope sender there, so that a bounce identifies "
        "its recipient. Default: bounces go to the From address of the list.",
    )
    bounce_mailbox: SecretStr = Field(
        SecretStr(""),
        description="Mailbox that Postroom reads for bounces and complaints: "
        "`imap://user:password@host[:port][/FOLDER][?tls=implicit|require|none]`, "
        "`maildir:/path`, or `directory:/path` (each file is one email). It must not "
        "be used for anything else. Default: none ([bounces.md](bounces.md)).",
    )
    bounce_poll_s: float = Field(
        60.0,
        ge=5,
        le=900,
        description="Seconds between two polls of the bounce mailbox; at most 10 while messages "
        "are being sent.",
    )
    soft_bounces_max: int = Field(
        5,
        ge=1,
        le=100,
        description="Temporary bounces in a row after which an address is suppressed.",
    )
    soft_bounces_days: float = Field(
        7.0,
        ge=0,
        le=365,
        description="Minimum number of days between the first and the last of these bounces.",
    )
    pause_refused_share: float = Field(
        0.1,
        gt=0,
        le=1,
        description="A message is paused automatically if at least this share of its emails, and "
        "at least 20, are refused because of the sender or the content: reputation, "
        "authentication or content.",
    )
    sendgrid_webhook_key: str = Field(
        "",
        description="Verification key of SendGrid's signed event webhook, as its settings page "
        "shows it. While you replace a key, list both, separated by a comma.",
    )
    mailgun_webhook_key: SecretStr = Field(
        SecretStr(""), description="Signing key of Mailgun's webhooks."
    )
    sns_topics: str = Field(
        "",
        description="ARNs of the Amazon SNS topics to which SES publishes its events, separated by "
        "commas.",
    )
    smtp_window: int = Field(
        8,
        ge=1,
        le=100,
        description="Emails in flight on one connection if the server supports CHUNKING; this "
        "many are in doubt if the connection breaks. Up to four times as many if the "
        "server answers slowly.",
    )
    smtp_mails_per_connection: int = Field(
        1000,
        ge=1,
        description="Number of emails after which a connection is replaced, because relays close "
        "long-lived ones.",
    )
    smtp_ehlo_name: str = Field(
        "", description="Name used in EHLO. Default: this machine's full name."
    )
    smtp_ca_file: str = Field(
        "", description="File of trusted certificate authorities (PEM). Default: the system's."
    )
    dkim_keys: str = Field(
        "",
        description="Private keys that sign emails sent over SMTP, as `domain:selector:file` "
        "separated by commas. A key signs emails from its domain; to use a key for "
        "several domains, list its file once for each. If a domain has several RSA "
        "keys, the first one signs, and the others are only checked by `postroom "
        "doctor --domain`, so that a key can be replaced; an Ed25519 key adds a "
        "second signature. `postroom dkim create` creates them ([dkim.md](dkim.md)). "
        "Default: emails are not signed here, because the relay or provider signs "
        "them.",
    )
    retry_first_s: float = Field(
        60.0,
        gt=0,
        le=86400,
        description="Seconds until an email that was temporarily refused is tried again.",
    )
    retry_longest_s: float = Field(
        3600.0,
        gt=0,
        le=604800,
        description="Longest pause between two attempts, in seconds; pauses double.",
    )
    retry_window_s: float = Field(
        86400.0,
        gt=0,
        le=2592000,
        description="Seconds after which an email that is still refused has failed.",
    )
    doubt_wait_s: float = Field(
        600.0,
        ge=1,
        le=86400,
        description="Longest wait, in seconds, for a provider's event about an email whose reply "
        "was lost; then the message's policy decides. Applies only if the provider's "
        "webhook is configured.",
    )
    lease_s: float | None = Field(
        None,
        ge=1,
        le=600,
        description="Seconds a role may be silent before another takes over its work. Default: "
        "30, or 60 on Azure, where every heartbeat is a paid call.",
    )
    claim_s: float = Field(
        60.0,
        ge=10,
        le=600,
        description="Seconds for which a claimed work item is hidden from other senders. A batch "
        "may take longer. If a sender dies just after claiming an item, the item waits for this "
        "long.",
    )
    poll_s: float | None = Field(
        None,
        gt=0,
        le=600,
        description="Longest pause between two polls for work, in seconds; idle roles poll less "
        "and less often. On one machine, roles also wake each other at once. Default: 1, or 15 on "
        "Azure, where every poll is a paid call.",
    )
    items_ahead: int = Field(
        32,
        ge=0,
        le=32,
        description="The scheduler adds work items only while fewer than this many are waiting. A "
        "small number lets a new message start at once while a big one is being sent. 0 means no "
        "limit.",
    )
    archive_days: int = Field(
        365, ge=1, le=36500, description="Days to keep the outcome of every recipient."
    )
    unconfirmed_days: int = Field(
        30,
        ge=1,
        le=3650,
        description="Days to confirm a sign-up. After that it is deleted, except for its consent "
        "record. People who were added by an administrator stay.",
    )
    backup_folder: Path | None = Field(
        None,
        description="Folder for scheduled backups, ideally on another disk. It must exist. "
        "Default: no scheduled backups ([backup.md](backup.md)).",
    )
    backup_every_h: float = Field(
        24.0, gt=0, le=24 * 366, description="Hours between two scheduled backups."
    )
    backup_keep: int = Field(
        7, ge=1, le=1000, description="Scheduled backups to keep; older ones are deleted."
    )
    audit_days: int = Field(
        730,
        ge=1,
        le=36500,
        description="Days to keep the audit log, which records who changed what, and all sign-ins.",
    )
    dead_letter_days: int = Field(
        90,
        ge=1,
        le=3650,
        description="Days to keep dead letters, work items that could not be processed. Their "
        "recipients are on hold or not affected, so nobody is waiting for them.",
    )
    trusted_proxies: str = Field(
        "",
        description="Addresses or networks of reverse proxies whose `X-Forwarded-For` is trusted, "
        "separated by commas.",
    )
    admin_networks: str = Field(
        "",
        description="Addresses or networks that may open the admin pages, separated by commas. "
        "Default: all.",
    )
    metrics_bind: str = Field(
        "",
        description="Address and port where a role serves metrics for Prometheus, such as "
        "127.0.0.1:9464. Under `serve` the web role uses this port, the scheduler the next one, "
        "and the senders those after it. Default: no metrics.",
    )
    stop_grace_s: float = Field(
        30.0, ge=0, le=3600, description="Seconds to finish work in progress after SIGTERM."
    )
    stop_notice_s: float = Field(
        0.0,
        ge=0,
        description="Seconds of `POSTROOM_STOP_GRACE_S` during which the web role keeps answering "
        "while `/readyz` fails, so that a load balancer stops sending "
        "requests. Make it as long as several health checks; without a load balancer, "
        "leave it at 0.",
    )
    log_level: str = Field("info", description="`debug`, `info`, `warning` or `error`.")
    trace_level: str = Field(
        "info",
        description="Minimum level of events that are also kept as traces in storage: `debug`, "
        "`info`, `warning`, `error` or `off`. The admin pages and `postroom trace` "
        "show them.",
    )
    trace_days: float = Field(14.0, ge=0.05, le=3650, description="Days to keep traces.")
    trace_rows_max: int = Field(
        1_000_000,
        ge=1_000,
        description="Maximum number of traces to keep, about 500 bytes each; the oldest are "
        "deleted first. One process writes at most a twentieth of this in an hour.",
    )

    _origins: dict[str, str] = PrivateAttr(default_factory=dict)

    @property
    def is_url_given(self) -> bool:
        """Whether the URL was set; otherwise it follows POSTROOM_BIND."""
        return "url" in self.model_fields_set

    @property
    def given(self) -> list[str]:
        """The names of the settings that were set."""
        return [name for name in type(self).model_fields if name in self._origins]

    def origin(self, name: str) -> str:
        """Return where the value comes from: the environment, a file, or the default."""
        return self._origins.get(name, DEFAULT)

    def source_kind(self, name: str) -> str:
        """Return the kind of the origin: environment, file, postroom.toml or default."""
        origin = self.origin(name)
        named = {ENVIRONMENT: "environment", DEFAULT: "default"}
        return named.get(origin) or ("file" if ", named by " in origin else FILE.name)

    @model_validator(mode="before")
    @classmethod
    def _without_empty_url(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Ignore an empty URL, because compose files pass on variables that are not set."""
        return {name: value for name, value in values.items() if name != "url" or value != ""}

    @model_validator(mode="before")
    @classmethod
    def _with_storage_in_data(cls, values: dict[str, Any]) -> dict[str, Any]:
        data = values.get("data")
        if isinstance(data, str | Path) and "storage" not in values:
            return values | {"storage": f"sqlite:///{Path(data) / 'postroom.db'}"}
        return values

    @field_validator("url")
    @classmethod
    def _base_url(cls, value: str, info: ValidationInfo) -> str:
        if not value and "bind" not in info.data:
            return value  # POSTROOM_BIND is wrong, and reported
        return base_url(value or url_of(info.data["bind"]))

    @field_validator("azure_prefix")
    @classmethod
    def _prefix(cls, value: str) -> str:
        if not re.fullmatch(r"([a-z][a-z0-9]{0,19})?", value):
            raise ValueError(
                "must be at most 20 lower-case letters and digits, beginning with a letter"
            )
        return value

    @field_validator("sendgrid_webhook_key")
    @classmethod
    def _verification_keys(cls, value: str) -> str:
        if value:  # imported here, because most commands do without cryptography
            from postroom.feedback.webhooks.sendgrid import verification_key

            for key in value.split(","):
                verification_key(key)
        return value

    @field_validator("bounce_domain")
    @classmethod
    def _domain(cls, value: str) -> str:
        if value and not re.fullmatch(r"[a-z0-9-]+(\.[a-z0-9-]+)+", value.lower()):
            raise ValueError("must be a domain name such as bounces.contoso.edu")
        return value.lower()

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

    @field_validator("dkim_keys")
    @classmethod
    def _dkim_keys(cls, value: str) -> str:
        parse_key_places(value)
        return value

    @field_validator("stop_notice_s")
    @classmethod
    def _notice(cls, value: float, info: ValidationInfo) -> float:
        if value > info.data.get("stop_grace_s", value):
            raise ValueError("must not be longer than POSTROOM_STOP_GRACE_S, which includes it")
        return value

    @field_validator("log_level", "trace_level")
    @classmethod
    def _level(cls, value: str, info: ValidationInfo) -> str:
        if value not in ("debug", "info", "warning", "error"):
            if info.field_name == "log_level":
                raise ValueError("must be debug, info, warning or error")
            if value != "off":
                raise ValueError("must be debug, info, warning, error or off")
        return value


def networks(value: str) -> tuple[IPv4Network | IPv6Network, ...]:
    return tuple(ip_network(each.strip()) for each in value.split(",") if each.strip())


def load(environ: dict[str, str] | None = None, file: Path = FILE) -> Settings:
    """Read the environment first, then postroom.toml, then the defaults."""
    environ = dict(os.environ) if environ is None else environ
    mistakes: list[str] = []
    found = _from_file(file, mistakes) | _from_environ(environ, mistakes)
    origins = {name: origin for name, (_, origin) in found.items()}
    try:
        settings = Settings(**{name: value for name, (value, _) in found.items()})
        settings._origins = origins
    except ValidationError as error:
        for each in error.errors():
            field = str(each["loc"][0]) if each["loc"] else "settings"
            message = each["msg"].removeprefix("Value error, ")
            origin = origins.get(field, DEFAULT)
            mistakes.append(f"{PREFIX}{field.upper()}: {message} (from {origin}).")
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
    """A file wins over a value, because images set values and deployments mount secret files."""
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
            try:
                content = Path(value).read_text(encoding="utf-8").strip()
                from_files[named] = content, f"{value}, named by {name}"
            except (OSError, UnicodeDecodeError) as error:
                why = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
                mistakes.append(f"{name}: {value} cannot be read ({why}).")
        else:
            mistakes.append(f"{name}: there is no such setting; docs/settings.md lists them.")
    return values | from_files


def as_markdown() -> str:
    """Return the whole of docs/settings.md."""
    lines = [
        "# Settings",
        "",
        "Generated from `src/postroom/settings.py`; a test compares the two.",
        "",
        f"A setting comes from the environment (`{PREFIX}…`), else from `{FILE}` in the working",
        "folder (lower-case names without the prefix), else from its default. To read the value",
        "of any setting from a file, add `_FILE` to its name, as in",
        f"`{PREFIX}TRANSPORT_FILE=/run/secrets/transport`. The file takes precedence.",
        "",
        "Owners can change some settings while Postroom runs, on the settings page or with",
        "`postroom settings set` ([admin.md](admin.md#settings)). Such a change overrides all of",
        "the above until it is reset.",
        "",
        "| setting | default | what it does |",
        "|---|---|---|",
    ]
    computed = {
        "senders_max": "number of cores",
        "url": f"follows {PREFIX}BIND",
        "backup_folder": "",
    }
    for name, field in Settings.model_fields.items():
        default = computed.get(name, field.default)
        if isinstance(default, SecretStr):
            default = default.get_secret_value()
        if default is None:
            default = "by engine"
        description = (field.description or "").replace("|", r"\|")
        lines.append(f"| `{PREFIX}{name.upper()}` | `{default}` | {description} |")
    return "\n".join(lines) + "\n"
