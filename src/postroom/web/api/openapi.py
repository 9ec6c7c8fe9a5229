"""Models, headers and refusals shared by all routes of the OpenAPI document."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any, ClassVar, Generic, Literal, TypeVar

from fastapi import FastAPI, Header
from pydantic import BaseModel, ConfigDict, Field

from postroom.web.api.problems import MEDIA_TYPE

BODY_BYTES_MAX = 16 * 1024  # every attribute a subscriber may have, with room to spare
IDEMPOTENCY_KEY_PATTERN = "^[!-~]{1,100}$"
# The default of an optional member; unlike None, it does not appear in the schema.
ABSENT: Any = Field(default_factory=lambda: None)
Count = Annotated[int, Field(ge=0)]
T = TypeVar("T")

PROBLEMS = {
    400: "The body is not JSON.",
    401: "The access key is missing or not valid.",
    403: "The access key is not for this list, or does not have the right that is needed.",
    404: "Not found, or not visible to this access key.",
    409: "Not possible in the current state; `detail` says why.",
    412: "It has changed since. `current` is the current version and ETag its tag.",
    413: f"The body is longer than {BODY_BYTES_MAX} bytes (a message: 10 MiB).",
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
        description="The ETag of the version to change, or * for any. 428 without it.",
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


def add_problem_schema(app: FastAPI) -> None:
    """Register Problem, because FastAPI registers only models of application/json responses."""
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        document = generate()
        schema = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
        document["components"]["schemas"] |= schema.pop("$defs") | {"Problem": schema}
        return document

    app.openapi = openapi  # type: ignore[method-assign]
