"""The sign-up form and robots: they are asked once more, and people get through."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from postroom.web import throttles
from postroom.web.public import sign_up_form
from tests.web.doorstep import ADDRESS, PATH, Doorstep, is_thanks, open_doorstep, postmark_in


@pytest.fixture(autouse=True)
def quick_thanks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sign_up_form, "RESPONSE_S", 0)


@pytest_asyncio.fixture
async def doorstep(tmp_path: Path) -> AsyncIterator[Doorstep]:
    async with open_doorstep(tmp_path) as doorstep:
        yield doorstep


async def test_who_fills_in_the_hidden_field_is_asked_once_more_without_it(
    doorstep: Doorstep,
) -> None:
    """A browser may have done it; what fills in forms by itself does not press a button again."""
    answer = await doorstep.fill_in(homepage="https://spam.example.org")
    assert answer.status_code == 422
    assert "press the button again" in answer.text
    assert f'value="{ADDRESS}"' in answer.text
    assert 'name="homepage"' not in answer.text
    assert 'aria-invalid="true"' not in answer.text  # nothing is wrong with the address
    assert await doorstep.subscriber() is None
    assert await doorstep.mails() == 0
    again = {"email": ADDRESS, "postmark": postmark_in(answer)}
    assert is_thanks(await doorstep.browser.post(PATH, data=again))
    assert await doorstep.subscriber()


async def test_who_is_quicker_than_people_is_asked_once_more(doorstep: Doorstep) -> None:
    answer = await doorstep.fill_in(after_s=1.9)
    assert answer.status_code == 422
    assert "press the button again" in answer.text
    assert f'value="{ADDRESS}"' in answer.text
    assert await doorstep.subscriber() is None
    again = {"email": ADDRESS, "homepage": "", "postmark": postmark_in(answer)}
    assert is_thanks(await doorstep.browser.post(PATH, data=again))
    assert await doorstep.subscriber()


@pytest.mark.parametrize("after_s", [0, 10, 25 * 3600])
@pytest.mark.parametrize("trap", ["", "https://contoso.edu"])
async def test_a_wrong_address_is_reported_before_anything_else(
    doorstep: Doorstep, after_s: float, trap: str
) -> None:
    answer = await doorstep.fill_in("nobody", after_s=after_s, homepage=trap)
    assert answer.status_code == 422
    assert "The address has no @" in answer.text
    assert "press the button again" not in answer.text
    corrected = {"email": ADDRESS, "postmark": postmark_in(answer)}
    assert is_thanks(await doorstep.browser.post(PATH, data=corrected))


async def test_people_do_not_see_or_reach_the_hidden_field(doorstep: Doorstep) -> None:
    page = (await doorstep.browser.get(PATH)).text
    [trap] = re.findall(r'<p class="trap".*?</p>', page, re.DOTALL)
    assert 'aria-hidden="true"' in trap
    assert 'tabindex="-1"' in trap
    assert 'autocomplete="off"' in trap
    assert f'name="{sign_up_form.HONEYPOT}"' in trap
    assert "style=" not in page
    assert "<script" not in page
    assert ".trap {" in (await doorstep.browser.get("/static/public.css")).text


async def test_a_network_has_a_limit_and_is_told_when_to_come_back(doorstep: Doorstep) -> None:
    for number in range(throttles.NETWORK_CALLS_PER_HOUR):
        assert is_thanks(await doorstep.fill_in(f"student{number}@contoso.edu", after_s=2))
        doorstep.clock.move(seconds=-2)
    refused = await doorstep.fill_in("late@contoso.edu", after_s=2)
    assert refused.status_code == 429
    assert int(refused.headers["retry-after"]) <= 60
    assert 'value="late@contoso.edu"' in refused.text
    assert "Too many people are signing up from your network." in refused.text
    assert "Try again in 1 minute." in refused.text
    assert await doorstep.subscriber("late@contoso.edu") is None
    doorstep.clock.move(minutes=2)
    assert is_thanks(await doorstep.fill_in("late@contoso.edu"))
    assert await doorstep.subscriber("late@contoso.edu")


@pytest.mark.parametrize("is_there", [True, False])
async def test_an_address_has_a_limit_that_says_so_to_everybody_alike(
    doorstep: Doorstep, is_there: bool
) -> None:
    if is_there:
        await doorstep.join()
    for _ in range(throttles.ADDRESS_CALLS_PER_HOUR):
        assert is_thanks(await doorstep.fill_in(after_s=2))
        doorstep.clock.move(seconds=-2)
    asked = await doorstep.subscriber()
    doorstep.clock.move(seconds=30)
    refused = await doorstep.fill_in()
    assert refused.status_code == 429
    assert "This address has been entered too many times. Try again in 3 minutes." in refused.text
    assert await doorstep.subscriber() == asked
    assert await doorstep.mails() == (0 if is_there else 1)


async def test_a_body_in_a_strange_charset_breaks_nothing(doorstep: Doorstep) -> None:
    body = b'--x\r\nContent-Disposition: form-data; name="email"\r\n\r\n+2AA-@x.org\r\n--x--\r\n'
    kind = "multipart/form-data; boundary=x; charset=utf-7"
    answer = await doorstep.browser.post(PATH, content=body, headers={"content-type": kind})
    assert answer.status_code == 422
