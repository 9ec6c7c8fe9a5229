"""A role of Postroom whose clock and disk follow a file: `python -m postroom_soak.role sender`.

The program is the real one. Only what the soak has to move is wrapped: the wall clock, which is
shifted, and the commits of the storage, which are slowed down.
"""

from __future__ import annotations

import json
import os
import threading
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from postroom import clock
from postroom.cli.app import main
from postroom.storage.sqlite.writer import GroupWriter

VARIABLE = "SOAK_CONTROL"
READ_EVERY_S = 0.2


class Control:
    """What the file says: how far the clock is off, and how long a commit takes more."""

    clock_off_s = 0.0
    commit_s = 0.0

    @classmethod
    def follow(cls, path: Path) -> None:
        while True:
            try:
                found = json.loads(path.read_text())
                cls.clock_off_s = float(found.get("clock_off_s", 0.0))
                cls.commit_s = float(found.get("commit_s", 0.0))
            except (OSError, ValueError):
                pass  # it is being written
            time.sleep(READ_EVERY_S)


def _follow_control() -> None:
    real_now = clock.WallClock.now
    real_commit = GroupWriter._commit

    def now(self: clock.WallClock) -> datetime:
        return real_now(self) + timedelta(seconds=Control.clock_off_s)

    def commit(self: GroupWriter, group: Any) -> list[object]:
        if Control.commit_s:
            time.sleep(Control.commit_s)
        return real_commit(self, group)

    clock.WallClock.now = now  # type: ignore[method-assign]
    GroupWriter._commit = commit  # type: ignore[method-assign]
    path = Path(os.environ[VARIABLE])
    threading.Thread(target=Control.follow, args=(path,), daemon=True).start()


if __name__ == "__main__":
    _follow_control()
    main()
