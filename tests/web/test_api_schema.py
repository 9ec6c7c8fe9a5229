"""The documentation is true: whatever it allows or forbids is sent, and every answer fits it.

Each call finds a list, two people, one of them suppressed, and two messages, and nothing that an
earlier call left.
POSTROOM_API_EXAMPLES=500 looks longer than the default run, and every time elsewhere.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import schemathesis
from hypothesis import HealthCheck
from schemathesis.checks import not_a_server_error
from schemathesis.config import SchemathesisConfig
from schemathesis.specs.openapi import checks

from postroom.actions import manage_media, manage_suppressions, manage_templates
from postroom.actions.attach_files import attach
from postroom.domain.access_key import Right
from postroom.domain.address import parse_address
from postroom.domain.attachment import NewFile
from postroom.domain.mailing_list import MailingList
from postroom.domain.message_template import TemplateKind
from postroom.domain.suppression import SuppressionScope
from postroom.flow import compose, subscribe
from postroom.flow.compose import Draft
from postroom.flow.render import Site
from postroom.records import keys, lists
from postroom.records.names import STORAGE_NAMES
from postroom.storage.memory import MemoryStorage
from postroom.storage.port import Blobs, Queues, Tables, Troubles
from postroom.wakeup import WakeUps
from postroom.web.app import create_app
from postroom.web.context import WebContext
from postroom.writing.ready_made import ready_made
from tests.acting import acting
from tests.clock import START, MovableClock
from tests.picture_samples import png
from tests.web.program import ADA, BOB

EXAMPLES = int(os.environ.get("POSTROOM_API_EXAMPLES", "8"))  # random ones, an operation
BELLS = Path(tempfile.gettempdir()) / "postroom-no-bells"  # nobody listens
CHECKS = [
    not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
    checks.negative_data_rejection,
]


class Refilled:
    """A storage that is another one for every call, under an application that stays."""

    def __init__(self) -> None:
        self.now = MemoryStorage(MovableClock(), STORAGE_NAMES)

    @property
    def tables(self) -> Tables:
        return self.now.tables

    @property
    def queues(self) -> Queues:
        return self.now.queues

    @property
    def blobs(self) -> Blobs:
        return self.now.blobs

    @property
    def troubles(self) -> Troubles:
        return self.now.troubles

    async def close(self) -> None:
        return


storage = Refilled()
context = WebContext(storage, MovableClock(), WakeUps(BELLS), Site("http://test", "secret"))
app = create_app(context)
# A random body may be refused for its size before anything else is noticed.
REFUSALS = [
    "400",
    "401",
    "403",
    "404",
    "405",
    "406",
    "409",
    "412",
    "413",
    "415",
    "422",
    "428",
    "429",
]
config = SchemathesisConfig.from_dict(
    {"checks": {"negative_data_rejection": {"expected-statuses": REFUSALS}}}
)
schema = schemathesis.openapi.from_asgi("/api/v1/openapi.json", app, config=config)
bounded = hypothesis.settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize="POSTROOM_API_EXAMPLES" not in os.environ,  # the same in every default run
    database=None,
    suppress_health_check=list(HealthCheck),
)

DOT = png(1, 1)


async def refill() -> tuple[str, dict[str, str]]:
    """Forget everything and furnish anew; a key, and the path parameters of what is there."""
    storage.now = MemoryStorage(MovableClock(), STORAGE_NAMES)
    tables = storage.tables
    made = MailingList(name="contoso1", description="", sender="a@contoso.edu", created_at=START)
    await lists.create(tables, made)
    for address in map(parse_address, (ADA, BOB)):
        await subscribe.add(acting(tables, START), made.name, address, {}, verified=True)
    draft = Draft(list_name=made.name, subject="News", text="Hello")
    refs = [(await compose.compose(acting(storage, START), draft)).ref for _ in range(2)]
    await compose.give_time(acting(tables, START), refs[1], START)
    file = NewFile("programme.pdf", b"%PDF")
    attached = await attach(acting(storage, START), refs[0], [file])
    suppressed = parse_address(ADA), SuppressionScope.BULK
    await manage_suppressions.add(acting(storage, START), context.site.secret, *suppressed)
    key, _ = await keys.create(tables, "program", (), START, tuple(Right))
    template = await manage_templates.create(
        acting(storage, START), TemplateKind.TEMPLATE, "Ours", ready_made("letter")
    )
    picture = await manage_media.add(acting(storage, START), DOT, "dot.png")
    return key, {
        "name": made.name,
        "address": ADA,
        "ref": refs[0],
        "attachment": attached.value.attachments[0].id,
        "id": template.id,
        "picture_id": picture.id,
    }


@schema.parametrize()
@bounded
def test_no_call_is_answered_otherwise_than_documented(case: schemathesis.Case[Any]) -> None:
    """As it comes, and once more about something that is there."""
    ask(case, asyncio.run(refill())[0])
    if case.path_parameters:
        key, there = asyncio.run(refill())
        case.path_parameters = {name: there[name] for name in case.path_parameters}
        if "If-Match" in case.headers:
            case.headers["If-Match"] = "*"
        ask(case, key)


def ask(case: schemathesis.Case[Any], key: str) -> None:
    case.call_and_validate(headers={"Authorization": f"Bearer {key}"}, checks=CHECKS)


def test_every_operation_has_examples_of_what_is_sent_and_answered() -> None:
    document: dict[str, Any] = schema.raw_schema
    operations = [
        (f"{method} {path}", operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    assert len(operations) > 20
    for name, operation in operations:
        assert operation["security"] == [{"accessKey": []}], name
        assert operation["summary"], name
        contents = [operation.get("requestBody", {}), *operation["responses"].values()]
        for content in (each for one in contents for each in one.get("content", {}).values()):
            assert "example" in content or examples(content["schema"]), name


def examples(schema_or_ref: dict[str, Any]) -> list[Any]:
    """Those of a model; of a page, those of its items."""
    name = schema_or_ref["$ref"].rpartition("/")[2]
    found: dict[str, Any] = schema.raw_schema["components"]["schemas"][name]
    if "items" in found["properties"]:
        return examples(found["properties"]["items"]["items"])
    return list(found["examples"])


def test_a_version_that_a_call_needs_is_declared_as_it_is_asked_for() -> None:
    """Its absence is 428, not a malformed call: so the header is optional, and 428 documented."""
    for path, methods in schema.raw_schema["paths"].items():
        for method in {"patch", "delete"} & methods.keys():
            [header] = [each for each in methods[method]["parameters"] if each["in"] == "header"]
            assert (header["name"], header["required"]) == ("If-Match", False), path
            assert "428" in methods[method]["responses"], path


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/api/v1/lists"),
        ("POST", "/api/v1/lists/{name}/subscribers"),
        ("POST", "/api/v1/messages"),
        ("POST", "/api/v1/messages/{ref}/schedule"),
        ("POST", "/api/v1/messages/preview"),
        ("POST", "/api/v1/messages/{ref}/preview"),
        ("POST", "/api/v1/messages/import"),
        ("POST", "/api/v1/templates"),
        ("PATCH", "/api/v1/templates/{id}"),
        ("PATCH", "/api/v1/lists/{name}"),
        ("PATCH", "/api/v1/lists/{name}/subscribers/{address}"),
        ("PATCH", "/api/v1/messages/{ref}"),
    ],
)
def test_the_example_of_a_request_is_taken(method: str, path: str) -> None:
    key, there = asyncio.run(refill())
    described = schema.raw_schema["paths"][path][method.lower()]
    [body] = examples(described["requestBody"]["content"]["application/json"]["schema"])
    if path == "/api/v1/lists":
        body = body | {"name": "another"}  # that of the example is there already
    case = schema[path][method].Case(
        path_parameters={name: text for name, text in there.items() if f"{{{name}}}" in path},
        body=body,
        media_type="application/json",
        headers={"If-Match": "*", "Authorization": f"Bearer {key}"},
    )
    assert case.call().status_code in (200, 201)
