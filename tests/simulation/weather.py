"""The kinds of weather that seeds are run in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import Any

from tests.simulation.mailing import small_sizes
from tests.simulation.world import Faults

WEATHERS: tuple[dict[str, Any], ...] = (
    {"crash": 0.02},
    {"crash": 0.02, "stall": 0.02, "machines_burn": 0.5, "schedulers": 2},
    {"crash": 0.015, "fail": 0.03, "trouble": 0.2},
    {
        "crash": 0.015,
        "fail": 0.02,
        "stall": 0.02,
        "trouble": 0.2,
        "machines_burn": 0.5,
        "schedulers": 2,
        "people": 7,
    },
)


# A service far away may throttle, answer late, do it and lose the answer, send empty pages.
FAR_AWAY: dict[str, Any] = {
    "crash": 0.01,
    "fail": 0.02,
    "late": 0.03,
    "throttle": 0.004,
    "empty_pages": True,
    "machines_burn": 0.5,
    "schedulers": 2,
    "people": 7,
}
# A server that closes connections with 421 whenever it likes. Nothing of that is a doubt.
CLOSING_SERVER: dict[str, Any] = {"crash": 0.02, "closing": 0.25, "people": 7}
# Every machine's clock is set back and forward, each by itself.
WRONG_CLOCKS: dict[str, Any] = {
    "crash": 0.01,
    "step": 0.04,
    "machines_burn": 0.3,
    "schedulers": 2,
    "people": 7,
}
_FAULTS = ("crash", "stall", "fail", "late", "throttle", "empty_pages", "step")


def weather_of(seed: int) -> dict[str, Any]:
    """What to hand to a Mailing, with people meddling in all of them."""
    return of_kind(WEATHERS[seed // 2 % len(WEATHERS)])


def run_each(seeds: Iterable[int], run: Callable[[int], object]) -> None:
    """One run a seed; a failure says which."""
    with small_sizes():
        for seed in seeds:
            try:
                run(seed)
            except AssertionError as error:
                raise AssertionError(f"seed {seed}: {error}") from error


def assert_caught(
    seeds: Iterable[int], run: Callable[[int], object], *, known: int | None = None
) -> None:
    """A mutant is in place: some seed must find it. The one known to is tried first."""
    with small_sizes():
        for seed in chain([] if known is None else [known], seeds):
            if is_caught(seed, run):
                return
    raise AssertionError("no seed has found the mutant")


def is_caught(seed: int, run: Callable[[int], object]) -> bool:
    """Whether this run breaks a promise, or stumbles over rows that must be there."""
    try:
        run(seed)
    except (AssertionError, KeyError):
        return True
    return False


def of_kind(weather: Mapping[str, Any]) -> dict[str, Any]:
    kind = dict(weather)
    faults = Faults(**{name: kind.pop(name) for name in _FAULTS if name in kind})
    return {"faults": faults, "meddle": True, **kind}
