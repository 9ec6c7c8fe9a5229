"""A message from the command line to the archive, through a real Postfix in three shapes."""

from __future__ import annotations

from pathlib import Path

import pytest

from postroom.domain.address import parse_address
from postroom.domain.delivery import State
from postroom.flow import subscribe
from postroom.records.recipient_outcomes import all_outcomes
from postroom_bench.installation import LIST, Installation, books
from tests.acting import acting
from tests.interop.postfix import Postfix

PEOPLE = 250
FIRST = {"chunking_port": 10_000, "pipelining_port": 20_000, "plain_port": 30_000}


@pytest.mark.parametrize("shape", FIRST)
async def test_a_message_reaches_everybody_once_and_says_who_was_refused(
    postfix: Postfix, shape: str, tmp_path: Path
) -> None:
    name = f"student{FIRST[shape]}"  # student10000, student10001…: others than in other tests
    async with Installation(tmp_path) as installation, installation.parts() as parts:
        installation.overrides["POSTROOM_TRANSPORT"] = f"smtp://127.0.0.1:{getattr(postfix, shape)}"
        await installation.people(parts, PEOPLE, name=name)
        for refused in ("nobody@contoso.edu", "busy@contoso.edu"):
            address = parse_address(refused)
            now = parts.clock.now()
            await subscribe.add(acting(parts.storage, now), LIST, address, {}, verified=True)
        ref = await installation.message(parts)
        drain = await installation.start("drain")
        assert await drain.wait(within_s=60) == 0, drain.log.read_text()[-2000:]
        message = await books(parts, ref)
        sent = [fate async for fate in all_outcomes(parts.storage.tables, message, State.SENT)]
        [failed] = [
            fate async for fate in all_outcomes(parts.storage.tables, message, State.FAILED)
        ]
        [waiting] = [
            fate async for fate in all_outcomes(parts.storage.tables, message, State.QUEUED)
        ]
    await postfix.has_relayed(fate.words for fate in sent)
    assert message.books.total == message.audience == PEOPLE + 2
    assert (message.books.sent, message.books.doubts) == (PEOPLE, 0)
    assert failed.words.startswith("550 5.1.1 ")
    assert waiting.words.startswith("450 4.2.1 ")
    assert set(postfix.next_hop.counts(fate.address for fate in sent).values()) == {1}
