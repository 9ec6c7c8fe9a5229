"""Compiling a message: once for all lanes, and not on the event loop."""

from __future__ import annotations

import asyncio
import threading

import pytest

from postroom.domain.delivery import Delivery
from postroom.flow import compose, render
from postroom.flow.compose import Draft
from postroom.flow.render import Renderer
from postroom.mail.mime import CompiledMail, MailParts, compile_mail
from postroom.records import messages
from tests.acting import acting
from tests.scenario.town import LIST, SITE, Town

LANES = 16


async def test_a_message_is_compiled_once_for_all_lanes(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    await town.found_list()
    text = 'Dear {% if city == "Oslo" %}Norwegian{% else %}all{% endif %}'
    draft = Draft(list_name=LIST, subject="News", text=text)
    ref = (await compose.compose(acting(town.storage, town.clock.now()), draft)).ref
    message = await messages.read(town.storage.tables, ref)
    compiled_in: list[threading.Thread] = []

    def counted(parts: MailParts) -> CompiledMail:
        compiled_in.append(threading.current_thread())
        return compile_mail(parts)

    monkeypatch.setattr(render, "compile_mail", counted)
    renderer = Renderer(town.storage, SITE, town.clock)
    found = await asyncio.gather(*(renderer.compiled(message) for _lane in range(LANES)))
    assert len(compiled_in) == 1
    assert compiled_in[0] is not threading.main_thread()
    assert len({id(each) for each in found}) == 1
    ada = Delivery(0, "ada@contoso.edu", "ada@contoso.edu", "a" * 32, {"city": "Oslo"})
    [mail] = found[0].mails_for(0, [ada])
    assert b"Dear Norwegian" in mail.spliced(eight_bit=True).source
