"""What every page and every call of the web service works with."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import Request

from postroom.bell import Bells
from postroom.clock import Clock
from postroom.flow.render import Site
from postroom.storage.port import Storage

SENDER_BELL = "sender"


@dataclass(frozen=True)
class Desk:
    storage: Storage
    clock: Clock
    bells: Bells
    site: Site

    def wake_senders(self) -> None:
        self.bells.ring(SENDER_BELL)


def desk_of(request: Request) -> Desk:
    desk: Desk = request.app.state.desk
    return desk
