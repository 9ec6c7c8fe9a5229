"""One slice over one connection: what to write when, and what each reply means.

There are three forms of the same dialogue, depending on what the server offers:

    BdatExchange        CHUNKING and PIPELINING: whole mails, several unanswered at a time
    DataExchange        PIPELINING: the content of one mail together with the commands of the next
    StepwiseExchange    neither: command by command

The connection calls `begin` once, `replied` for every reply, `caught_up` when it has no more
replies, and `lost` when it broke. Nothing here waits.

When the connection ends, a mail that was handed over and not answered is in doubt, with one
exception: a server that answers 421 is closing the channel (RFC 5321 3.8), so it has not processed
what was pipelined after that command, and those mails are sent again. We write nothing more and
wait for the close. If the server then accepts a content after all, or accepts a mail that it has
refused, it contradicts itself, and that mail is in doubt.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from enum import IntEnum
from time import monotonic
from typing import Protocol

from postroom.domain.outcome import Sent
from postroom.mail.rendition import SplicedMail
from postroom.transport.smtp.config import Timeouts
from postroom.transport.smtp.envelope import Envelope, ServerExtensions, dotted, envelope_for
from postroom.transport.smtp.reply import CLOSING, Stage, outcome_of, words_of
from postroom.transport.smtp.slice import Slice

WRITE_BYTES_MAX = 256 * 1024  # of mails joined in one write; a single mail may be larger

Text = bytes | bytearray

START_INPUT = 354  # RFC 5321: the server waits for the content after DATA
RSET = b"RSET\r\n"
DATA = b"DATA\r\n"


class SmtpLine(Protocol):
    """What an exchange needs from the connection."""

    @property
    def writable(self) -> bool:
        """Whether to write more: the buffer has room, and the server has not closed."""

    def write(self, data: bytes) -> None: ...

    def hang_up(self, words: str) -> None:
        """Close the connection now; `lost` is called before this returns."""

    def expect_close(self, words: str) -> None:
        """The server is about to close; `lost` is called when it has, or after a short wait."""


class Exchange(ABC):
    """The common part of the three forms: choosing mails, settling them, detecting the end."""

    def __init__(
        self, slice_: Slice, offers: ServerExtensions, timeouts: Timeouts, room: int
    ) -> None:
        self._slice = slice_
        self._offers = offers
        self._timeouts = timeouts
        self._room = room  # mails this connection may still carry
        self._line: SmtpLine
        self.taken = 0
        self.done = False
        self.transaction_open = False  # the server may have one open that led to nothing
        self.is_closing = False  # the server has said 421
        self.cut_after: int | None = None  # mails carried when the server answered MAIL with 421
        self.quickest_s: float | None = None  # the fastest of the answers that were timed

    def begin(self, line: SmtpLine) -> None:
        self._line = line
        self._go_on()

    @property
    @abstractmethod
    def patience_s(self) -> float:
        """How long the next reply may take."""

    @abstractmethod
    def replied(self, code: int, text: Text) -> None:
        """Handle one complete reply."""

    def skim(self, buffer: bytearray, start: int, end: int) -> int:
        """Handle complete replies of a known form at once; return where the others begin."""
        return start

    @abstractmethod
    def caught_up(self) -> None:
        """There are no more replies, or the connection accepts data again."""

    def lost(self, words: str) -> None:
        """The connection is lost: settle the mails on it."""
        self.done = True
        if self.is_closing:
            self._put_back(words)
        else:
            self._give_up(words)

    @abstractmethod
    def _go_on(self) -> None:
        """Write what can be written now, or finish."""

    @abstractmethod
    def _give_up(self, words: str) -> None:
        """Mark mails that were handed over as in doubt; send the others again."""

    @abstractmethod
    def _put_back(self, words: str) -> None:
        """After a 421: mails without an answer were not processed."""

    @abstractmethod
    def _carried(self) -> int:
        """How many mails this exchange has finished."""

    def _take(self) -> tuple[int, Envelope] | None:
        """Return the next mail that this server can accept; settle those that it cannot."""
        slice_ = self._slice
        while self.taken < self._room and slice_.has_next:
            index, signed = slice_.take_next()
            envelope = envelope_for(slice_.mails[index], self._offers, signed)
            if isinstance(envelope, Envelope):
                self.taken += 1
                return index, envelope
            slice_.settle(index, envelope)
        return None

    def _answer(self, index: int, code: int, text: Text, stage: Stage) -> None:
        """Settle a mail by the server's reply, unless an earlier reply decided it."""
        if code == CLOSING:
            self._closing(index, text, stage)
        elif self._slice.outcomes[index] is None:
            self._slice.settle(index, outcome_of(code, text, stage))
            self._slice.answered += 1
        elif code < 300:
            self._slice.contradict(index, words_of(text))

    def _closing(self, index: int, text: Text, stage: Stage) -> None:
        """The server closes the channel; at the content, perhaps because of this mail."""
        self.cut_after = self._carried() if stage is Stage.MAIL else None
        if stage is Stage.CONTENT and self._slice.outcomes[index] is None:
            self._slice.settle(index, outcome_of(CLOSING, text, stage))
        self._await_close(text)

    def _await_close(self, text: Text) -> None:
        self.is_closing = True
        self._line.expect_close(words_of(text))

    def _write_all(self, data: Sequence[bytes]) -> None:
        """Write in one piece; a large one by itself: joined, it would be copied for every mail."""
        start = 0
        for at, piece in enumerate(data):
            if len(piece) > WRITE_BYTES_MAX:
                self._line.write(b"".join(data[start:at]))
                self._line.write(piece)
                start = at + 1
        if start < len(data):
            self._line.write(b"".join(data[start:]))

    def _out_of_step(self, text: Text) -> None:
        self._line.hang_up(f"the server answered out of step: {words_of(text)}")


