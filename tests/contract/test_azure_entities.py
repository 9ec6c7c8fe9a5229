"""What we write to Azure Tables by hand, the SDK reads the same way, and the other way round."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from secrets import token_hex
from typing import Any

import pytest
import pytest_asyncio
from azure.core.credentials import AccessToken, AzureNamedKeyCredential
from azure.data.tables import EdmType, EntityProperty
from azure.data.tables.aio import TableClient
from azure.storage.blob import generate_account_sas

from postroom.records.names import STORAGE_NAMES
from postroom.storage import port
from postroom.storage.azure.account import Account, parse_account
from postroom.storage.azure.entities import as_batch
from postroom.storage.azure.http import Identity
from postroom.storage.azure.storage import AzureStorage
from postroom.storage.port import Delete, Insert, KeysWithin, Replace, Upsert, Value
from tests.clock import MovableClock
from tests.contract.azurite import azurite
from tests.contract.engines import all_rows

TABLE = "message"
VALUES: dict[str, Value] = {
    "text": "Zoë 学生 🎓 \x00 \u2028 ' \" \\",
    "int": 2**53 + 1,
    "small": 5,
    "float": 1.0,
    "tiny": 1e-300,
    "bool": True,
}
KEY = "email:o'hara+100%@contoso.edu"


@pytest_asyncio.fixture
async def both(clock: MovableClock) -> AsyncIterator[tuple[AzureStorage, TableClient]]:
    account, prefix = azurite().account, f"e{token_hex(6)}"
    storage = await AzureStorage.open(account, clock, STORAGE_NAMES, prefix=prefix)
    credential = AzureNamedKeyCredential(account.name, account.key)
    async with TableClient(account.table_url, prefix + TABLE, credential=credential) as client:
        yield storage, client
    await storage.close()


def plain(value: Any) -> Any:
    return value.value if isinstance(value, EntityProperty) else value


async def test_the_sdk_reads_what_we_wrote(both: tuple[AzureStorage, TableClient]) -> None:
    storage, client = both
    etag = await storage.tables.insert(TABLE, "p", KEY, VALUES)
    entity = await client.get_entity("p", KEY)
    assert {name: plain(entity[name]) for name in VALUES} == VALUES
    assert entity["int"].edm_type is EdmType.INT64
    assert type(entity["float"]) is float
    assert entity.metadata["etag"] == etag


async def test_we_read_what_the_sdk_wrote(both: tuple[AzureStorage, TableClient]) -> None:
    storage, client = both
    numbers = {"int": EntityProperty(2**53 + 1, EdmType.INT64), "small": 5, "float": 1.0}
    written: Any = {"PartitionKey": "p", "RowKey": KEY, **VALUES, **numbers}
    await client.create_entity(written)
    row = await storage.tables.get(TABLE, "p", KEY)
    assert row is not None
    assert row.properties == VALUES
    assert {name: type(value) for name, value in row.properties.items()} == {
        name: type(value) for name, value in VALUES.items()
    }
    await storage.tables.replace(TABLE, "p", KEY, {}, row.etag)


async def test_a_prefix_keeps_two_services_in_one_account_apart(clock: MovableClock) -> None:
    account = azurite().account
    first, second = [
        await AzureStorage.open(account, clock, STORAGE_NAMES, prefix=f"{letter}{token_hex(6)}")
        for letter in "ab"
    ]
    await first.tables.insert(TABLE, "p", "k", {})
    await first.queues.put("azuremailqueue", "x")
    await first.blobs.put("a.htm", b"x")
    assert await all_rows(second.tables, TABLE, KeysWithin("p")) == []
    assert await second.queues.length("azuremailqueue") == 0
    assert await second.blobs.get("a.htm") is None
    await first.close()
    await second.close()


async def test_opening_twice_keeps_what_is_there(clock: MovableClock) -> None:
    account, prefix = azurite().account, f"a{token_hex(6)}"
    first = await AzureStorage.open(account, clock, STORAGE_NAMES, prefix=prefix)
    etag = await first.tables.insert(TABLE, "p", "k", {"n": 1})
    await first.close()
    again = await AzureStorage.open(account, clock, STORAGE_NAMES, prefix=prefix)
    row = await again.tables.get(TABLE, "p", "k")
    assert row is not None
    assert row.etag == etag
    await again.close()


@pytest.mark.parametrize("key", [",", ",k", "k',", "',"])
async def test_a_key_that_azurite_would_mistake_is_refused_on_azurite(
    both: tuple[AzureStorage, TableClient], key: str
) -> None:
    storage, _ = both
    etag = await storage.tables.insert(TABLE, "p", key, {"n": 1})
    for change in (Upsert(key, {}), Replace(key, {}, etag), Delete(key)):
        with pytest.raises(ValueError, match="Azurite"):
            await storage.tables.batch(TABLE, "p", [change])
    row = await storage.tables.get(TABLE, "p", key)
    assert row is not None
    assert row.properties == {"n": 1}


# --- Limits -----------------------------------------------------------------------------------


def test_a_batch_too_large_as_azure_writes_it_is_refused_before_it_is_sent() -> None:
    names = [f"{'n' * 240}{n}" for n in range(port.PROPERTIES_MAX)]
    rows = [Upsert("%" * 512 + f"{n}", dict.fromkeys(names, 1)) for n in range(40)]
    with pytest.raises(ValueError, match="at most 4194304 bytes"):
        as_batch("http://127.0.0.1/t", "p", rows)


def test_no_text_in_a_row_can_end_its_part_of_a_batch() -> None:
    _, body = as_batch("http://127.0.0.1/t", "p", [Insert("k", {"x": "\r\n--changeset_\u2028"})])
    assert body.count(b"\r\n--changeset_") == 2  # where it begins and where it ends
    assert "\u2028".encode() not in body


# --- Who we are -------------------------------------------------------------------------------


class Tokens:
    """An identity whose tokens last an hour."""

    def __init__(self, clock: MovableClock) -> None:
        self.given = 0
        self._clock = clock

    async def get_token(self, *scopes: str, **_options: Any) -> AccessToken:
        assert scopes == ("https://storage.azure.com/.default",)
        self.given += 1
        expires_at = self._clock.now() + timedelta(hours=1)
        return AccessToken(f"token-{self.given}", int(expires_at.timestamp()))

    async def close(self) -> None: ...

    async def __aenter__(self) -> Tokens:
        return self

    async def __aexit__(self, *_: object) -> None: ...


async def test_a_token_is_kept_and_renewed_before_it_expires(clock: MovableClock) -> None:
    tokens = Tokens(clock)
    identity = Identity(tokens, clock)
    for _ in range(3):
        assert await identity.sign("/t", "now") == {"Authorization": "Bearer token-1"}
    clock.move(54 * 60)
    assert await identity.sign("/t", "now") == {"Authorization": "Bearer token-1"}
    clock.move(2 * 60)
    assert await identity.sign("/t", "now") == {"Authorization": "Bearer token-2"}
    assert tokens.given == 2


async def test_a_shared_access_signature_opens_all_three_services(clock: MovableClock) -> None:
    account = signed_account(clock)
    storage = await AzureStorage.open(account, clock, STORAGE_NAMES, prefix=f"s{token_hex(6)}")
    await storage.tables.insert(TABLE, "p", KEY, VALUES)
    await storage.queues.put("azuremailqueue", "x")
    await storage.blobs.put("a.htm", b"x")
    row = await storage.tables.get(TABLE, "p", KEY)
    assert row is not None
    assert row.properties == VALUES
    assert await storage.blobs.get("a.htm") == b"x"
    await storage.close()


def signed_account(clock: MovableClock) -> Account:
    emulator = azurite().account
    signature = generate_account_sas(
        emulator.name,
        emulator.key,
        resource_types="sco",
        permission="rwdlacup",
        expiry=clock.now() + timedelta(days=100_000),  # other tests move the emulator's clock
        services="bqt",
    )
    return parse_account(
        f"BlobEndpoint={emulator.blob_url};QueueEndpoint={emulator.queue_url};"
        f"TableEndpoint={emulator.table_url};AccountName={emulator.name};"
        f"SharedAccessSignature={signature}"
    )
