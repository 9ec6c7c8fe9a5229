"""Requests to Azure Tables, signed by us and sent over a connection pool.

The SDK's table client uses more CPU time per row than a whole mail may take
(docs/decisions/0004-azure-tables-by-hand.md).
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import io
from datetime import timedelta
from email.utils import format_datetime
from urllib.parse import urlsplit

import aiohttp
import msgspec
from azure.core.credentials import AccessToken
from azure.core.credentials_async import AsyncTokenCredential
from azure.core.exceptions import AzureError
from yarl import URL

from postroom.clock import Clock
from postroom.storage.azure.account import Account
from postroom.storage.azure.entities import MINIMAL, code_in, mark_of
from postroom.storage.azure.retry import as_trouble, check_answer, send_once
from postroom.storage.port import Unavailable

VERSION = "2020-12-06"  # the first that accepts tokens of an identity for tables
SCOPE = "https://storage.azure.com/.default"
TOKEN_RENEWED_BEFORE = timedelta(minutes=5)
IDLE_CONNECTION_S = 30.0
# Azurite closes idle connections after five seconds; a request sent just then is in doubt.
IDLE_CONNECTION_EMULATOR_S = 3.0
CONNECTIONS_MAX = 100
BODY_BYTES_AT_ONCE = 1024 * 1024  # more at once would block the event loop


class HttpResponse(msgspec.Struct, frozen=True):
    status: int
    code: str  # the service's error code; "" if there is none
    body: bytes
    next: str | None  # of a page of rows


class SharedKey:
    def __init__(self, name: str, key: str) -> None:
        self._name = name
        self._key = base64.b64decode(key)

    async def sign(self, resource: str, now: str) -> dict[str, str]:
        """Headers for a resource (its path, as sent), by the scheme Shared Key Lite."""
        text = f"{now}\n/{self._name}{resource}".encode()
        signature = base64.b64encode(hmac.digest(self._key, text, hashlib.sha256)).decode()
        return {"Authorization": f"SharedKeyLite {self._name}:{signature}"}


class Identity:
    """A managed identity, or other credentials that azure-identity finds; renews its token."""

    def __init__(self, credential: AsyncTokenCredential, clock: Clock) -> None:
        self._credential = credential
        self._clock = clock
        self._token = AccessToken("", 0)
        self._renewing = asyncio.Lock()

    async def sign(self, resource: str, now: str) -> dict[str, str]:
        async with self._renewing:
            soon = (self._clock.now() + TOKEN_RENEWED_BEFORE).timestamp()
            if self._token.expires_on <= soon:
                try:
                    self._token = await self._credential.get_token(SCOPE)
                except AzureError as error:
                    raise Unavailable(f"This machine has no Azure identity: {error}") from error
        return {"Authorization": f"Bearer {self._token.token}"}


Signer = SharedKey | Identity


def open_session(account: Account) -> aiohttp.ClientSession:
    """Open the connection pool that all three services share."""
    idle_s = IDLE_CONNECTION_EMULATOR_S if account.is_emulator else IDLE_CONNECTION_S
    connector = aiohttp.TCPConnector(limit=CONNECTIONS_MAX, keepalive_timeout=idle_s)
    return aiohttp.ClientSession(
        connector=connector,
        timeout=aiohttp.ClientTimeout(total=None),  # RetryPolicy limits every attempt
        middlewares=(send_once,),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=True,
    )


class HttpClient:
    def __init__(
        self, account: Account, session: aiohttp.ClientSession, signer: Signer | None, clock: Clock
    ) -> None:
        self.url = account.table_url
        self.is_emulator = account.is_emulator
        self._path = urlsplit(account.table_url).path
        self._signature = account.signature
        self._session = session
        self._signer = signer
        self._clock = clock

    async def send(
        self, method: str, path: str, query: str = "", *, body: bytes = b"", kind: str = ""
    ) -> HttpResponse:
        """Send one request once; raise if there is no usable answer.

        RequestNotApplied, RequestInDoubt or Unavailable say whether it may have taken effect.
        """
        query = "&".join(filter(None, (query, self._signature)))
        url = URL(f"{self.url}{path}{'?' if query else ''}{query}", encoded=True)
        now = format_datetime(self._clock.now(), usegmt=True)
        headers = {
            "Accept": MINIMAL,
            "Content-Type": kind or "application/json",
            "DataServiceVersion": "3.0",
            "MaxDataServiceVersion": "3.0;NetFx",
            "x-ms-date": now,
            "x-ms-version": VERSION,
        }
        if self._signer:
            headers |= await self._signer.sign(self._path + path, now)
        data = body if len(body) <= BODY_BYTES_AT_ONCE else io.BytesIO(body)
        try:
            async with self._session.request(method, url, data=data, headers=headers) as response:
                content = await response.read()
        except aiohttp.ClientError as error:
            raise as_trouble(error) from None  # it may contain the URL with the signature
        found = response.headers
        code = code_in(content) if response.status >= 400 else ""
        check_answer(response.status, code, found.get("Retry-After"))
        next_partition = found.get("x-ms-continuation-NextPartitionKey")
        next_key = found.get("x-ms-continuation-NextRowKey")
        return HttpResponse(response.status, code, content, mark_of(next_partition, next_key))