class BdatExchange(Exchange):
    """Whole mails in a row, at most a window of them unanswered (RFC 3030 over RFC 2920).

    Every mail begins with RSET: if a recipient is refused, a server may keep the transaction open,
    and the next mail would be sent with the sender of the one before.
    """

    STAGES = (Stage.MAIL, Stage.MAIL, Stage.RCPT, Stage.CONTENT)  # RSET, MAIL, RCPT, BDAT
    CONTENT = 3

    def __init__(
        self, slice_: Slice, offers: ServerExtensions, timeouts: Timeouts, room: int, window: int
    ) -> None:
        super().__init__(slice_, offers, timeouts, room)
        self._window = window
        self._refill_at = window // 2  # few writes, and the connection stays busy
        self._in_flight: deque[int] = deque()
        self._step = 0  # of the first mail in flight
        self._replies = b""  # to its commands; if all were accepted, they become `_usual`
        self._usual = b""  # the server's usual replies to accepted RSET, MAIL and RCPT
        self._closed_on: int | None = None  # the mail whose command was answered with 421
        self._untaken: list[int] = []  # refused after a 421
        self._timed = (-1, 0.0)  # the mail whose answer is timed, and when it went out

    @property
    def patience_s(self) -> float:
        if self._step == self.CONTENT:
            return self._timeouts.final_s
        return self._timeouts.command_s

    def skim(self, buffer: bytearray, start: int, end: int) -> int:
        # One comparison instead of three replies saves a quarter of the time per mail.
        if self._step or not self._usual or self.is_closing:
            return start
        usual = self._usual
        accepted: dict[int, Sent] = {}
        while self._in_flight and buffer.startswith(usual, start, end):
            content = start + len(usual)
            newline = buffer.find(b"\n", content, end)
            if newline < 0 or not buffer.startswith(b"250 ", content):
                break
            accepted[self._next_answered()] = Sent(words_of(buffer[content:newline]))
            start = newline + 1
        if accepted:
            # In one write of the journal. Killed before it, those mails are in doubt, as they are
            # when we are killed before reading the replies: never more than a window of them.
            self._slice.accept(accepted)
        return start

    def _next_answered(self) -> int:
        """Return the mail whose content was answered; it is no longer in flight."""
        index = self._in_flight.popleft()
        timed, since = self._timed
        if index == timed:
            took_s = monotonic() - since
            self.quickest_s = min(took_s, self.quickest_s or took_s)
            self._timed = (-1, 0.0)
        return index

    def replied(self, code: int, text: Text) -> None:
        step = self._step
        if not self._in_flight or 300 <= code < 400:
            self._out_of_step(text)
            return
        self._step = (step + 1) % len(self.STAGES)
        if self.is_closing:
            self._replied_after_421(step, code, text)
        elif step == self.CONTENT:
            if self._replies.count(b"\n") == self.CONTENT:
                self._usual = self._replies
            self._replies = b""
            self._answer(self._next_answered(), code, text, Stage.CONTENT)
        elif code == 250:
            self._replies += text + b"\n"
        elif code == CLOSING or (code >= 400 and step > 0):  # a refused RSET decides nothing
            self._answer(self._in_flight[0], code, text, self.STAGES[step])

    def _closing(self, index: int, text: Text, stage: Stage) -> None:
        self._closed_on = index if stage is not Stage.CONTENT else None
        super()._closing(index, text, stage)

    def _replied_after_421(self, step: int, code: int, text: Text) -> None:
        """Some servers still answer the commands that they had read before they sent 421."""
        if step == self.CONTENT:
            index = self._in_flight.popleft()
            if code < 300:
                self._slice.doubt(index, f"accepted after a 421: {words_of(text)}")
            else:
                self._untaken.append(index)

    def caught_up(self) -> None:
        if len(self._in_flight) <= self._refill_at:
            self._go_on()

    def _go_on(self) -> None:
        if self.done or self.is_closing or not self._line.writable:
            return
        had = len(self._in_flight)
        block, tail = self._next_block()
        if block:
            if self._timed[0] < 0:
                self._timed = (self._in_flight[had], monotonic())
            mails = self._slice.mails
            handed = itertools.islice(self._in_flight, had, None)
            self._slice.watch.handing_over([mails[index].position for index in handed])
            self._line.write(b"".join(block))
            if tail:
                self._line.write(tail)
        self.done = not self._in_flight

    def _next_block(self) -> tuple[list[bytes], bytes]:
        """Return as many mails as the window and the write limit allow, then a large tail.

        They are noted in flight. Permission is asked for once, because they are handed over
        together.
        """
        block: list[bytes] = []
        if not self._slice.has_next or not self._slice.may_hand_over():
            return block, b""
        in_flight = self._in_flight
        size = 0
        while len(in_flight) < self._window and size < WRITE_BYTES_MAX:
            taken = self._take()
            if taken is None:
                break
            index, envelope = taken
            content = envelope.content
            block += (RSET, envelope.mail, envelope.rcpt, b"BDAT %d LAST\r\n" % content.size)
            block += content.parts
            in_flight.append(index)
            size += content.size
            if tail := content.tail:
                if len(tail) > WRITE_BYTES_MAX:  # joined, it would be copied for every mail
                    return block, tail
                block.append(tail)
        return block, b""

    def _give_up(self, words: str) -> None:
        while self._in_flight:
            self._slice.doubt(self._in_flight.popleft(), words)

    def _put_back(self, words: str) -> None:
        for index in reversed([*self._untaken, *self._in_flight]):
            if index == self._closed_on:
                self._slice.put_back(index, words)
            else:
                self._slice.return_untried(index)
        self._in_flight.clear()

    def _carried(self) -> int:
        return self.taken - len(self._in_flight)


