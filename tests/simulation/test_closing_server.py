"""A server that says 421 whenever it likes: nobody is lost, twice or in doubt for it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from postroom.domain.message import OnDoubt
from postroom.transport.smtp.exchange import BdatExchange
from postroom.transport.smtp.slice import Slice
from tests.simulation.mailing import Mailing
from tests.simulation.post import Journal
from tests.simulation.weather import CLOSING_SERVER, assert_caught, of_kind, run_each

RUNS = 200
SEEDS_MAX = 200


def run(seed: int) -> Mailing:
    on_doubt = OnDoubt.HOLD if seed % 2 else OnDoubt.RESEND
    mailing = Mailing(seed, on_doubt=on_doubt, **of_kind(CLOSING_SERVER))
    mailing.run()
    return mailing


def test_a_421_leaves_nobody_in_doubt() -> None:
    """A Mailing fails if there are more doubts than mails on the wire of senders that died."""
    run_each(range(RUNS), run)


def doubt_what_is_behind_a_421(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BdatExchange, "_put_back", BdatExchange._give_up)


def lose_what_is_behind_a_421(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Slice, "return_untried", lambda self, index: self.watch.returned(()))


def no_journal_of_hand_overs(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Journal, "handing_over", lambda self, positions: None)


MUTANTS = (
    doubt_what_is_behind_a_421,
    lose_what_is_behind_a_421,
    no_journal_of_hand_overs,
)


@pytest.mark.parametrize("mutate", MUTANTS, ids=lambda mutate: mutate.__name__)
def test_a_wrong_reading_of_421_is_caught(
    mutate: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutate(monkeypatch)
    assert_caught(range(SEEDS_MAX), run)
