"""What a provider delivers after its own merge is what our own merge writes, byte for byte."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.domain.address import parse_address, parse_mailbox
from postroom.domain.message import SUBJECT_CHARS_MAX
from postroom.mail.merge import escape_braces, fill
from postroom.mail.mime import CompiledMail, MailParts, compile_mail
from postroom.transport.acs import Acs, AcsConfig
from postroom.transport.provider.lane import MailProvider
from postroom.transport.sendgrid import SUBSTITUTIONS_BYTES_MAX, SendGrid, SendGridConfig
from postroom.transport.ses import Ses, SesConfig
from tests.clock import MovableClock
from tests.contract.transports import ContractLetter
from tests.provider_stubs import acs, sendgrid, ses
from tests.provider_stubs.server import AcceptedMail, ProviderStub, StubRequest

CLOCK = MovableClock()
HOST = "127.0.0.1:9"
URL = f"http://{HOST}"


def sendgrid_pair() -> tuple[MailProvider, ProviderStub]:
    config = SendGridConfig(sendgrid.KEY, base_url=URL)
    return SendGrid(config, CLOCK), sendgrid.SendGridStub()


def acs_pair() -> tuple[MailProvider, ProviderStub]:
    return Acs(AcsConfig(URL, acs.KEY), CLOCK), acs.AcsStub()


def ses_pair() -> tuple[MailProvider, ProviderStub]:
    config = SesConfig(ses.REGION, ses.KEY_ID, ses.SECRET, base_url=URL)
    return Ses(config, CLOCK), ses.SesStub()


PAIRS = {"sendgrid": sendgrid_pair, "acs": acs_pair, "ses": ses_pair}


@dataclass(frozen=True)
class MergedLetter(ContractLetter):
    message: CompiledMail | None = None
    values: Mapping[str, str] | None = None

    @property
    def compiled(self) -> CompiledMail:
        assert self.message is not None
        return self.message

    @property
    def merge_values(self) -> Mapping[str, str]:
        return {**super().merge_values, **(self.values or {})}

    def source(self, *, eight_bit: bool) -> bytes:
        return self.compiled.splice(
            parse_address(self.recipient),
            self.merge_values,
            message_id=self.message_id,
            date="Sun, 15 Nov 2026 09:00:00 +0000",
            unsubscribe_url=self.merge_values["unsubscribe_url"],
            eight_bit=eight_bit,
        ).source


def delivered(name: str, mails: list[MergedLetter]) -> list[AcceptedMail]:
    """Each call's request goes to the stub as it would arrive there."""
    provider, stub = PAIRS[name]()
    for places in provider.calls(mails):
        request = provider.request([mails[at] for at in places])
        headers = {"host": HOST, **{key.lower(): value for key, value in request.headers.items()}}
        stub.answer(StubRequest(request.method, request.path, headers, request.body))
    order = {mail.token: place for place, mail in enumerate(mails)}
    return sorted(stub.accepted, key=lambda mail: order[mail.token])


def expected(mail: MergedLetter) -> tuple[str, str, str | None]:
    compiled = mail.compiled
    rich = None if compiled.html is None else fill(compiled.html, mail.merge_values)
    subject = fill(compiled.subject, mail.merge_values)[:SUBJECT_CHARS_MAX] or " "
    return subject, fill(compiled.text, mail.merge_values), rich


def message(subject: str, text: str, rich: str | None, **more: Any) -> CompiledMail:
    sender = parse_mailbox("Abteilung für Geschichte <history@contoso.edu>")
    return compile_mail(MailParts(sender=sender, subject=subject, text=text, html=rich, **more))


nasty = st.text(
    st.one_of(
        st.sampled_from(list("{}%<>&\"'\\-$@ \t\r\n#/=.")),
        st.characters(exclude_categories=["Cs"], exclude_characters="\x00"),
    ),
    max_size=30,
)
printable = st.text(st.sampled_from(list("{}%<>&\"'\\-$ äß漢")), max_size=20)
fields = st.sampled_from(["{{ name }}", '{{ town | default("x{y") }}', "{{ unsubscribe_url }}"])


@st.composite
def templates(draw: st.DrawFn, literals: st.SearchStrategy[str], *, is_html: bool) -> str:
    parts = draw(st.lists(st.one_of(fields, literals.map(lambda text: (text,))), max_size=8))
    written = [
        part
        if isinstance(part, str)
        else escape_braces(html.escape(part[0]) if is_html else part[0])
        for part in parts
    ]
    return "".join(written) or "x"


