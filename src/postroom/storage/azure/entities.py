"""Rows in the format of Azure Tables: entities, entity-group batches, filters, continuations.

All functions are pure. Keys go into request bodies and query strings, never into the path of a
request, because the service decodes that twice, which would change a key with a percent sign. The
port's keys (validation.py) need no escaping of our own, so their order is preserved.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Sequence
from urllib.parse import quote

import msgspec

from postroom.storage import port
from postroom.storage.validation import as_properties

MINIMAL = "application/json;odata=minimalmetadata"
_TYPE = "@odata.type"
_ETAG = re.compile(r"""W/"datetime'[0-9A-Za-z%:.+-]{1,60}'\"""")
_MARK = re.compile(r"([\w!+/=.-]{0,4096})~([\w!+/=.-]{0,4096})", re.ASCII)
_PART_ETAG = re.compile(rb"\r\nETag: ([^\r]+)", re.IGNORECASE)
_CODE = re.compile(rb'"code":\s*"(\w+)"|<(?:m:)?code>(\w+)<', re.IGNORECASE)
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_CONDITIONS_SERVED_MAX = 10  # the service allows 15 comparisons, including bounds
_TEXT_SERVED_CHARS_MAX = 256  # a filter is part of the URL

# The characters of a key as they are written between apostrophes in a URL; faster than quote().
_IN_URL = {code: quote(chr(code), safe="") for code in range(0x20, 0x7F)} | {ord("'"): "%27%27"}

# Azurite parses entities with a pattern that stops at these characters; JSON may escape them.
_LINE_ENDS = ((b"\xe2\x80\xa8", b"\\u2028"), (b"\xe2\x80\xa9", b"\\u2029"))

_encode = msgspec.json.Encoder().encode


class _Answer(msgspec.Struct):
    value: list[dict[str, port.Value]]


_decode_answer = msgspec.json.Decoder(_Answer).decode


def as_entity(partition: str, key: str, properties: port.Properties) -> bytes:
    """Encode a row as JSON. An int is an Int64, which is sent as text; a float is a Double."""
    entity: dict[str, port.Value] = {"PartitionKey": partition, "RowKey": key}
    for name, value in properties.items():
        if isinstance(value, str | bool):
            entity[name] = value
        elif isinstance(value, int):
            entity[name + _TYPE] = "Edm.Int64"
            entity[name] = str(int(value))
        else:
            entity[name + _TYPE] = "Edm.Double"
            entity[name] = value
    return _encode(entity)


def rows_in(answer: bytes) -> list[port.Row]:
    try:
        return [_as_row(entity) for entity in _decode_answer(answer).value]
    except msgspec.MsgspecError as error:
        raise port.Unavailable("Azure Storage: the answer is not a page of rows.") from error


def _as_row(entity: dict[str, port.Value]) -> port.Row:
    pop = entity.pop
    etag = str(pop("odata.etag"))
    partition = str(pop("PartitionKey"))
    key = str(pop("RowKey"))
    pop("Timestamp", None)
    for annotation in [name for name in entity if name.endswith(_TYPE)]:
        name = annotation.removesuffix(_TYPE)
        kind = pop(annotation)
        if kind == "Edm.Int64":
            entity[name] = int(entity[name])
        elif kind == "Edm.Double":
            entity[name] = float(entity[name])
    return port.Row(partition, key, entity, etag)


RowChange = port.Insert | port.Upsert | port.Replace | port.Delete


def by_keys(changes: Sequence[port.Change]) -> list[RowChange]:
    """Write ranges as deletions of their keys: the service knows no other."""
    found: list[RowChange] = []
    for change in changes:
        if isinstance(change, port.DeleteRange):
            found += map(port.Delete, change.keys)
        else:
            found.append(change)
    return found


def etag_of(change: port.Change, etags: Iterator[str]) -> str:
    """The etag of a change, from those of its rows."""
    if not isinstance(change, port.DeleteRange):
        return next(etags)
    return [next(etags) for _ in change.keys][-1]


def as_batch(table_url: str, partition: str, changes: Sequence[RowChange]) -> tuple[str, bytes]:
    """Return the content type and body of an entity-group transaction."""
    boundary = secrets.token_hex(8)
    opening = (
        f"--changeset_{boundary}\r\nContent-Type: application/http\r\n"
        "Content-Transfer-Encoding: binary\r\n\r\n"
    ).encode()
    place = f"{table_url}(PartitionKey='{_quoted(partition)}',RowKey='"
    parts = [
        f"--batch_{boundary}\r\n"
        f"Content-Type: multipart/mixed; boundary=changeset_{boundary}\r\n\r\n".encode()
    ]
    for change in changes:
        parts += (opening, *_operation(table_url, place, partition, change), b"\r\n")
    parts.append(f"--changeset_{boundary}--\r\n--batch_{boundary}--\r\n".encode())
    body = b"".join(parts)
    for raw, spelt in _LINE_ENDS:
        body = body.replace(raw, spelt)
    if len(body) > port.BATCH_BYTES_MAX:
        raise ValueError(f"a batch has at most {port.BATCH_BYTES_MAX} bytes, not {len(body)}")
    return f"multipart/mixed; boundary=batch_{boundary}", body


