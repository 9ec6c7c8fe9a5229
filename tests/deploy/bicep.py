"""A type checker for our Bicep templates, because the compiler is in no package index.

It evaluates what it can without an account, takes the rest as "some string", "some number" and so
on, and compares every resource, module and property access with Azure's published types
(schemas/azure-types.json). It is stricter than the compiler in one point: where Azure accepts any
string beside some known ones, a literal has to be one of the known ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tree_sitter

from tests.deploy.reading import bicep_tree, words

Types = Mapping[str, Any]
Value = Any

# What the functions that we use return.
FUNCTIONS = {
    "concat": "array",
    "empty": "bool",
    "environment": "any",
    "guid": "string",
    "json": "any",
    "listKeys": "any",
    "replace": "string",
    "resourceGroup": "any",
    "subscription": "any",
    "subscriptionResourceId": "string",
    "take": "string",
    "toLower": "string",
    "union": "object",
    "uniqueString": "string",
}
OF_EVERY_RESOURCE = ("id", "name", "type", "apiVersion")
BESIDE_THE_BODY = {"parent", "scope", "dependsOn"}
PRIMITIVE = {"string", "int", "bool", "any"}
REQUIRED, READ_ONLY = "!", "-"  # how the types file marks them, after the type
ANY_KEY = "*"


@dataclass(frozen=True)
class Unknown:
    """A value that is known only to Azure, or only when it is deployed."""

    kind: str


@dataclass(frozen=True)
class Either:
    """Depends on a condition."""

    values: tuple[Value, ...]


@dataclass(frozen=True)
class Part:
    """A resource, or an object in one, as `storage.properties` names it."""

    resource: str
    type: str  # "" is the resource itself


@dataclass(frozen=True)
class ModuleOutputs:
    outputs: Mapping[str, str]


@dataclass
class Template:
    """One file, and what is wrong with it."""

    path: Path
    types: Types
    text: str = ""
    mistakes: list[str] = field(default_factory=list)
    visited: set[tuple[str, str]] = field(default_factory=set)  # what of the types was needed

    def __post_init__(self) -> None:
        self.tree = bicep_tree(self.text or self.path.read_text(encoding="utf-8"))
        self.parameters: dict[str, str] = {}
        self.needed: set[str] = set()
        self.outputs: dict[str, str] = {}
        self._names: dict[str, Callable[[], Value]] = {}
        self._resources: list[tuple[str, tree_sitter.Node]] = []
        self._modules: list[tuple[Template, tree_sitter.Node]] = []
        for node in self.tree.named_children:
            self._declare(node)

    def _declare(self, node: tree_sitter.Node) -> None:
        if not node.type.endswith("_declaration"):
            return
        name = words(node.named_children[0])
        last = node.named_children[-1]
        match node.type:
            case "parameter_declaration":
                kind = words(node.named_children[1])
                self.parameters[name] = kind
                self._names[name] = lambda: Unknown(kind)
                if len(node.named_children) == 2:
                    self.needed.add(name)
            case "variable_declaration":
                self._names[name] = lambda: self.value(last)
            case "resource_declaration":
                self._declare_resource(node, "")
            case "module_declaration":
                self._declare_module(name, node)
            case "output_declaration":
                self.outputs[name] = words(node.named_children[1])

    def _declare_resource(self, node: tree_sitter.Node, parent: str) -> None:
        name, type_ = words(node.named_children[0]), words(node.named_children[1]).strip("'")
        if parent:
            kind, _, version = parent.partition("@")
            type_ = f"{kind}/{type_}@{version}"
        self._names[name] = lambda: Part(type_, "")
        self._resources.append((type_, node))
        for each in properties(body_of(node)):
            if each.type == "resource_declaration":
                self._declare_resource(each, type_)

    def _declare_module(self, name: str, node: tree_sitter.Node) -> None:
        inner = Template(self.path.parent / words(node.named_children[1]).strip("'"), self.types)
        self._names[name] = lambda: ModuleOutputs(inner.outputs)
        self._modules.append((inner, node))

    # --- Checking -----------------------------------------------------------------------------

    def check(self) -> list[str]:
        for type_, node in self._resources:
            self._check_resource(type_, node)
        for inner, node in self._modules:
            self._check_module(inner, node)
        for node in self.tree.named_children:
            if node.type == "output_declaration":
                kind, value = words(node.named_children[1]), self.value(node.named_children[2])
                self._compare(value, kind, "", f"output {words(node.named_children[0])}")
            if node.type == "parameter_declaration" and len(node.named_children) == 3:
                kind, value = words(node.named_children[1]), self.value(node.named_children[2])
                self._compare(value, kind, "", f"parameter {words(node.named_children[0])}")
        return self.mistakes

    def _check_resource(self, type_: str, node: tree_sitter.Node) -> None:
        where = words(node.named_children[0])
        is_existing = any(child.type == "existing" for child in node.children)
        body = self._body(node.named_children[-1])
        if is_existing:
            if "name" not in body:
                self._complain(where, "has no name")
        elif type_ not in self.types:
            self._complain(where, f"has an unknown type {type_}")
        else:
            own = {key: value for key, value in body.items() if key not in BESIDE_THE_BODY}
            self._compare(own, "", type_, where)

    def _check_module(self, inner: Template, node: tree_sitter.Node) -> None:
        where = words(node.named_children[0])
        given = self._body(node.named_children[-1]).get("params", {})
        for name in inner.needed - set(given):
            self._complain(where, f"is not given {name}")
        for name, value in given.items():
            if name not in inner.parameters:
                self._complain(where, f"has no parameter {name}")
            else:
                self._compare(value, inner.parameters[name], "", f"{where}.{name}")

    def _compare(self, value: Value, type_: str, resource: str, where: str) -> None:
        """Whether the value is of this type; an object type is one of the resource's types."""
        match value:
            case Either():
                for each in value.values:
                    self._compare(each, type_, resource, where)
            case None:
                pass
            case dict() if type_ in ("any", "object"):
                pass
            case dict():
                self._compare_object(value, type_, resource, where)
            case list():
                self._compare_list(value, type_, resource, where)
            case _:
                if not fits(value, type_, self._object_types(resource)):
                    self._complain(where, f"is {described(value)}, not {type_ or 'an object'}")

    def _compare_list(self, value: list[Value], type_: str, resource: str, where: str) -> None:
        if type_ in ("any", "array"):
            return
        if not type_.endswith("[]"):
            self._complain(where, f"is a list, not {type_}")
            return
        for at, each in enumerate(value):
            self._compare(each, type_.removesuffix("[]"), resource, f"{where}[{at}]")

    def _compare_object(
        self, value: dict[str, Value], type_: str, resource: str, where: str
    ) -> None:
        known = self._properties(resource, type_)
        if known is None:
            self._complain(where, f"is an object, not {type_}")
            return
        for name, declared in known.items():
            if declared.endswith(REQUIRED) and name not in value:
                self._complain(where, f"lacks {name}")
        for name, each in value.items():
            declared = known.get(name, known.get(ANY_KEY, ""))
            if not declared:
                self._complain(where, f"has no {name}")
            elif declared.endswith(READ_ONLY):
                self._complain(where, f"cannot be given {name}")
            else:
                self._compare(each, declared.removesuffix(REQUIRED), resource, f"{where}.{name}")

    def _object_types(self, resource: str) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.types.get(resource, {})
        return found

    def _properties(self, resource: str, type_: str) -> Mapping[str, str] | None:
        self.visited.add((resource, type_))
        found: Mapping[str, str] | None = self._object_types(resource).get(type_)
        return found

    def _complain(self, where: str, what: str) -> None:
        self.mistakes.append(f"{self.path.name}: {where} {what}")

    def _body(self, node: tree_sitter.Node) -> dict[str, Value]:
        """What is declared, whatever its condition, and of a loop any one."""
        if node.type == "if_statement":
            self.value(node.named_children[0])
            node = node.named_children[-1]
        value = self.value(node)
        found: dict[str, Value] = value[0] if isinstance(value, list) else value
        return found

    # --- Evaluating ---------------------------------------------------------------------------

    def value(self, node: tree_sitter.Node, local: Mapping[str, Value] | None = None) -> Value:
        local = local or {}
        inner = [each for each in node.named_children if each.type != "comment"]
        match node.type:
            case "string":
                return self._text(node, local)
            case "number":
                return int(words(node))
            case "boolean":
                return words(node) == "true"
            case "null":
                return None
            case "array":
                return [self.value(each, local) for each in inner]
            case "object":
                return self._object(inner, local)
            case "identifier":
                return self._named(words(node), local)
            case "member_expression":
                return self._members(node, local)
            case "subscript_expression":
                return element(self.value(inner[0], local))
            case "resource_expression":
                return self._named(words(inner[1]), {})
            case "call_expression":
                return self._call(inner, local)
            case "ternary_expression":
                self.value(inner[0], local)
                return Either((self.value(inner[1], local), self.value(inner[2], local)))
            case "for_statement":
                return self._loop(inner, local)
            case "parenthesized_expression":
                return self.value(inner[0], local)
            case "binary_expression" | "unary_expression":
                for each in inner:
                    self.value(each, local)
                return Unknown("bool")
        self._complain(words(node), f"is a {node.type}, which this checker does not know")
        return Unknown("any")

    def _members(self, node: tree_sitter.Node, local: Mapping[str, Value]) -> Value:
        names: list[str] = []
        while node.type == "member_expression":
            names.insert(0, words(node.named_children[1]))
            node = node.named_children[0]
        value, before = self.value(node, local), None
        if is_choice := node.type == "ternary_expression":
            before, value = value.values  # the parser takes `a ? b : c.d` for `(a ? b : c).d`
        for name in names:
            value = self._member(value, name)
        return Either((before, value)) if is_choice else value

    def _text(self, node: tree_sitter.Node, local: Mapping[str, Value]) -> Value:
        parts: list[Value] = []
        for each in node.named_children:
            is_literal = each.type == "string_content"
            parts.append(words(each) if is_literal else self.value(each.named_children[0], local))
        if any(isinstance(part, dict | list) for part in parts):
            self._complain(words(node), "puts an object into a text")
        return "".join(parts) if all(isinstance(x, str) for x in parts) else Unknown("string")

    def _object(
        self, inner: list[tree_sitter.Node], local: Mapping[str, Value]
    ) -> dict[str, Value]:
        found: dict[str, Value] = {}
        for each in inner:
            if each.named_children[0].type == "resource_declaration":
                continue
            key = each.named_children[0]
            name = words(key) if key.type == "identifier" else self.value(key, local)
            found[name if isinstance(name, str) else ANY_KEY] = self.value(
                each.named_children[1], local
            )
        return found

    def _named(self, name: str, local: Mapping[str, Value]) -> Value:
        if name in local:
            return local[name]
        if name in self._names:
            return self._names[name]()
        self._complain(name, "is not declared")
        return Unknown("any")

    def _member(self, value: Value, name: str) -> Value:
        match value:
            case Either():
                return Either(tuple(self._member(each, name) for each in value.values))
            case dict() if name in value:
                return value[name]
            case Unknown(kind="any" | "object"):
                return Unknown("any")
            case ModuleOutputs():
                return self._output(value, name)
            case Part():
                return self._property(value, name)
        self._complain(name, f"is asked of {described(value)}")
        return Unknown("any")

    def _output(self, module: ModuleOutputs, name: str) -> Value:
        if name == "outputs":
            return module
        if name not in module.outputs:
            self._complain(name, "is not an output of the module")
        return Unknown(module.outputs.get(name, "any"))

    def _property(self, part: Part, name: str) -> Value:
        if not part.type and name in OF_EVERY_RESOURCE:
            return Unknown("string")
        known = self._properties(part.resource, part.type) or {}
        declared = known.get(name, "").rstrip(REQUIRED + READ_ONLY)
        if not declared:
            self._complain(f"{part.resource} {part.type}".strip(), f"has no {name}")
            return Unknown("any")
        if declared in self._object_types(part.resource):
            return Part(part.resource, declared)
        return Unknown(declared if declared in PRIMITIVE else "string")

    def _call(self, inner: list[tree_sitter.Node], local: Mapping[str, Value]) -> Value:
        function = words(inner[0].named_children[-1] if inner[0].named_children else inner[0])
        given = [self.value(each, local) for each in inner[1].named_children]
        if function not in FUNCTIONS:
            self._complain(function, "is a function that this checker does not know")
        if function == "concat":
            return [each for value in given for each in elements(value)]
        if function == "union" and all(isinstance(value, dict) for value in given):
            return {key: value for each in given for key, value in each.items()}
        return Unknown(FUNCTIONS.get(function, "any"))

    def _loop(self, inner: list[tree_sitter.Node], local: Mapping[str, Value]) -> list[Value]:
        variables, over, body = inner[0], self.value(inner[1], local), inner[-1]
        names = [words(each) for each in variables.named_children] or [words(variables)]
        known = {names[0]: element(over)} | dict.fromkeys(names[1:], Unknown("int"))
        return [self.value(body, {**local, **known})]