class ReplyDue(IntEnum):
    """Which reply comes next in a dialogue with DATA."""

    RSET = 0
    MAIL = 1
    RCPT = 2
    DATA = 3
    CONTENT = 4
    LONE_DOT = 5


class DataExchange(Exchange):
    """MAIL, RCPT and DATA of a mail are sent with the content of the one before (RFC 2920)."""

    def __init__(
        self, slice_: Slice, offers: ServerExtensions, timeouts: Timeouts, room: int
    ) -> None:
        super().__init__(slice_, offers, timeouts, room)
        self._due: deque[ReplyDue] = deque()
        self._opened: int | None = None  # the mail whose commands were sent, but not its content
        self._envelope = Envelope(b"", b"", SplicedMail.of(b""))  # of the opened mail
        self._handed_over: int | None = None

    @property
    def patience_s(self) -> float:
        match self._due[0] if self._due else None:
            case ReplyDue.CONTENT | ReplyDue.LONE_DOT:
                return self._timeouts.final_s
            case ReplyDue.DATA:
                return self._timeouts.data_s
            case _:
                return self._timeouts.command_s

    def replied(self, code: int, text: Text) -> None:
        if self.is_closing:
            return  # no content was sent
        due = self._due.popleft() if self._due else None
        if due is None or (code < 400 and (code == START_INPUT) != (due is ReplyDue.DATA)):
            self._out_of_step(text)
        elif due is ReplyDue.DATA:
            self._data_answered(code, text)
        elif due is ReplyDue.CONTENT:
            assert self._handed_over is not None
            index, self._handed_over = self._handed_over, None
            self._answer(index, code, text, Stage.CONTENT)
        elif due is ReplyDue.LONE_DOT:
            if code == CLOSING:
                self._await_close(text)
        else:
            self._command_answered(due, code, text)

    def caught_up(self) -> None:
        if not self._due:
            self._go_on()

    def _go_on(self) -> None:
        """Open the next mail, or finish."""
        if self.done or self.is_closing:
            return
        if commands := self._open_next():
            self._line.write(commands)
        self.done = not self._due

    def _open_next(self) -> bytes:
        """Open the next mail and return its commands; empty if there is none."""
        taken = self._take()
        if taken is None:
            return b""
        self._opened, self._envelope = taken
        rset, self.transaction_open = self.transaction_open, False
        return self._opening(rset)

    def _opening(self, rset: bool) -> bytes:
        if rset:
            self._due.append(ReplyDue.RSET)
        self._due += (ReplyDue.MAIL, ReplyDue.RCPT, ReplyDue.DATA)
        commands = self._envelope.mail + self._envelope.rcpt + DATA
        return RSET + commands if rset else commands

    def _sent_along(self) -> bytes:
        """Return what is written after a content, without waiting for its answer."""
        return self._open_next()

    def _command_answered(self, due: ReplyDue, code: int, text: Text) -> None:
        if code == CLOSING or (code >= 400 and due is not ReplyDue.RSET):
            stage = Stage.RCPT if due is ReplyDue.RCPT else Stage.MAIL
            self._answer(self._opened_mail(), code, text, stage)

    def _data_answered(self, code: int, text: Text) -> None:
        if code == CLOSING:
            self._closing(self._opened_mail(), text, Stage.RCPT)
            return
        index, self._opened = self._opened_mail(), None
        if code != START_INPUT:
            self.transaction_open = True
            self._answer(index, code, text, Stage.CONTENT)
            self._go_on()
        elif self._slice.outcomes[index] is not None:
            # End a transaction without a recipient; its content must not be sent (RFC 2920).
            self._due.append(ReplyDue.LONE_DOT)
            self._line.write(b".\r\n" + self._sent_along())
        elif self._slice.may_hand_over():
            tail = self._envelope.content.tail
            content, end = dotted(b"".join(self._envelope.content.parts))
            self._handed_over = index
            self._due.append(ReplyDue.CONTENT)
            data = [content, end, self._sent_along()]
            if tail:  # no line of it begins with a dot, and its end is that of a line
                data[:2] = [content, tail, b".\r\n"]
            self._slice.watch.handing_over((self._slice.mails[index].position,))
            self._write_all(data)
        else:
            # After 354 we can only send content or disconnect: a dot would send an empty mail.
            self._slice.waiting.appendleft(index)
            self._line.hang_up("stopped before the hand-over")

    def _opened_mail(self) -> int:
        assert self._opened is not None
        return self._opened

    def _give_up(self, words: str) -> None:
        if self._handed_over is not None:
            self._slice.doubt(self._handed_over, words)
        self._put_back(words)

    def _put_back(self, words: str) -> None:
        self._due.clear()
        if self._opened is not None:
            self._slice.put_back(self._opened, words)

    def _carried(self) -> int:
        return self.taken - 1


class StepwiseExchange(DataExchange):
    """Command by command, for servers without PIPELINING."""

    def _opening(self, rset: bool) -> bytes:
        self._due.append(ReplyDue.RSET if rset else ReplyDue.MAIL)
        return RSET if rset else self._envelope.mail

    def _sent_along(self) -> bytes:
        return b""

    def _command_answered(self, due: ReplyDue, code: int, text: Text) -> None:
        super()._command_answered(due, code, text)
        if self.done or self.is_closing:
            return
        if self._slice.outcomes[self._opened_mail()] is not None:
            self._opened = None  # refused; caught_up opens the next one
            self.transaction_open = due is ReplyDue.RCPT
            return
        self._due.append(ReplyDue(due + 1))
        commands = {
            ReplyDue.RSET: self._envelope.mail,
            ReplyDue.MAIL: self._envelope.rcpt,
            ReplyDue.RCPT: DATA,
        }
        self._line.write(commands[due])