@st.composite
def messages(draw: st.DrawFn) -> CompiledMail:
    body = draw(templates(nasty, is_html=True))
    rich = (
        f'<html><body><a href="{{{{ unsubscribe_url }}}}" title="{body}">{body}</a></body></html>'
    )
    return message(
        draw(templates(printable, is_html=False)),
        draw(templates(nasty, is_html=False)),
        draw(st.sampled_from([None, rich])),
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", PAIRS)
@given(compiled=messages(), values=st.lists(st.tuples(nasty, nasty), min_size=1, max_size=4))
def test_every_recipient_gets_what_our_own_merge_writes(
    name: str, compiled: CompiledMail, values: list[tuple[str, str]]
) -> None:
    mails = [
        MergedLetter(
            position,
            f"student{position}@contoso.edu",
            message=compiled,
            values={"name": person, "town": town},
        )
        for position, (person, town) in enumerate(values)
    ]
    found = delivered(name, mails)
    assert [(mail.subject, mail.text, mail.html) for mail in found] == list(map(expected, mails))


@pytest.mark.parametrize("name", PAIRS)
def test_everybody_has_an_own_unsubscribe_link_and_header(name: str) -> None:
    compiled = message("Hello", "Leave: {{ unsubscribe_url }}", None, list_id=("Büro", "b.x.edu"))
    mails = [MergedLetter(at, f"student{at}@contoso.edu", message=compiled) for at in range(3)]
    for mail, found in zip(mails, delivered(name, mails), strict=True):
        url = f"https://lists.contoso.edu/u/history/{mail.position}"
        assert url in found.text
        assert found.headers["List-Unsubscribe"] == f"<{url}>"
        assert found.headers["List-Id"] == "=?utf-8?b?QsO8cm8=?= <b.x.edu>"
        assert found.token == mail.token
        assert name == "ses" or found.headers["Message-ID"] == mail.message_id


@pytest.mark.slow
@pytest.mark.parametrize("name", PAIRS)
def test_much_of_ones_own_goes_alone_and_arrives_whole(name: str) -> None:
    """SendGrid takes 10,000 bytes of substitutions, SES 1 MB for a call."""
    many = "".join(f"{{{{ field{number} }}}}\r\n" for number in range(700))
    compiled = message("Hello {{ name }}", many, None)
    much = {f"field{number}": "é" * 2000 for number in range(700)}
    little = {f"field{number}": "x" for number in range(700)} | {"name": "Ada"}
    mails = [
        MergedLetter(1, "ada@contoso.edu", message=compiled, values=little),
        MergedLetter(2, "bob@contoso.edu", message=compiled, values=much),
    ]
    assert len(repr(much)) > SUBSTITUTIONS_BYTES_MAX
    provider, _ = PAIRS[name]()
    assert sorted(provider.calls(mails)) == [[0], [1]]
    found = delivered(name, mails)
    for mail, one in zip(mails, found, strict=True):
        subject, text, _ = expected(mail)
        assert (one.subject, one.text.replace("\r\n", "\n")) == (
            subject,
            text.replace("\r\n", "\n"),
        )


def test_literal_braces_of_a_template_are_no_fields_for_ses() -> None:
    css = '{{ "{{" }}name}} \\{{ name }} {{ "{{{" }}{{ name }}} @media{a{color:red}}'
    compiled = message("{{ name }}", css, None)
    mail = MergedLetter(1, "ada@contoso.edu", message=compiled, values={"name": "{{f0}}"})
    [found] = delivered("ses", [mail])
    assert found.text == "{{name}} \\{{f0}} {{{{{f0}}} @media{a{color:red}}\r\n"


TOKEN_OF: dict[str, Callable[[dict[str, Any]], str]] = {
    "sendgrid": lambda event: event["postroom_delivery"],
    "acs": lambda event: event["data"]["internetMessageId"].strip("<>").partition("@")[0],
    "ses": lambda event: event["mail"]["tags"]["postroom_delivery"][0],
}


@pytest.mark.parametrize("name", PAIRS)
def test_the_events_of_a_stub_name_the_delivery(name: str) -> None:
    mail = MergedLetter(7, "ada@contoso.edu", message=message("Hello", "Hello", None))
    provider, stub = PAIRS[name]()
    request = provider.request([mail])
    headers = {"host": HOST, **request.headers}
    stub.answer(StubRequest(request.method, request.path, headers, request.body))
    for kind in ("delivered", "bounced"):
        assert [TOKEN_OF[name](event) for event in stub.events(kind)] == [mail.token]
