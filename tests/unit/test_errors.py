"""The family tree at the top of domain/errors.py is the one in the code."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator

import postroom
from postroom.domain import errors
from postroom.storage.port import StorageError


def test_the_docstring_shows_the_whole_tree() -> None:
    for module in pkgutil.walk_packages(postroom.__path__, "postroom."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    lines = [line for line in (errors.__doc__ or "").splitlines() if line.startswith("    ")]
    shown = {line.split()[0]: line.index(line.strip()) // 4 for line in lines}
    assert shown == dict([*family(errors.PostroomError, 1), *family(StorageError, 1)])


def family(error: type[Exception], depth: int) -> Iterator[tuple[str, int]]:
    yield error.__name__, depth
    for child in error.__subclasses__():
        if child.__module__.startswith("postroom."):
            yield from family(child, depth + 1)
