"""What every page works with: some of it there is once in each application."""

from __future__ import annotations

from fastapi import FastAPI

from postroom.web.context import one_per_app


class Counter:
    def __init__(self, start: int = 0) -> None:
        self.start = start


def other() -> Counter:
    return Counter(9)


def test_an_application_has_one_of_each_and_shares_none_with_another() -> None:
    app = FastAPI()
    one = one_per_app(app, Counter, 3)
    assert one.start == 3
    assert one_per_app(app, Counter, 4) is one
    assert one_per_app(app, other).start == 9
    assert one_per_app(FastAPI(), Counter, 4).start == 4
