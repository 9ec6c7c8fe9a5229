"""The files of imports on this machine: what was uploaded, and the reports about it."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from postroom.web.context import WebContext


@dataclass(frozen=True)
class ImportFiles:
    folder: Path

    def of(self, id_: str) -> Path:
        """What was uploaded; gone once it is brought in."""
        return self.folder / f"{id_}.csv"

    def report(self, id_: str) -> Path:
        return self.folder / f"{id_}.report"

    def make_folder(self) -> None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def remove(self, id_: str) -> None:
        self.of(id_).unlink(missing_ok=True)
        self.report(id_).unlink(missing_ok=True)

    def ids_before(self, moment: datetime) -> set[str]:
        """Of the imports that have had files here since before then."""
        found: set[str] = set()
        for path in self.folder.iterdir():
            with contextlib.suppress(FileNotFoundError):  # another process tidies up as well
                if path.stat().st_mtime < moment.timestamp():
                    found.add(path.stem)
        return found

    def remove_before(self, before: datetime) -> None:
        """What is older, and also what a process that died was just taking in."""
        for path in self.folder.iterdir():
            with contextlib.suppress(FileNotFoundError):  # another process tidies up as well
                if path.stat().st_mtime < before.timestamp():
                    path.unlink()


def files_of(context: WebContext) -> ImportFiles:
    return ImportFiles(context.data / "imports")