def properties(body: tree_sitter.Node) -> Iterator[tree_sitter.Node]:
    """The nodes in an object, resources nested in it among them."""
    for each in body.named_children:
        if each.type == "object_property":
            yield each.named_children[0]


def body_of(node: tree_sitter.Node) -> tree_sitter.Node:
    """The object of a declaration, under its condition or its loop."""
    last = node.named_children[-1]
    while last.type in ("if_statement", "for_statement"):
        last = last.named_children[-1]
    return last


def elements(value: Value) -> list[Value]:
    if isinstance(value, Either):
        return [each for one in value.values for each in elements(one)]
    return value if isinstance(value, list) else [Unknown("any")]


def element(value: Value) -> Value:
    """Any one of them. Of resources in a loop, each is like the others."""
    if isinstance(value, Part):
        return value
    found = elements(value)
    return Either(tuple(found)) if found else Unknown("any")


def fits(value: Value, type_: str, objects: Mapping[str, Any]) -> bool:
    choices = [each.strip() for each in type_.split(" | ")]
    literals = [each for each in choices if each not in PRIMITIVE and each not in objects]
    match value:
        case Unknown(kind="any"):
            return True
        case Unknown(kind="array"):
            return type_.endswith("[]") or type_ in ("any", "array")
        case Unknown(kind="object"):
            return type_ in objects or type_ in ("any", "object")
        case Unknown():
            return value.kind in choices or "any" in choices or bool(literals)
        case bool():
            return "bool" in choices or "any" in choices
        case int():
            return "int" in choices or "any" in choices
        case str():
            return value in literals if literals else ("string" in choices or "any" in choices)
        case _:  # a whole resource, or a module
            return False


def described(value: Value) -> str:
    return f"some {value.kind}" if isinstance(value, Unknown) else repr(value)
