"""The processes below another one, by name."""

from __future__ import annotations

from pathlib import Path


def descendants_named(pid: int, name: str) -> list[int]:
    """The process ids of all descendants with this name, such as `pr:sender`."""
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, path.read_text().split()):
            try:
                is_named = Path(f"/proc/{child}/comm").read_text().strip() == name
                found += [child] * is_named + descendants_named(child, name)
            except OSError:  # it has just ended
                continue
    return found
