"""The send path against aiosmtpd: a server written by others, strict about the standards."""

from __future__ import annotations

from email import message_from_bytes, policy

from postroom.domain.delivery import State
from postroom.domain.message import Books
from postroom.transport.smtp.transport import SmtpTransport
from tests.contract.test_smtp_aiosmtpd import Mailbox, aiosmtpd, strict_server
from tests.scenario.town import Town, students


async def test_a_mailing_goes_through_a_strict_server(town: Town) -> None:
    mailbox = Mailbox()
    names = students(120)
    ref = await town.mailing(*names, "unknown")
    async with aiosmtpd(strict_server(mailbox)) as config:
        role = await town.open_sender(transport=SmtpTransport(config))
        await town.quiet()
        await town.close_sender(role)
    arrived = sorted(envelope.rcpt_tos[0] for envelope in mailbox.envelopes)
    assert arrived == [f"{name}@contoso.edu" for name in names]
    assert (await town.read(ref)).books == Books(sent=120, failed=1)
    assert (await town.fates(ref))["unknown"] == (State.FAILED, "550 5.1.1 no such user")
    for envelope in mailbox.envelopes:
        assert isinstance(envelope.content, bytes)
        mail = message_from_bytes(envelope.content, policy=policy.default)
        assert not mail.defects
        assert mail["To"] == envelope.rcpt_tos[0]
        assert envelope.mail_from == "donotreply@contoso.edu"