_HEADERS = (
    f" HTTP/1.1\r\nAccept: {MINIMAL}\r\nContent-Type: application/json\r\n"
    "Prefer: return-no-content\r\nDataServiceVersion: 3.0\r\n"
)


def _operation(
    table_url: str, place: str, partition: str, change: RowChange
) -> tuple[bytes, bytes]:
    match change:
        case port.Insert():
            head = f"POST {table_url}{_HEADERS}\r\n"
        case port.Upsert():
            head = f"PUT {place}{_quoted(change.key)}'){_HEADERS}\r\n"
        case port.Replace():
            head = f"PUT {place}{_quoted(change.key)}'){_HEADERS}If-Match: {change.etag}\r\n\r\n"
        case port.Delete():
            etag = change.etag or "*"
            head = f"DELETE {place}{_quoted(change.key)}'){_HEADERS}If-Match: {etag}\r\n\r\n"
            return head.encode(), b""
    return head.encode(), as_entity(partition, change.key, as_properties(change.properties))


def check_etags(changes: Sequence[RowChange]) -> None:
    """Conflict for a text that is not an etag: no row has it, and the service would reject it."""
    for change in changes:
        etag = change.etag if isinstance(change, port.Replace | port.Delete) else None
        if etag is not None and not _ETAG.fullmatch(etag):
            raise port.Conflict("no row has such an etag")


def check_keys_for_emulator(changes: Sequence[RowChange]) -> None:
    """ValueError for a key with an apostrophe and a comma, which Azurite cannot parse.

    It would silently write to another row; the service itself is not affected.
    """
    for change in changes:
        if not isinstance(change, port.Insert) and "'," in f"'{change.key}":
            raise ValueError(f"Azurite cannot change a row with this key: {change.key!r}")


def parts_of(answer: bytes) -> list[tuple[int, bytes]]:
    """Split the answer to a batch into status and text of each part; a failed batch has one."""
    parts = answer.split(b"HTTP/1.1 ")[1:]  # no key contains a slash
    return [(int(part[:3]), part) for part in parts]


def etags_in(parts: Sequence[tuple[int, bytes]], changes: Sequence[RowChange]) -> list[str]:
    """Return the new etags, "" for a deletion."""
    found = [_PART_ETAG.search(part) for _, part in parts]
    if len(found) != len(changes):
        raise port.Unavailable(
            "Azure Storage: a batch was only partly answered; it may have been done."
        )
    return [
        "" if isinstance(change, port.Delete) or etag is None else etag[1].decode()
        for etag, change in zip(found, changes, strict=True)
    ]


def code_in(answer: bytes) -> str:
    """Return the service's error code, such as `EntityAlreadyExists`."""
    found = _CODE.search(answer)
    return (found[1] or found[2]).decode() if found else ""


def filter_of(keys: port.Keys, where: port.Properties, *, is_emulator: bool = False) -> str:
    """Return the conditions that the service can check; `validation.matches` checks the others."""
    name = "RowKey" if isinstance(keys, port.KeysWithin) else "PartitionKey"
    terms = [f"{name} ge {literal(keys.start)}"] if keys.start else []
    terms += [f"{name} lt {literal(keys.stop)}"] if keys.stop else []
    if isinstance(keys, port.KeysWithin):
        terms.insert(0, f"PartitionKey eq {literal(keys.partition)}")
    served = [(name, value) for name, value in where.items() if _is_served(value, is_emulator)]
    terms += [f"{name} eq {literal(value)}" for name, value in served[:_CONDITIONS_SERVED_MAX]]
    return " and ".join(terms)


def mark_of(next_partition: str | None, next_key: str | None) -> str | None:
    """Return the `next` of a page from the continuation headers; None at the end."""
    if next_partition is None and next_key is None:
        return None
    return f"{next_partition or ''}~{next_key or ''}"


def place_of(after: str) -> dict[str, str]:
    """Return the options of a continuation; if a browser changed it, the filter still holds."""
    found = _MARK.fullmatch(after)
    if not found or after == "~":
        raise ValueError("not a continuation of this scan")
    key = {"NextRowKey": found[2]} if found[2] else {}  # without: from the first key
    return {"NextPartitionKey": found[1], **key}


def as_query(options: dict[str, str]) -> str:
    return "&".join(f"{name}={quote(value, safe='')}" for name, value in options.items())


def _is_served(value: port.Value, is_emulator: bool) -> bool:
    """Floats have many notations, and a URL allows neither long texts nor control characters."""
    if isinstance(value, str):
        return len(value) <= _TEXT_SERVED_CHARS_MAX and not _CONTROL.search(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return not is_emulator  # Azurite fails to compare an Int64 with a row of another type
    return not isinstance(value, float)


def literal(value: port.Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return f"{int(value)}L"


def _quoted(key: str) -> str:
    """Quote a key for the URL of one part of a batch."""
    return key.translate(_IN_URL)
