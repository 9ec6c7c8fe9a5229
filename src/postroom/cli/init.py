"""`postroom init`: an empty storage, created on purpose."""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroom.cli.output import AsJson, show
from postroom.cli.session import load_settings, work

if TYPE_CHECKING:
    from postroom.wiring import Parts


def init(as_json: AsJson = False) -> None:
    """Create an empty storage, unless there is one. “postroom serve” does it by itself."""
    from postroom.wiring.engines import engine_of

    engine = engine_of(load_settings())
    is_new = not engine.may_exist()
    where = engine.description

    async def job(parts: Parts) -> None:
        """Opening it is enough."""

    work(job, create=True)
    told = f"Created a new storage at {where}." if is_new else f"The storage at {where} is ready."
    show({"storage": where, "created": is_new}, as_json, told)
