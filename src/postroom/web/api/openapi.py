"""What the documentation of the service (OpenAPI) shows: named schemas, examples, refusals."""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

import msgspec
from fastapi import FastAPI

from postroom.web.api.body import BODY_BYTES_MAX, member_of
from postroom.web.api.problems import MEDIA_TYPE

JSON = "application/json"
TEXT: dict[str, Any] = {"type": "string"}
TIME: dict[str, Any] = {"type": "string", "format": "date-time"}
TIME_OR_NONE: dict[str, Any] = {"type": ["string", "null"], "format": "date-time"}
NUMBER: dict[str, Any] = {"type": "integer", "minimum": 0}
TRUTH: dict[str, Any] = {"type": "boolean"}

PROBLEMS = {
    400: "The body is not JSON.",
    401: "No key, or not a valid one.",
    403: "The key is not for this list, or has not the right that is needed.",
    404: "There is no such thing, or not for this key.",
    409: "It cannot be done as things stand; the detail says why.",
    412: "Somebody has changed it since: `current` is how it stands now, ETag its version.",
    413: f"The body is longer than {BODY_BYTES_MAX} bytes (a message: 10 MiB).",
    415: "The body is not application/json.",
    422: "Something sent is wrong, missing or unknown; `field` or `errors` say what.",
    428: "The header If-Match is missing: it says which version is meant.",
    429: "Too many calls; Retry-After says when to call again.",
    503: "Storage does not answer; call again after Retry-After.",
}
ALWAYS = (401, 403, 429, 503)  # what any call may be answered with
WITH_BODY = (400, 413, 415, 422)
GUARDED = (404, 409, 412, 422, 428)  # a call that names the version it means
SCHEMAS: dict[str, Any] = {}


def named(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    """A schema that stands among the components; a reference to it."""
    SCHEMAS[name] = schema
    return {"$ref": f"#/components/schemas/{name}"}


def object_of(properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    """All of them are always there."""
    required = sorted(properties)
    return {"type": "object", "properties": properties, "required": required, **more}


_MISTAKE = object_of({"field": TEXT, "detail": TEXT})
PROBLEM = named(
    "Problem",
    {
        "type": "object",
        "required": ["type", "title", "status", "detail"],
        "properties": {
            **dict.fromkeys(("type", "title", "detail", "field"), TEXT),
            "status": {"type": "integer"},
            "errors": {"type": "array", "items": _MISTAKE},
            "current": {"type": "object", "description": "How it stands now (412)."},
        },
    },
)
ACCEPTED = named("Accepted", object_of({"status": TEXT}))


def page_of(name: str, item: dict[str, Any]) -> dict[str, Any]:
    cursor = {
        "type": ["string", "null"],
        "description": "The cursor of the next page; null at the end. Only it says so: a page may "
        "be short, even empty, and not be the last.",
    }
    return named(name, object_of({"items": {"type": "array", "items": item}, "next": cursor}))


def responses(
    status: int,
    description: str,
    schema: dict[str, Any] | None,
    example: Any = None,
    *,
    refused: tuple[int, ...] = (),
    headers: tuple[str, ...] = (),
) -> dict[int | str, dict[str, Any]]:
    """The answer that was asked for, and every refusal that may come instead."""
    shown: dict[str, Any] = {"description": description}
    if schema is not None:
        shown["content"] = {JSON: {"schema": schema, "example": example}}
    if headers:
        shown["headers"] = {name: HEADERS[name] for name in headers}
    described: dict[int | str, dict[str, Any]] = {status: shown}
    return described | {each: _refusal(each) for each in sorted({*ALWAYS, *refused})}


def _refusal(status: int) -> dict[str, Any]:
    example = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": PROBLEMS[status],
    }
    shown: dict[str, Any] = {
        "description": PROBLEMS[status],
        "content": {MEDIA_TYPE: {"schema": PROBLEM, "example": example}},
    }
    return shown


HEADERS: dict[str, Any] = {
    "ETag": {"description": "The version of it, for If-Match.", "schema": TEXT},
    "Location": {"description": "Where it is.", "schema": TEXT},
    "Link": {"description": "The next page, with rel=next.", "schema": TEXT},
}
IF_MATCH: dict[str, Any] = {
    "name": "If-Match",
    "in": "header",
    "required": False,  # without it the answer is 428, not 400: the call is not malformed
    "description": "The ETag of the version that is meant, or * for whichever there is. Without it "
    "the answer is 428.",
    "schema": {"type": "string"},
    "example": "*",
}
IDEMPOTENCY_KEY: dict[str, Any] = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "Repeating the call with it within 24 hours creates nothing twice and gives the "
    "same answer.",
    "schema": {"type": "string", "pattern": "^[!-~]{1,100}$"},
    "example": "7f3e9c52-signup",
}


def taking(kind: type[msgspec.Struct], example: dict[str, Any]) -> dict[str, Any]:
    """The request body, as its struct says."""
    fields = msgspec.structs.fields(kind)
    schema: dict[str, Any] = {
        "type": "object",
        "additionalProperties": False,
        "properties": {field.encode_name: member_of(field).schema for field in fields},
    }
    required = [field.encode_name for field in fields if field.required]
    if required:
        schema["required"] = required
    described = named(kind.__name__, schema)
    return {"required": True, "content": {JSON: {"schema": described, "example": example}}}


def describe(app: FastAPI) -> None:
    """Add the named schemas to the documentation of the application, and take out what is not so.

    The framework documents its own way to say 422 for whatever has a parameter; ours never does.
    """
    made = app.openapi

    def openapi() -> dict[str, Any]:
        document = made()
        schemas = document.setdefault("components", {}).setdefault("schemas", {})
        schemas.update(SCHEMAS)
        for name in ("HTTPValidationError", "ValidationError"):
            schemas.pop(name, None)
        for operation in _operations(document):
            if JSON in operation["responses"].get("422", {}).get("content", {}):
                del operation["responses"]["422"]
        return document

    app.openapi = openapi  # type: ignore[method-assign]


def _operations(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for methods in document["paths"].values():
        yield from methods.values()
