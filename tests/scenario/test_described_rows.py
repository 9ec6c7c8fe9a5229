"""Rows as described: what a message leaves in storage has the names of docs/tables.md."""

from __future__ import annotations

import re

from postroom.records import batches
from postroom.records.names import TABLES
from postroom.records.rows import all_rows
from postroom.storage.port import KeysAcross, KeysWithin, Properties, Row
from tests.scenario.test_confirmations import sign_up
from tests.scenario.town import Town
from tests.unit.test_tables_page import documented, sections


async def every_row(town: Town) -> list[tuple[str, Row]]:
    tables = town.storage.tables
    return [(name, row) for name in TABLES async for row in all_rows(tables, name, KeysAcross())]


def pattern(heading: str) -> re.Pattern[str]:
    """What the partition and key of such a row look like."""
    partition, _, keys = heading.removesuffix(" (archived)").partition(" / ")
    places = [f"{partition} / {key}" for key in keys.split(", ")]
    texts = [re.escape(place.replace("`", "")) for place in places]
    return re.compile("|".join(re.sub(r"<[^>]*>", ".*", text) for text in texts))


async def test_every_row_of_a_message_is_on_the_page(town: Town) -> None:
    await town.found_list()
    await sign_up(town, "eve")
    await town.join("ada", "perm-fail", "zoe")
    await town.leave("zoe")
    await town.compose()
    await town.fan_out()
    stored = await every_row(town)
    await town.open_sender()
    await town.quiet()
    stored += await every_row(town)
    kinds = {heading: pattern(heading) for heading in sections() if "` / `" in heading}
    for table, row in stored:
        place = f"{row.partition} / {row.key}"
        names = [
            set(documented(heading)) for heading, places in kinds.items() if places.fullmatch(place)
        ]
        assert any(set(row.properties) <= each for each in names), (table, place, row.properties)


async def test_the_partition_of_a_batch_has_all_that_a_sender_needs(town: Town) -> None:
    ref = await town.mailing("ada")
    rows = {
        row.key: row.properties
        async for row in all_rows(
            town.storage.tables, "message", KeysWithin(batches.partition(ref, 0))
        )
    }
    message = await town.read(ref)
    assert message.due_at
    header: Properties = rows.pop("batch")
    assert header["MessageRef"] == ref
    assert str(header["ScheduledDate"]).startswith(message.due_at.strftime("%Y-%m-%dT%H:%M"))
    assert header["SubjectLine"] == "New lecture series"
    assert header["ListName"] == message.list_name
    assert header["FromEmailAddress"] == message.sender
    [delivery] = rows.values()
    assert delivery["EmailAddress"] == "ada@contoso.edu"
    assert delivery["SubscriberGUID"] == (await town.subscriber("ada")).guid
