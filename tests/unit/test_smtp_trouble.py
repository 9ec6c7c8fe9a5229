"""What a person reads when a mail server cannot be reached: a meaning, not an error number."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl

import pytest
import uvloop

from postroom.bench.ports import held_port
from postroom.bench.sink import Sink, SinkOptions
from postroom.transport.smtp_config import SmtpConfig, Tls
from postroom.transport.smtp_session import Unavailable, open_session, tls_context
from postroom.transport.smtp_trouble import trouble_words

CONFIG = SmtpConfig("mail.contoso.edu", 587)


def several(*numbers: int) -> OSError:
    """As asyncio tells of a host that has several addresses."""
    told = ", ".join(f"[Errno {number}] Connect call failed ('::1', 587)" for number in numbers)
    return OSError(f"Multiple exceptions: {told}")


def untrusted(code: int) -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError(1, "[SSL: CERTIFICATE_VERIFY_FAILED]")
    error.verify_code, error.verify_message = code, "words of OpenSSL"
    return error


ERRORS = [
    (socket.gaierror(socket.EAI_NONAME, "Name or service not known"),
     "the host name mail.contoso.edu cannot be found"),
    (socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"),
     "the name server does not answer"),
    (ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"),
     "nothing listens on port 587 there"),
    (several(errno.ECONNREFUSED, errno.ECONNREFUSED), "nothing listens on port 587 there"),
    (several(errno.EHOSTUNREACH, errno.ENETUNREACH), "there is no way to it from here"),
    (several(errno.ECONNREFUSED, errno.EHOSTUNREACH), "Multiple exceptions"),
    (TimeoutError(), "no answer in time: check host and port"),
    (TimeoutError(errno.ETIMEDOUT, "Connection timed out"), "no answer in time"),
    (untrusted(10), "words of OpenSSL; the server needs a new one"),
    (untrusted(20), "words of OpenSSL; set POSTROOM_SMTP_CA_FILE"),
    (untrusted(62), "words of OpenSSL; use the name in the certificate instead of mail.contoso"),
    (untrusted(1), "its certificate is not trusted: words of OpenSSL"),
    (OSError(errno.EMFILE, "Too many open files"), "Too many open files"),
    (UnicodeError("label too long"), "label too long"),
]  # fmt: skip


@pytest.mark.parametrize(("error", "words"), ERRORS, ids=lambda each: str(each)[:40])
def test_an_error_is_told_by_what_it_means(error: Exception, words: str) -> None:
    assert words in trouble_words(error, CONFIG)


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_a_port_without_tls_from_the_start_is_told_by_the_option_to_leave_out(run: object) -> None:
    async def words() -> str:
        async with Sink(SinkOptions()) as sink:
            return await refusal(SmtpConfig("127.0.0.1", sink.port, Tls.IMPLICIT))

    assert callable(run)
    told = run(words())
    assert "does not speak TLS from the start: leave ?tls=implicit out" in told


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_a_port_on_which_nothing_listens_is_named(run: object) -> None:
    assert callable(run)
    with held_port() as port:
        told = run(refusal(SmtpConfig("127.0.0.1", port)))
    assert f"nothing listens on port {port} there" in told


async def refusal(config: SmtpConfig) -> str:
    with pytest.raises(Unavailable) as refused:
        await open_session(config, tls_context(config))
    return str(refused.value)
