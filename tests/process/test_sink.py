"""The sink as a process of its own: it says its port, counts, and writes down what it took."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from postroom.domain.outcome import Rejected, Sent
from postroom.transport.smtp.session import open_session
from postroom.transport.smtp.transport import SmtpConfig, SmtpTransport, Tls
from tests.letters import Witness, letters

ROOT = Path(__file__).parents[2]


@pytest.fixture
def port() -> Iterator[int]:
    command = [sys.executable, "-m", "postroom_bench.sink", "--port", "0", "--chunking"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as sink:
        assert sink.stdout is not None
        try:
            yield int(sink.stdout.readline())
        finally:
            sink.terminate()


async def test_another_process_can_ask_the_sink_what_it_took(port: int, tmp_path: Path) -> None:
    config = SmtpConfig("127.0.0.1", port, Tls.NONE)
    transport = SmtpTransport(config)
    mails = letters("a@contoso.edu", "perm-fail@contoso.edu", "b@contoso.edu")
    for _ in range(2):
        outcomes = await transport.lane().send(mails, Witness())
        assert [type(outcome) for outcome in outcomes] == [Sent, Rejected, Sent]
    await transport.close()

    path = tmp_path / "mails.json"
    line, _ = await open_session(config, None)
    assert (await line.command(b"XSTAT\r\n", 5.0)).words == "250 4 2 2"
    assert (await line.command(b"XCOUNT\r\n", 5.0)).words.startswith("250 4 ")
    assert (await line.command(b"XDUMP %b\r\n" % bytes(path), 5.0)).code == 250
    assert (await line.command(b"XRESET\r\n", 5.0)).code == 250
    assert (await line.command(b"XSTAT\r\n", 5.0)).words == "250 0 0 0"
    assert (await line.command(b"XCOUNT\r\n", 5.0)).words == "250 0 0"
    await line.close(5.0)
    taken = [[mail.recipient, mail.message_id] for mail in (mails[0], mails[2])]
    record = json.loads(path.read_text(encoding="utf-8"))
    assert record["mails"] == taken * 2
    assert record["bytes"] == 2 * sum(len(mail.source(eight_bit=True)) for mail in mails[::2])
    assert [count for _, count in record["timeline"]][-1] == 4
    assert record["timeline"] == sorted(record["timeline"])
