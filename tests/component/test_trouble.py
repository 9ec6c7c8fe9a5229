"""Trouble with the mail server, in sentences that people understand."""

from __future__ import annotations

import errno
import socket
import ssl
import time
from datetime import UTC, datetime

import pytest

from postroom.domain.breaker import Breaker, MailHealth
from postroom.domain.outcome import Deferred, Rejected, Scope, Sent
from postroom.domain.trouble import (
    ADVICE,
    Fault,
    TroubleKind,
    fault_of_error,
    fault_of_words,
    one_line,
    sentence,
)

SERVER = "mail.contoso.edu:587"
NOW = datetime(2026, 11, 15, 9, 0, tzinfo=UTC)
CPU_S_MAX = 2  # usually some milliseconds


def tls_error(reason: str) -> ssl.SSLError:
    error = ssl.SSLError(1, f"[SSL: {reason}] (_ssl.c:1006)")
    error.reason = reason
    return error


def refused(address: str) -> str:
    return f"[Errno {errno.ECONNREFUSED}] Connect call failed ('{address}', 25)"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            socket.gaierror(-2, "Name or service not known"),
            "The mail server mail.contoso.edu:587 cannot be found.",
        ),
        (
            ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed"),
            "Cannot connect to the mail server mail.contoso.edu:587: connection refused",
        ),
        (
            OSError(f"Multiple exceptions: {refused('::1')}, {refused('127.0.0.1')}"),
            "Cannot connect to the mail server mail.contoso.edu:587: connection refused",
        ),
        (TimeoutError(), "The mail server mail.contoso.edu:587 does not answer."),
        (
            tls_error("WRONG_VERSION_NUMBER"),
            "The mail server mail.contoso.edu:587 does not speak TLS on this port.",
        ),
        (
            tls_error("NO_SHARED_CIPHER"),
            "The TLS handshake with the mail server mail.contoso.edu:587 failed: no shared cipher",
        ),
    ],
)
def test_an_error_is_described_without_numbers_and_brackets(error: OSError, words: str) -> None:
    fault = fault_of_error(error)
    assert str(sentence(fault.kind, SERVER, fault.words)) == words


def test_a_bad_host_name_is_no_riddle() -> None:
    error = UnicodeError("label empty or too long")
    assert fault_of_error(error).kind is TroubleKind.NAME


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("421 4.7.0 Too many", TroubleKind.THROTTLED),
        ("421", TroubleKind.THROTTLED),
        ("535 5.7.8 no", TroubleKind.LOGIN),
        ("530 5.7.0 Must log in", TroubleKind.LOGIN),
        ("452 4.3.1 full", TroubleKind.REFUSED),
        ("554 go away", TroubleKind.REFUSED),
        ("the server closed the connection", TroubleKind.BROKEN),
        ("4210 things", TroubleKind.BROKEN),
        ("", TroubleKind.BROKEN),
    ],
)
def test_the_code_of_a_reply_decides_the_kind(words: str, kind: TroubleKind) -> None:
    assert fault_of_words(words) == Fault(kind, words)


def test_every_kind_has_a_sentence_and_advice() -> None:
    for kind in TroubleKind:
        assert str(sentence(kind, SERVER)).endswith(".")
        assert str(ADVICE[kind]).endswith((".", "?"))


def test_a_reply_becomes_one_short_line_without_addresses() -> None:
    words = one_line("535 \x1b[31mno\r\nway, <ada@contoso.edu> and " + "x" * 500)
    assert words.startswith("535 [31mno way, <…> and xxx")
    assert len(words) == 160


def test_a_reply_of_megabytes_is_not_searched_for_addresses() -> None:
    """A provider may answer with 256 kB, an IMAP server with 16 MB on a line: hours of work."""
    began_at = time.process_time()
    assert len(one_line("a" * 100_000)) == 160
    assert time.process_time() - began_at < CPU_S_MAX


# --- Health -------------------------------------------------------------------------------------


def fault(words: str) -> Deferred:
    return Deferred(words, Scope.PROVIDER, reached=False)


def test_mails_are_counted_by_outcome() -> None:
    health = MailHealth(SERVER)
    health.note([Sent("250 ok"), Sent("250 ok"), Rejected("550 no")])
    health.note([Deferred("450 later"), Sent("250 ok")])
    assert health.mails == {"sent": 3, "deferred": 1, "rejected": 1, "unknown": 0, "untried": 0}
    assert health.trouble is None


def test_trouble_begins_with_the_first_fault_in_a_row() -> None:
    health, breaker = MailHealth(SERVER), Breaker()
    health.note([Sent("250 ok"), fault(f"{SERVER}: 421 4.3.2 Shutting down")])
    first = health.failed(breaker, NOW, NOW.timestamp(), 10)
    assert first.kind is TroubleKind.THROTTLED
    assert first.words == "421 4.3.2 Shutting down"
    later = datetime.fromtimestamp(NOW.timestamp() + 10, UTC)
    health.note([Deferred("cannot", Scope.PROVIDER, False, Fault(TroubleKind.NAME))])
    second = health.failed(breaker, later, later.timestamp(), 10)
    assert (second.kind, second.since, second.faults) == (TroubleKind.NAME, NOW, 2)
    breaker.worked()
    assert health.worked() == second
    assert health.worked() is None
    assert health.faults == {TroubleKind.THROTTLED: 1, TroubleKind.NAME: 1}


def test_lanes_that_meet_the_same_trouble_at_once_count_it_once() -> None:
    health, breaker = MailHealth(SERVER), Breaker()
    health.note([fault("421 later")])
    troubles = [health.failed(breaker, NOW, NOW.timestamp(), 10) for _lane in range(4)]
    assert len(set(troubles)) == 1
    assert health.faults == {TroubleKind.THROTTLED: 1}
