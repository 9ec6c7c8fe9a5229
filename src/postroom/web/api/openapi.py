"""Models, headers and refusals shared by all routes of the OpenAPI document."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any, ClassVar, Generic, Literal, TypeVar

import msgspec
from fastapi import FastAPI, Header
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, WithJsonSchema

from postroom.domain.block import BlockDocument
from postroom.domain.errors import BadInput
from postroom.domain.texts import _
from postroom.web.api.problems import MEDIA_TYPE

BODY_BYTES_MAX = 16 * 1024  # every attribute a subscriber may have, with room to spare
IDEMPOTENCY_KEY_PATTERN = "^[!-~]{1,100}$"
# The default of an optional member; unlike None, it does not appear in the schema.
ABSENT: Any = Field(default_factory=lambda: None)
Count = Annotated[int, Field(ge=0)]
T = TypeVar("T")

_refs, BLOCK_SCHEMAS = msgspec.json.schema_components(
    [BlockDocument], ref_template="#/components/schemas/{name}"
)


# Pydantic resolves every $ref itself and does not know these schemas: ours are named otherwise
# until the document is complete.
_LATER_REF = "x-ref"


def _renamed(schema: Any, before: str, after: str) -> Any:
    """The same schema with another name for one keyword."""
    if isinstance(schema, dict):
        return {
            after if name == before else name: _renamed(value, before, after)
            for name, value in schema.items()
        }
    return (
        [_renamed(each, before, after) for each in schema] if isinstance(schema, list) else schema
    )


def _not_null(value: Any) -> Any:
    if value is None:
        raise BadInput(_("It cannot be null. Leave it out instead."))
    return value


Blocks = Annotated[
    Any,
    AfterValidator(_not_null),
    WithJsonSchema(
        _renamed(BLOCK_SCHEMAS["BlockDocument"]["properties"]["blocks"], "$ref", _LATER_REF)
    ),
    Field(description="The blocks of a message, as the schema BlockDocument describes them."),
]
Design = Annotated[
    Any,
    AfterValidator(_not_null),
    WithJsonSchema({_LATER_REF: "#/components/schemas/Theme"}),
    Field(description="Colors, font, logo and footer of blocks; omitted ones keep their values."),
]

PROBLEMS = {
    400: "The body is not JSON.",
    401: "The access key is missing or not valid.",
    403: "The access key is not for this list, or does not have the right that is needed.",
    404: "Not found, or not visible to this access key.",
    409: "Not possible in the current state; `detail` says why.",
    412: "It has changed since. `current` is the current version and ETag its tag.",
    413: f"The body is longer than {BODY_BYTES_MAX} bytes (a message or a template: 10 MiB; an "
    "attachment: 13 MiB; a picture: 26 MiB; an import: 41 MiB).",
    415: "The body is not application/json.",
    422: "A parameter or a member is wrong, missing or unknown; `field` and `errors` say which.",
    428: "The If-Match header is missing.",
    429: "Too many calls; Retry-After says when to try again.",
    503: "Storage is not responding; try again after Retry-After.",
}
HEADERS = {
    "ETag": {"description": "The version, for If-Match.", "schema": {"type": "string"}},
    "Location": {"description": "Where to find it.", "schema": {"type": "string"}},
    "Link": {"description": "The next page (rel=next).", "schema": {"type": "string"}},
}
IfMatch = Annotated[
    str | None,
    Header(
        alias="If-Match",
        description="The ETag of the version to change, or * for any. Required: 428 without it.",
        examples=["*"],
    ),
]
OptionalIfMatch = Annotated[
    str | None,
    Header(alias="If-Match", description="The ETag of the version you mean. Default: any."),
]
IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        description="Repeat the call with the same key within 24 hours: nothing is created twice, "
        "and the answer is the same.",
        examples=["7f3e9c52-signup"],
        json_schema_extra={"pattern": IDEMPOTENCY_KEY_PATTERN},
    ),
]


def example(value: dict[str, Any]) -> ConfigDict:
    """The configuration of a model with an example."""
    return ConfigDict(json_schema_extra={"examples": [value]})


class RequestBody(BaseModel):
    """A body that refuses unknown members."""

    model_config = ConfigDict(extra="forbid")
    bytes_max: ClassVar[int] = BODY_BYTES_MAX
    documents: ClassVar[frozenset[str]] = frozenset()  # members that may be long and nested


class ResultPage(BaseModel, Generic[T]):
    items: list[T]
    next: str | None = Field(
        description="The cursor of the next page; null on the last page. A page may be short, or "
        "even empty, without being the last."
    )


class Accepted(BaseModel):
    model_config = example({"status": "accepted"})
    status: Literal["accepted", "deleting"]


class FieldError(BaseModel):
    field: str
    detail: str


class Problem(BaseModel):
    """RFC 9457."""

    type: str
    title: str
    status: int
    detail: str
    field: str = ABSENT
    errors: list[FieldError] = ABSENT
    current: dict[str, Any] = Field(
        default_factory=dict, description="The current version (412 only)."
    )


def documented(
    model: Any, description: str, *, status: int = 200, headers: str | None = None
) -> dict[str, Any]:
    """The arguments of a route for its success; the route itself knows its refusals."""
    if status == HTTPStatus.CREATED:
        headers = "ETag Location"
    elif status == HTTPStatus.OK and headers is None:
        headers = "Link" if issubclass(model, ResultPage) else "ETag"
    success = {"headers": {name: HEADERS[name] for name in headers.split()}} if headers else {}
    return {
        "status_code": status,
        "response_model": model,
        "response_description": description,
        "responses": {status: success},
    }


def refusal(status: int) -> dict[str, Any]:
    """The response of a route that refuses a call."""
    detail = PROBLEMS[status]
    title = HTTPStatus(status).phrase
    example = {"type": "about:blank", "title": title, "status": status, "detail": detail}
    schema = {"$ref": "#/components/schemas/Problem"}
    return {
        "description": detail,
        "content": {MEDIA_TYPE: {"schema": schema, "example": example}},
    }


def add_schemas(app: FastAPI) -> None:
    """Register Problem and the blocks, because FastAPI knows only the models of its routes."""
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        document = _renamed(generate(), _LATER_REF, "$ref")
        schema = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
        document["components"]["schemas"] |= schema.pop("$defs") | {"Problem": schema}
        document["components"]["schemas"] |= BLOCK_SCHEMAS
        return dict(document)

    app.openapi = openapi  # type: ignore[method-assign]
