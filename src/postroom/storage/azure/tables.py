"""Tables on Azure: every write is an entity-group batch, every read a query."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import msgspec

from postroom.storage import port, validation
from postroom.storage.azure import entities
from postroom.storage.azure.http import HttpClient, HttpResponse
from postroom.storage.azure.retry import RetryPolicy, UnexpectedAnswer, check_answer

POINT_PAGES_MAX = 10  # the service may send empty pages before the one with the row
_AS_EXPECTED = frozenset({201, 202, 204})
_CONFLICTS = frozenset({"EntityAlreadyExists", "ResourceNotFound", "UpdateConditionNotSatisfied"})


class TableMissing(port.Unavailable):
    """The tables were not created yet, or one was deleted."""


class AzureTables(port.Tables):
    def __init__(
        self, client: HttpClient, retry_policy: RetryPolicy, names: Sequence[str], prefix: str
    ) -> None:
        self._client = client
        self._retry_policy = retry_policy
        self._names = names
        self._prefix = prefix

    async def check_exists(self) -> None:
        """Unavailable, with what to do, if the tables were not created yet."""
        try:
            await self._query(self._names[0], {"$top": "1"})
        except TableMissing:
            raise port.Unavailable(
                "There is no Postroom storage in this account, or not with this prefix. "
                "Set POSTROOM_STORAGE and POSTROOM_AZURE_PREFIX."
            ) from None

    async def create_missing(self) -> None:
        for table in self._names:
            body = msgspec.json.encode({"TableName": self._prefix + table})
            send = partial(self._client.send, "POST", "/Tables", body=body)
            answer = await self._retry_policy.call(send, reads=True)  # safe to retry, like a read
            if answer.status not in _AS_EXPECTED and answer.code != "TableAlreadyExists":
                raise _unexpected(answer.status, answer.code)

    async def get(self, table: str, partition: str, key: str) -> port.Row | None:
        validation.check_row(self._names, table, partition, key)
        row_keys = entities.literal(partition), entities.literal(key)
        options = {"$filter": "PartitionKey eq {} and RowKey eq {}".format(*row_keys), "$top": "1"}
        for _ in range(POINT_PAGES_MAX):
            rows, after = await self._query(table, options)
            if rows or after is None:
                return rows[0] if rows else None
            options |= entities.place_of(after)
        raise port.Unavailable("Azure Storage: only empty pages instead of a row.")

    async def batch(self, table: str, partition: str, changes: Sequence[port.Change]) -> list[str]:
        validation.encode_batch(self._names, table, partition, changes)
        rows = entities.by_keys(changes)
        if self._client.is_emulator:
            entities.check_keys_for_emulator(rows)
        entities.check_etags(rows)
        url = f"{self._client.url}/{self._prefix}{table}"
        kind, body = entities.as_batch(url, partition, rows)

        async def attempt() -> list[tuple[int, bytes]]:
            return _parts(await self._client.send("POST", "/$batch", body=body, kind=kind))

        parts = await self._retry_policy.call(attempt, reads=False)
        etags = iter(entities.etags_in(parts, rows))
        return [entities.etag_of(change, etags) for change in changes]

    async def scan(
        self,
        table: str,
        keys: port.Keys,
        *,
        where: port.Properties | None = None,
        limit: int = port.SCAN_ROWS_MAX,
        after: str | None = None,
    ) -> port.Page:
        validation.check_scan(self._names, table, keys, where, limit)
        where = where or {}
        options = {} if after is None else entities.place_of(after)
        options["$top"] = str(limit)
        if condition := entities.filter_of(keys, where, is_emulator=self._client.is_emulator):
            options["$filter"] = condition
        rows, next_ = await self._query(table, options)
        if where:
            rows = [row for row in rows if validation.matches(row.properties, where)]
        return port.Page(rows, next_)

    async def _query(
        self, table: str, options: dict[str, str]
    ) -> tuple[list[port.Row], str | None]:
        path = f"/{self._prefix}{table}()"
        query = entities.as_query(options)
        answer = await self._retry_policy.call(
            lambda: self._client.send("GET", path, query), reads=True
        )
        if answer.status != 200:
            raise _unexpected(answer.status, answer.code)
        return entities.rows_in(answer.body), answer.next


def _parts(answer: HttpResponse) -> list[tuple[int, bytes]]:
    """Return the answers to the changes of a batch; raise if one of them failed."""
    if answer.status not in _AS_EXPECTED:
        raise _unexpected(answer.status, answer.code)
    parts = entities.parts_of(answer.body)
    for status, part in parts:
        if status in _AS_EXPECTED:
            continue
        code = entities.code_in(part)
        check_answer(status, code)
        if code in _CONFLICTS:
            raise port.Conflict("a row is not as expected")
        raise _unexpected(status, code)
    return parts


def _unexpected(status: int, code: str) -> port.Unavailable:
    if code == "TableNotFound":
        return TableMissing("Azure Storage: a table is missing; a restart creates it again.")
    return UnexpectedAnswer(status, code)
