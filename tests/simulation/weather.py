"""The kinds of weather that seeds are run in."""

from __future__ import annotations

from typing import Any

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


def weather_of(seed: int) -> dict[str, Any]:
    """What to hand to a Mailing, with people meddling in all of them."""
    kind = dict(WEATHERS[seed // 2 % len(WEATHERS)])
    faults = Faults(**{name: kind.pop(name) for name in ("crash", "stall", "fail") if name in kind})
    return {"faults": faults, "meddle": True, **kind}
