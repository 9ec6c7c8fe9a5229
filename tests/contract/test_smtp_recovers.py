"""A server that was in trouble for a moment is used as before once it is well again."""

from __future__ import annotations

from dataclasses import replace
from time import monotonic

import pytest

from postroom.domain.outcome import Sent
from postroom.transport.smtp import transport as smtp_transport
from tests.contract.test_smtp import CHUNKING, running
from tests.letters import Witness, many_letters


async def test_a_moment_of_421_does_not_shorten_connections_for_good(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    later_s = 0.0
    monkeypatch.setattr(smtp_transport, "monotonic", lambda: monotonic() + later_s)
    async with running(replace(CHUNKING, mails_per_connection_max=1)) as (sink, transport):
        lane = transport.lane()
        await lane.send(many_letters(4), Witness())
        sink.options = replace(sink.options, mails_per_connection_max=0)
        later_s = 24 * 3600.0
        before, sent = sink.connected, 0
        for _ in range(4):
            outcomes = await lane.send(many_letters(50), Witness())
            sent += sum(isinstance(outcome, Sent) for outcome in outcomes)
    assert sent == 200
    assert sink.connected - before <= 2
