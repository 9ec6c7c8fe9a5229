"""The files by which Postroom is published, read into plain values."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tree_sitter
import tree_sitter_bicep
import yaml

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
DOCKERFILE = ROOT / "Dockerfile"
COMPOSE = DEPLOY / "compose.yaml"
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
DRAIN_MANIFESTS = sorted((DEPLOY / "kubernetes-drain").glob("*.yaml"))
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
UNIT_SETTINGS = DEPLOY / "systemd" / "postroom.env"
BICEP = sorted((DEPLOY / "azure").glob("*.bicep"))
ROLES_BICEP = DEPLOY / "azure" / "roles.bicep"
SITE_BICEP = DEPLOY / "azure" / "site.bicep"
SCHEMAS = Path(__file__).parent / "schemas"

_SUBSTITUTED = re.compile(r"\$\{(\w+):-([^}]*)\}")


def published() -> list[Path]:
    """Every file of ours that names settings or commands and is not run by another test."""
    texts = [path for path in sorted(DEPLOY.rglob("*")) if path.is_file()]
    return [DOCKERFILE, *texts, ROOT / "docs" / "deploy.md", ROOT / "docs" / "azure.md"]


def schema(name: str) -> Any:
    return json.loads((SCHEMAS / name).read_text(encoding="utf-8"))


# --- Docker -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Instruction:
    word: str
    rest: str

    @property
    def words(self) -> list[str]:
        """Of the exec form, which is JSON; of any other, as a shell splits it."""
        return list(json.loads(self.rest)) if self.rest[0] == "[" else shlex.split(self.rest)


def instructions(path: Path) -> list[Instruction]:
    """Of a Dockerfile, with its continued lines joined and without comments."""
    lines = path.read_text(encoding="utf-8").splitlines()
    text = "\n".join(line for line in lines if not line.lstrip().startswith("#"))
    whole = [line for line in text.replace("\\\n", " ").splitlines() if line.strip()]
    return [Instruction(word, rest.strip()) for word, _, rest in (x.partition(" ") for x in whole)]


def final_stage(path: Path) -> list[Instruction]:
    found = instructions(path)
    start = max(at for at, each in enumerate(found) if each.word == "FROM")
    return found[start:]


def image_environment() -> dict[str, str]:
    pairs = [word for each in final_stage(DOCKERFILE) if each.word == "ENV" for word in each.words]
    return dict(pair.split("=", 1) for pair in pairs)


def compose() -> Any:
    """With every ${NAME:-default} as if NAME were not set."""
    text = COMPOSE.read_text(encoding="utf-8")
    document = yaml.safe_load(text)
    return _defaulted(document)


def _defaulted(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: _defaulted(value) for key, value in node.items()}
    if isinstance(node, list):
        return [_defaulted(value) for value in node]
    return _SUBSTITUTED.sub(r"\2", node) if isinstance(node, str) else node


# --- Kubernetes -------------------------------------------------------------------------------


def objects(kind: str | None = None) -> list[Any]:
    """All objects of the manifests, or those of one kind."""
    found = [
        each
        for path in [*MANIFESTS, *DRAIN_MANIFESTS]
        if path.name != "kustomization.yaml"
        for each in yaml.safe_load_all(path.read_text(encoding="utf-8"))
    ]
    return [each for each in found if kind in (None, each["kind"])]


def named(kind: str, name: str) -> Any:
    (found,) = [each for each in objects(kind) if each["metadata"]["name"] == name]
    return found


# --- systemd ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Directive:
    section: str
    name: str
    value: str


def directives(text: str) -> Iterator[Directive]:
    section = ""
    for line in text.splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif line.strip() and not line.startswith("#"):
            name, _, value = line.partition("=")
            yield Directive(section, name, value)


def unit_environment() -> dict[str, str]:
    """What the units find in their file of settings."""
    lines = UNIT_SETTINGS.read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def values(text: str, name: str) -> list[str]:
    return [each.value for each in directives(text) if each.name == name]


# --- Bicep ------------------------------------------------------------------------------------


def bicep_tree(text: str) -> tree_sitter.Node:
    language = tree_sitter.Language(tree_sitter_bicep.language())
    return tree_sitter.Parser(language).parse(text.encode()).root_node


def nodes(node: tree_sitter.Node) -> Iterator[tree_sitter.Node]:
    """This node and all below it."""
    yield node
    for child in node.children:
        yield from nodes(child)


def words(node: tree_sitter.Node) -> str:
    return (node.text or b"").decode()
