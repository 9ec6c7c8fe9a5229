"""Limits that hold whichever web answers, as rows of `service` in the partition `throttle`.

web-<name>     what one web process tells the others of its callers
try-<hash>     when the tries of one caller to sign in are paid off

Callers are hashed with a secret before they come here: no address of anybody is in these rows.
Every row has the moment after which nobody needs it; readers pass it over, the sweep deletes it.

Dies half-way: a telling is one row, written whole, and tells everything anew each time; what a
process had counted and not told is lost with it, which is less than a round. A try is counted
before the password is looked at: who dies in between has used it up.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import msgspec
import structlog

from postroom.domain.throttle import NO_WAIT, Rate, Telling, Told
from postroom.records.rows import FORMAT, Unreadable, all_rows, check_format
from postroom.storage.port import Conflict, KeysWithin, Properties, Row, Tables, Value

log = structlog.get_logger("records")
TELLING_LASTS = timedelta(hours=4)  # as long as the slowest throttle remembers
CLOCKS_APART_MAX = timedelta(minutes=1)  # what is told later than that has a wrong clock
TRY_CONFLICTS_MAX = 5
_TABLE, _PARTITION = "service", "throttle"
_WEB, _WEBS_END = "web-", "web."
_TRY = "try-"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_THROTTLE = "throttle_"  # before the name of a throttle, one property each


# --- What webs tell each other ------------------------------------------------------------------


async def tell(
    tables: Tables,
    web: str,
    callers: Mapping[str, Mapping[str, Told]],
    now: datetime,
    follows: datetime | None,
) -> None:
    """Replace what this web told before; `callers` are those of each throttle."""
    properties: dict[str, Value] = {"v": FORMAT, **_times(now, now + TELLING_LASTS)}
    if follows is not None:
        properties["follows_us"] = _microseconds(follows)
    for name, told in callers.items():
        packed = {caller: _packed(each) for caller, each in told.items()}
        properties[_THROTTLE + name] = msgspec.json.encode(packed).decode()
    await tables.upsert(_TABLE, _PARTITION, _WEB + web, properties)


async def tellings(tables: Tables, web: str, now: datetime) -> dict[str, dict[str, Telling]]:
    """What the other webs tell: by web, by throttle."""
    found: dict[str, dict[str, Telling]] = {}
    async for row in all_rows(tables, _TABLE, KeysWithin(_PARTITION, _WEB, _WEBS_END)):
        name = row.key.removeprefix(_WEB)
        if name == web:
            continue
        try:
            found |= _read(name, row, now)
        except (Unreadable, KeyError, TypeError, ValueError, msgspec.MsgspecError) as error:
            log.error("row_unreadable", table=_TABLE, partition=_PARTITION, error=str(error)[:200])
    return found


def _read(name: str, row: Row, now: datetime) -> dict[str, dict[str, Telling]]:
    """Nothing, if it is old or its clock is wrong."""
    check_format(row.properties)
    told_at = _moment(int(row.properties["told_us"]))
    if not now - TELLING_LASTS < told_at < now + CLOCKS_APART_MAX:
        return {}
    follows_us = row.properties.get("follows_us")
    follows = None if follows_us is None else _moment(int(follows_us))
    return {
        name: {
            key.removeprefix(_THROTTLE): Telling(told_at, follows, _unpacked(str(value)))
            for key, value in row.properties.items()
            if key.startswith(_THROTTLE)
        }
    }


def _packed(told: Told) -> tuple[int, int, int, int, int]:
    since, recent_since = _microseconds(told.since), _microseconds(told.recent_since)
    return told.calls, told.recent, since, _microseconds(told.paid_off_at), recent_since


def _unpacked(text: str) -> dict[str, Told]:
    packed = msgspec.json.decode(text, type=dict[str, tuple[int, int, int, int, int]])
    return {
        caller: Told(calls, _moment(since), _moment(paid_off), recent, _moment(recent_since))
        for caller, (calls, recent, since, paid_off, recent_since) in packed.items()
    }


# --- Tries to sign in ---------------------------------------------------------------------------


async def count_try(tables: Tables, caller: str, rate: Rate, now: datetime) -> timedelta:
    """No wait, and the try is counted; or how long to wait, and it is not.

    Exact however many try at once: of two that read the same row one writes it, the other looks
    again. Whoever loses that race again and again is one of very many, and waits.
    """
    for _ in range(TRY_CONFLICTS_MAX):
        row = await tables.get(_TABLE, _PARTITION, _TRY + caller)
        paid_off_at, wait = rate.count(_paid_off_at(row, now), now)
        if wait > NO_WAIT:
            return wait
        with contextlib.suppress(Conflict):
            await _write_try(tables, caller, row, {"v": FORMAT, **_times(now, paid_off_at)})
            return NO_WAIT
    return rate.interval


async def forgive_tries(tables: Tables, caller: str) -> None:
    """Whoever was right after all starts afresh."""
    await tables.delete(_TABLE, _PARTITION, _TRY + caller)


def _paid_off_at(row: Row | None, now: datetime) -> datetime:
    if row is None:
        return now
    check_format(row.properties)
    return _moment(int(row.properties.get("until_us", 0)))


async def _write_try(tables: Tables, caller: str, row: Row | None, properties: Properties) -> None:
    key = _TRY + caller
    if row is None:
        await tables.insert(_TABLE, _PARTITION, key, properties)
    else:
        await tables.replace(_TABLE, _PARTITION, key, properties, row.etag)


# --- Both ---------------------------------------------------------------------------------------


async def forget_expired(tables: Tables, now: datetime) -> None:
    """Rows that nobody needs any more; one that is written again meanwhile stays."""
    async for row in all_rows(tables, _TABLE, KeysWithin(_PARTITION)):
        until_us = row.properties.get("until_us", 0)
        if isinstance(until_us, int) and until_us < _microseconds(now - CLOCKS_APART_MAX):
            with contextlib.suppress(Conflict):
                await tables.delete(_TABLE, _PARTITION, row.key, row.etag)


def _times(now: datetime, until: datetime) -> dict[str, Value]:
    return {"told_us": _microseconds(now), "until_us": _microseconds(until)}


def _microseconds(at: datetime) -> int:
    """Whole: what is paid off must not shift by being written down."""
    return (at - _EPOCH) // timedelta(microseconds=1)


def _moment(microseconds: int) -> datetime:
    return _EPOCH + timedelta(microseconds=microseconds)
