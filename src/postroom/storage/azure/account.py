"""The storage account to use: the URLs of its three services, and our credentials.

This module opens nothing and imports nothing of Azure, so any command can check settings with it.
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import KW_ONLY, dataclass, field
from urllib.parse import parse_qsl, urlsplit

EMULATOR = "emulator"
# Not a secret: every copy of the emulator has this account and this key.
EMULATOR_NAME = "devstoreaccount1"
_EMULATOR_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)
_EMULATOR_PORTS = {"blob": 10000, "queue": 10001, "table": 10002}
_SERVICES = ("blob", "queue", "table")
_PUBLIC_CLOUD = "core.windows.net"

_ACCOUNT_HOST = re.compile(r"([a-z0-9]{3,24})((?:\.z\d+)?)\.(blob|queue|table)\.([a-z0-9.-]+)")
_NAME = re.compile(r"[a-z0-9]{3,24}")
_PREFIX = re.compile(r"([a-z][a-z0-9]{0,19})?")


class BadAccount(ValueError):
    """The setting does not name an account; the message says what it may look like."""


@dataclass(frozen=True)
class Account:
    """The URLs of the services. Without key and signature, a managed identity is used."""

    name: str
    blob_url: str
    queue_url: str
    table_url: str
    _: KW_ONLY
    key: str = field(default="", repr=False)
    signature: str = field(default="", repr=False)  # a shared access signature, as a query string
    is_emulator: bool = False  # it differs from the service in a few details


def parse_account(address: str) -> Account:
    """Parse what follows `azure:`: a connection string, the URL of an account, or `emulator`."""
    if address == EMULATOR or address.startswith(f"{EMULATOR}?"):
        return _emulator(address.removeprefix(EMULATOR).removeprefix("?"))
    if address.startswith(("https://", "http://")):
        return _by_url(address)
    if "=" in address:
        return _by_connection_string(address)
    raise BadAccount(
        "must be azure:emulator, azure: and a connection string, "
        "or azure:https://ACCOUNT.table.core.windows.net"
    )


def check_prefix(prefix: str) -> str:
    """Table names are letters and digits; queue and container names are lower case."""
    if not _PREFIX.fullmatch(prefix):
        raise ValueError(
            "must be at most 20 lower-case letters and digits, beginning with a letter"
        )
    return prefix


def _emulator(options: str) -> Account:
    """The emulator on this machine; the options `blob=…&queue=…&table=…` are its ports."""
    ports = dict(_EMULATOR_PORTS)
    for service, port in parse_qsl(options, keep_blank_values=True):
        if service not in ports or not port.isdigit() or not 0 < int(port) < 65536:
            raise BadAccount("the emulator's options are its ports: ?blob=…&queue=…&table=…")
        ports[service] = int(port)
    urls = [f"http://127.0.0.1:{ports[each]}/{EMULATOR_NAME}" for each in _SERVICES]
    return Account(EMULATOR_NAME, *urls, key=_EMULATOR_KEY, is_emulator=True)


def _by_url(address: str) -> Account:
    parts = urlsplit(address)
    found = _ACCOUNT_HOST.fullmatch(parts.netloc)
    if parts.scheme != "https" or found is None or parts.path.strip("/") or parts.query:
        raise BadAccount("the account's URL must be like https://ACCOUNT.table.core.windows.net")
    name, zone, _, suffix = found.groups()
    urls = [f"https://{name}{zone}.{each}.{suffix}" for each in _SERVICES]
    return Account(name, *urls)


def _by_connection_string(address: str) -> Account:
    pairs = [part.partition("=") for part in address.strip().split(";") if part.strip()]
    fields = {name.strip().lower(): value.strip() for name, _, value in pairs}
    if fields.get("usedevelopmentstorage", "").lower() == "true":
        return _emulator("")
    name = fields.get("accountname", "")
    urls = {each: fields.get(f"{each}endpoint", "").rstrip("/") for each in _SERVICES}
    if not all(urls.values()) and not _NAME.fullmatch(name):
        raise BadAccount("the connection string has neither an AccountName nor all three endpoints")
    protocol = fields.get("defaultendpointsprotocol", "https")
    suffix = fields.get("endpointsuffix", _PUBLIC_CLOUD)
    for each in _SERVICES:
        urls[each] = urls[each] or f"{protocol}://{name}.{each}.{suffix}"
    signature = fields.get("sharedaccesssignature", "").removeprefix("?")
    key = "" if signature else _checked_key(fields.get("accountkey", ""))
    is_emulator = name == EMULATOR_NAME
    return Account(name, *urls.values(), key=key, signature=signature, is_emulator=is_emulator)


def _checked_key(key: str) -> str:
    try:
        if base64.b64decode(key, validate=True):
            return key
    except binascii.Error:
        pass
    raise BadAccount("the connection string has neither an AccountKey nor a SharedAccessSignature")
