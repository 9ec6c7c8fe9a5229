"""`postroom trace`: what the roles did and what went wrong, newest last."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from postroom.cli.output import AsJson, show, to_json
from postroom.cli.session import interruptible, work
from postroom.domain.address import parse_address
from postroom.domain.errors import BadInput, NotFound
from postroom.domain.trace_entry import TraceLevel, is_person_id, person_id
from postroom.domain.trace_sentences import trace_sentence
from postroom.records import lists, subscribers, traces
from postroom.records.traces import KeyedTrace, TraceFilter
from postroom.storage.port import Tables

if TYPE_CHECKING:
    from postroom.wiring import Parts

FOLLOW_EVERY_S = 1.0
LIMIT_MAX = 10_000
PAGES_MAX = 300  # of 8,000 traces each that are examined for a rare filter
_SPAN = re.compile(r"([0-9]{1,5})([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def trace(
    level: Annotated[TraceLevel, typer.Option(help="This level and above.")] = TraceLevel.INFO,
    role: Annotated[str, typer.Option(help="web, scheduler, sender, supervisor, drain.")] = "",
    instance: Annotated[str, typer.Option(help="Host and process id, as shown.")] = "",
    message: Annotated[str, typer.Option(metavar="REF", help="Number of a message.")] = "",
    person: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Address of a subscriber, or their trace id.")
    ] = "",
    text: Annotated[str, typer.Option(help="Part of the sentence, or the name of an event.")] = "",
    since: Annotated[
        str, typer.Option(metavar="TIME", help="30s, 10m, 1h, 7d, or a time such as 2026-11-18.")
    ] = "",
    until: Annotated[
        str, typer.Option(metavar="TIME", help="End of the period, in the same format.")
    ] = "",
    limit: Annotated[int, typer.Option(min=1, max=LIMIT_MAX, help="Show at most this many.")] = 100,
    follow: Annotated[bool, typer.Option("--follow", help="Keep running until Ctrl-C.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show what every role did and what went wrong. --follow with --json: one object per line."""

    async def run(parts: Parts) -> None:
        now = parts.clock.now()
        wanted = TraceFilter(
            level=level,
            role=role,
            instance=instance,
            ref=message,
            text=text,
            since=parse_time(since, now),
            until=parse_time(until, now),
        )
        tables = parts.storage.tables
        filters = [
            msgspec.structs.replace(wanted, person=each) for each in await _people(tables, person)
        ]
        found = await _newest(tables, filters, limit)
        if not follow:
            data = [msgspec.to_builtins(entry) for _key, entry in found]
            show(data, as_json, *map(_line, found), if_empty="No traces match.")
            return
        _show_each(found, as_json)
        await _follow(tables, filters, found[-1].key if found else "", as_json)

    work(run)


def parse_time(text: str, now: datetime) -> datetime | None:
    """“1h” ago, or a time; without a zone it is UTC."""
    if not text:
        return None
    if span := _SPAN.fullmatch(text):
        return now - timedelta(seconds=int(span[1]) * _SECONDS[span[2]])
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise BadInput(
            f"“{text}” is not a time. Write 30s, 10m, 1h or 7d, or a time such as 2026-11-18T09:00."
        ) from None
    return at if at.tzinfo else at.replace(tzinfo=now.tzinfo)


async def _people(tables: Tables, person: str) -> list[str]:
    """The trace ids of a person, one for each of their lists; one empty id for anybody."""
    if not person or is_person_id(person):
        return [person]
    key = parse_address(person).storage_key
    found = [
        person_id(one.value.guid)
        async for mailing_list in lists.every_list(tables)
        if (one := await subscribers.find(tables, mailing_list.name, key)) and one.value.guid
    ]
    if not found:
        raise NotFound("No list has a subscriber with this address.")
    return found


async def _newest(
    tables: Tables, filters: Sequence[TraceFilter], limit: int, *, after: str = ""
) -> list[KeyedTrace]:
    """The newest that match, oldest first; with `after`, only those newer than this key."""
    found: dict[str, KeyedTrace] = {}
    for wanted in filters:
        before = ""
        for _page in range(PAGES_MAX):
            page = await traces.read_page(tables, wanted, limit=min(limit, 500), before=before)
            new = [each for each in page.traces if not after or each.key < after]
            found |= {each.key: each for each in new}
            before = page.next or ""
            is_enough = len(found) >= limit or len(new) < len(page.traces)
            if not before or is_enough or (after and before > after):
                break
    return [found[key] for key in sorted(found)][:limit][::-1]


async def _follow(tables: Tables, filters: Sequence[TraceFilter], last: str, as_json: bool) -> None:
    """Show new traces; one that is written late, with an earlier time, is not shown."""
    with interruptible() as interrupt:
        while not interrupt.is_set():
            new = await _newest(tables, filters, LIMIT_MAX, after=last)
            _show_each(new, as_json)
            last = new[-1].key if new else last
            try:
                await asyncio.wait_for(interrupt.wait(), FOLLOW_EVERY_S)
            except TimeoutError:
                continue


def _show_each(found: Sequence[KeyedTrace], as_json: bool) -> None:
    for each in found:
        typer.echo(to_json(msgspec.to_builtins(each.entry)) if as_json else _line(each))


def _line(trace: KeyedTrace) -> str:
    entry = trace.entry
    sentence = trace_sentence(entry.event, entry.fields)
    about = f" [message {entry.ref}]" if entry.ref else ""
    about += f" [subscriber {entry.person}]" if entry.person else ""
    return f"{entry.at:%Y-%m-%d %H:%M:%S}  {entry.level:7}  {entry.role:10}  {sentence}{about}"
