"""Imports point one way: the layout of the design as data, and every module held against it.

An import counts wherever it stands: at the top, inside a function, under TYPE_CHECKING, or as
`import_module("…")`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import syntax

SOURCE = Path(__file__).parents[1] / "src"
US = "postroom"

# From the top down. A module may import what stands further down, never what stands beside it
# or above.
LAYERS: list[set[str]] = [
    {"__main__"},
    {"cli"},
    {"supervisor"},
    {"wiring", "scaling"},
    {"logs"},
    {"web", "scheduler", "sender", "worker", "metrics", "tracing"},
    {"bounce_mailbox"},  # a worker of the scheduler: mails that come back become events
    {"backup"},  # everything into one file, and back
    {"importing"},  # a use case beside the path, which asks people to confirm as the action does
    {"actions", "migration"},  # use cases beside the path
    {"flow"},
    {"act"},  # what a use case works with
    {"sending"},  # the parts of a sender that a stage works with
    {"pacing"},
    {"records"},
    {"transport"},  # the outbox keeps its mails in storage
    {"storage"},
    {"clock", "settings", "wakeup", "parsing", "process_locks", "heartbeat", "intervals", "spans"},
    {"task_pool", "nursery"},
    {"feedback", "deliverability"},  # what servers report; what receivers find in DNS
    {"writing"},  # what people write, as the HTML of an email
    {"mail"},
    {"domain"},
]

# Packages that show the rest of the house only their port; who may go behind it.
PORTS = {"storage": "port", "transport": "port", "bounce_mailbox": "port"}
BEHIND_THE_PORTS = {"wiring"}

# Stages meet in storage alone; the second of each pair is a step of the first.
STAGE_MAY_USE = {("send", "render")}

# Inside web: the application, then pages and API side by side, then the parts that they share.
WEB_ENTRANCES = {"admin": "admin", "api": "api", "public": "public", "public_form": "public"}

# Time, chance and the outside world are handed in, so that the same code runs in the simulation.
HANDED_IN = {"random", "signal", "socket", "subprocess", "threading", "time"}
RUNS_IN_THE_SIMULATION = {"actions", "flow", "importing", "sending", "pacing", "records"}

RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}


def broken_arrows(source: Path) -> list[str]:
    """One sentence for every import under `source` that the layout does not allow."""
    return [
        f"{module}: {complaint}"
        for path in sorted((source / US).rglob("*.py"))
        for module in [module_name(path, source)]
        for complaint in complaints(module, syntax.parse(path.read_text(encoding="utf-8")))
    ]


def module_name(path: Path, source: Path) -> str:
    return ".".join(path.relative_to(source).with_suffix("").parts).removesuffix(".__init__")


def complaints(module: str, tree: ast.Module) -> Iterator[str]:
    if layer(module) not in RANK and module != US:
        yield f"has no place in LAYERS; give {layer(module)} one"
        return
    for target in imported(tree):
        complaint = complaint_about(module, target)
        if complaint:
            yield complaint


def imported(tree: ast.Module) -> Iterator[str]:
    """Full names of all that is imported; a relative import begins with a dot."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                yield from (f"{'.' * level}{module or ''}.{alias.name}" for alias in names)
            case ast.Call(
                func=ast.Name(id="import_module" | "__import__")
                | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                yield name


def complaint_about(module: str, target: str) -> str | None:
    """What is wrong with this arrow, or nothing."""
    here, there = layer(module), layer(target)
    if target.startswith("."):
        return f"imports {target} by a relative name"
    if package(target) != US:
        handed_in = here in RUNS_IN_THE_SIMULATION and package(target) in HANDED_IN
        return f"imports {target}, which must be handed in" if handed_in else None
    if there not in RANK:
        return None  # a name of postroom/__init__.py itself, such as __version__
    if module == US:
        return f"imports {target}, but the map uses nothing"
    if here == there:
        return complaint_inside(here, part(module), part(target))
    if RANK[here] >= RANK[there]:
        return f"imports {target}, against the arrows"
    if there in PORTS and part(target) != PORTS[there] and here not in BEHIND_THE_PORTS:
        return f"imports {target}; it may know only the port of {there}"
    return None


def complaint_inside(layer_name: str, here: str, there: str) -> str | None:
    """Within a package every import is allowed, except for stages, ports and the order of web."""
    if layer_name == "web" and here != "app":
        if there == "app":
            return "imports web.app, but the application is on top"
        entrance = WEB_ENTRANCES.get(there)
        if entrance and entrance != WEB_ENTRANCES.get(here):
            return f"imports web.{there}, but only the application may, and what is inside it"
    if layer_name == "flow" and here != there and (here, there) not in STAGE_MAY_USE:
        return f"imports flow.{there}, but stages meet in storage alone"
    if here == PORTS.get(layer_name) != there:
        return f"imports {layer_name}.{there}, but a port knows nobody behind it"
    return None


def package(name: str) -> str:
    return name.split(".")[0]


def layer(name: str) -> str:
    return f"{name}.".split(".")[1]


def part(name: str) -> str:
    return f"{name}..".split(".")[2]


def test_arrows_point_one_way() -> None:
    found = broken_arrows(SOURCE)
    assert not found, "\n".join(found)


BAD = [
    ("domain/message.py", "from postroom.flow import send", "against the arrows"),
    ("domain/message.py", "import postroom.mail.mime", "against the arrows"),
    ("domain/message.py", "from postroom import clock", "against the arrows"),
    ("mail/mime.py", "from postroom.settings import Settings", "against the arrows"),
    ("records/lists.py", "import postroom.flow.send as s", "against the arrows"),
    ("records/lists.py", "from postroom.storage.sqlite.storage import Sqlite", "only the port"),
    ("records/lists.py", "from postroom import storage", "only the port"),
    ("records/lists.py", "from postroom.storage import memory", "only the port"),
    ("records/lists.py", "def f() -> None:\n    import random", "handed in"),
    ("flow/send.py", "import postroom.transport.smtp.transport", "only the port"),
    ("flow/send.py", "from postroom.flow import archive", "stages meet in storage"),
    ("flow/send.py", "from postroom.flow.archive import archive", "stages meet in storage"),
    ("flow/render.py", "from postroom.flow.send import send", "stages meet in storage"),
    ("flow/__init__.py", "from postroom.flow.send import send", "stages meet in storage"),
    ("flow/send.py", "from .render import render", "relative"),
    ("flow/send.py", "from . import render", "relative"),
    ("flow/send.py", "from time import monotonic", "handed in"),
    ("flow/send.py", "def f() -> None:\n    from postroom import worker", "against the arrows"),
    ("flow/send.py", "from postroom.actions import sign_in", "against the arrows"),
    ("web/app.py", "import postroom.worker", "against the arrows"),
    ("web/forms.py", "from postroom.web.admin import lists", "only the application"),
    ("web/forms.py", "from postroom.web import public", "only the application"),
    ("web/admin/lists.py", "from postroom.web.api import lists", "only the application"),
    ("web/admin/lists.py", "from postroom.web.app import create_app", "on top"),
    ("web/app.py", "import importlib\nimportlib.import_module('postroom.cli')", "against"),
    ("worker.py", "if False:\n    from postroom.wiring import wire", "against the arrows"),
    ("cli.py", "from postroom.transport import outbox", "only the port"),
    ("storage/port.py", "from postroom.storage import sqlite", "a port knows nobody"),
    ("storage/sqlite/storage.py", "from postroom.transport import port", "against the arrows"),
    (
        "transport/port.py",
        "from postroom.transport.smtp.transport import Smtp",
        "a port knows nobody",
    ),
    ("transport/outbox.py", "from postroom.storage import sqlite", "only the port"),
    ("clock.py", "from postroom.wakeup import Bell", "against the arrows"),
    ("__init__.py", "from postroom.domain import message", "the map uses nothing"),
    ("odds_and_ends.py", "import os", "no place in LAYERS"),
]


@pytest.mark.parametrize(("path", "text", "complaint"), BAD)
def test_the_check_finds_a_bad_arrow(tmp_path: Path, path: str, text: str, complaint: str) -> None:
    write_module(tmp_path, path, text)
    (found,) = broken_arrows(tmp_path)
    assert complaint in found


GOOD = [
    ("domain/message.py", "import datetime\nfrom postroom.domain import address"),
    ("mail/mime.py", "from postroom.domain.address import Address"),
    ("records/lists.py", "from postroom.storage.port import Row\nfrom postroom import clock"),
    ("flow/send.py", "from postroom.flow.render import render\nfrom postroom.flow import render"),
    ("flow/send.py", "from postroom.storage import port\nimport postroom.transport.port"),
    ("transport/outbox.py", "from postroom.storage.port import Storage"),
    ("storage/sqlite/storage.py", "import time\nfrom postroom.storage import port, memory"),
    (
        "wiring/engines.py",
        "from postroom.storage.sqlite.storage import Sqlite\nfrom postroom.transport import smtp",
    ),
    ("cli.py", "from postroom import __version__, wiring\nfrom postroom.flow import report"),
    ("settings.py", "from postroom.domain.message import OnDoubt"),
    ("web/app.py", "from postroom.web import admin, api, forms, public"),
    ("web/public/sign_up_form.py", "from postroom.web import forms, public"),
    ("web/admin/lists.py", "from postroom.web import forms\nfrom postroom.web.admin import keys"),
]


@pytest.mark.parametrize(("path", "text"), GOOD)
def test_the_check_lets_a_good_arrow_pass(tmp_path: Path, path: str, text: str) -> None:
    write_module(tmp_path, path, text)
    assert broken_arrows(tmp_path) == []


def write_module(source: Path, path: str, text: str) -> None:
    module = source / US / path
    module.parent.mkdir(parents=True, exist_ok=True)
    module.write_text(text + "\n", encoding="utf-8")
