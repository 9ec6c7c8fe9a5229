"""Messages in blocks, Markdown and MJML, their sources and previews; templates and snippets."""

from __future__ import annotations

from typing import Any

import pytest

from postroom.domain.block import BLOCKS_MAX
from tests.web.program import ADA, Program, problem

BLOCKS: list[dict[str, Any]] = [
    {"kind": "heading", "text": "Hello {{ name }}"},
    {"kind": "columns", "columns": [[{"kind": "text", "text": "*one*"}], [{"kind": "space"}]]},
    {"kind": "button", "text": "Go", "href": "https://contoso.edu/"},
]
MESSAGE: dict[str, Any] = {"list": "contoso1", "subject": "News"}


async def made(program: Program, **members: Any) -> str:
    return str((await program.make("/messages", MESSAGE | members))["ref"])


@pytest.mark.parametrize(
    ("members", "rendered"),
    [
        ({"blocks": BLOCKS}, "<em>one</em>"),
        ({"markdown": "Hello *one*"}, "<em>one</em>"),
        ({"mjml": "<mjml><mj-body><mj-text>one</mj-text></mj-body></mjml>"}, "one"),
        ({"html": "<style>p{color:red}</style><p>one</p>", "inline_styles": True}, "color: red"),
        ({"html": "<style>p{color:red}</style><p>one</p>"}, "p{color:red}"),
    ],
)
async def test_a_message_is_written_in_any_format_and_read_again(
    program: Program, members: dict[str, Any], rendered: str
) -> None:
    ref = await made(program, **members, preview_text="Look", language="de", text="own")
    shown = await program.get(f"/messages/{ref}")
    body = next(iter(members))
    assert (shown["format"], shown["preview_text"], shown["language"]) == (body, "Look", "de")
    assert rendered in shown["html"]
    assert shown["text"] == "own"
    source = await program.get(f"/messages/{ref}/source")
    if body != "blocks":
        assert source[body] == members[body]
        return
    assert [each["kind"] for each in source["blocks"]] == ["heading", "columns", "button"]
    again = await made(program, blocks=source["blocks"], design=source["design"])
    assert await program.get(f"/messages/{again}/source") == source | {"text": None}
    assert '<html lang="de"' in shown["html"]


@pytest.mark.parametrize(
    ("members", "field"),
    [
        ({"blocks": [*BLOCKS, {"kind": "button", "href": "javascript:x"}]}, "blocks[3].href"),
        ({"blocks": [{"kind": "button", "url": "x"}]}, "blocks[0]"),
        ({"blocks": [{"kind": "picture", "width": "wide"}]}, "blocks[0].width"),
        ({"blocks": [{"kind": "nothing"}]}, "blocks[0].kind"),
        (
            {"blocks": [{"kind": "columns", "columns": [[], [{"kind": "space", "height": 1}]]}]},
            "blocks[0].columns[1][0].height",
        ),
        (
            {"blocks": [{"kind": "articles", "articles": [{}, {"src": "ftp://x"}]}]},
            "blocks[0].articles[1].src",
        ),
        ({"blocks": [{"kind": "social", "links": [{"name": "a"}]}]}, "blocks[0].links[0]"),
        ({"blocks": [{"kind": "columns", "columns": [[]]}]}, "blocks[0].columns"),
        ({"blocks": [{"kind": "space", "id": "A"}]}, "blocks[0].id"),
        ({"blocks": [{"kind": "space"}] * (BLOCKS_MAX + 1)}, f"blocks[{BLOCKS_MAX}]"),
        ({"blocks": []}, "blocks"),
        ({"blocks": None}, "blocks"),
        ({"blocks": "text"}, "blocks"),
        ({"blocks": BLOCKS, "design": {"link": "red"}}, "design.link"),
        ({"blocks": BLOCKS, "design": {"logo": {"width": 1}}}, "design.logo.width"),
        ({"blocks": BLOCKS, "design": {"colour": "#ffffff"}}, "design"),
        ({"blocks": BLOCKS, "html": "<p>x</p>"}, "blocks"),
        ({"template": "announcement", "html": "<p>x</p>"}, "blocks"),
        ({"template": "no such one"}, "template"),
        ({"mjml": "<mjml><mj-body>"}, "mjml"),
        ({"markdown": "a\0b"}, "markdown"),
        ({"html": "<p>x</p>", "language": "?"}, "language"),
        ({"html": "<p>x</p>", "preview_text": "x" * 2000}, "preview_text"),
    ],
)
async def test_what_is_wrong_with_a_document_is_named_with_the_path_to_it(
    program: Program, members: dict[str, Any], field: str
) -> None:
    told = problem(await program.call("POST", "/messages", MESSAGE | members), 422)
    assert told["field"] == field
    if "[" in field:
        assert told["detail"].startswith(f"{field}: ")
    assert await program.pages("/messages") == []


async def test_a_document_longer_than_other_bodies_is_read_in_one_piece(program: Program) -> None:
    texts = [{"kind": "text", "text": "word " * 3000} for _ in range(12)]
    ref = await made(program, blocks=texts)
    assert len((await program.get(f"/messages/{ref}/source"))["blocks"]) == 12
    many = [{"kind": "text", "text": "x" * 20_000} for _ in range(20)]
    told = problem(await program.call("POST", "/messages", MESSAGE | {"blocks": many}), 422)
    assert "256 KiB" in told["detail"]
    huge = ["x" * 1000] * 2000
    told = problem(await program.call("POST", "/messages", MESSAGE | {"blocks": huge}), 422)
    assert "members are strings" in told["detail"]


async def test_a_template_alone_is_copied_and_its_places_are_filled(program: Program) -> None:
    alone = await program.get(f"/messages/{await made(program, template='Event')}/source")
    template = await program.get("/templates/event")
    assert (alone["blocks"], alone["design"]) == (template["blocks"], template["design"])
    place = next(each["place"] for each in template["blocks"] if each.get("place"))
    content = [{"kind": "heading", "place": place, "text": "Ours"}, {"kind": "space"}]
    ref = await made(program, template="event", blocks=content, design={"corner": 0})
    filled = await program.get(f"/messages/{ref}/source")
    assert filled["design"] == template["design"] | {"corner": 0}
    assert [each.get("place", "") for each in filled["blocks"] if each.get("place")] == [place]
    assert "Ours" in (await program.get(f"/messages/{ref}"))["html"]
    assert filled["blocks"][-1]["kind"] == "space"


async def test_one_member_is_changed_and_the_others_stay(program: Program) -> None:
    ref = await made(program, blocks=BLOCKS)
    path = f"/messages/{ref}"
    etag = await program.etag(f"{path}/source")
    changed = await program.call("PATCH", path, {"design": {"link": "#000001"}}, if_match=etag)
    assert changed.status_code == 200, changed.text
    source = await program.get(f"{path}/source")
    assert (source["design"]["link"], len(source["blocks"])) == ("#000001", 3)
    stale = problem(await program.call("PATCH", path, {"markdown": "x"}, if_match=etag), 412)
    assert stale["current"]["format"] == "blocks"
    german = await program.call("PATCH", path, {"language": "de"}, if_match="*")
    assert '<html lang="de"' in german.json()["html"]
    markdown = await program.call("PATCH", path, {"markdown": "Hello *you*"}, if_match="*")
    assert "<em>you</em>" in markdown.json()["html"]
    assert (await program.get(f"{path}/source"))["markdown"] == "Hello *you*"
    told = problem(await program.call("PATCH", path, {"design": {}}, if_match="*"), 422)
    assert told["field"] == "design"
    plain = await program.call("PATCH", path, {"html": None, "text": "only"}, if_match="*")
    assert (plain.json()["html"], plain.json()["text"]) == (None, "only")


async def test_a_preview_shows_the_email_and_what_to_look_at(program: Program) -> None:
    person = {"address": ADA, "verified": True, "attributes": {"name": "Ada"}}
    await program.make("/lists/contoso1/subscribers", person)
    sent = MESSAGE | {"blocks": [*BLOCKS, {"kind": "button", "text": "x"}], "as": ADA}
    response = await program.call("POST", "/messages/preview", sent)
    assert response.status_code == 200, response.text
    seen = response.json()
    assert "Hello Ada" in seen["html"]
    assert "Hello Ada" in seen["text"]
    assert {"field": "blocks[3]", "detail": "This button has no link. Enter one."} in seen["checks"]
    assert await program.pages("/messages") == []
    ref = await made(program, markdown="Hello {{ name }}")
    stored = (await program.call("POST", f"/messages/{ref}/preview", {"as": ADA})).json()
    assert "Hello Ada" in stored["text"]
    sample = (await program.call("POST", f"/messages/{ref}/preview", {})).json()
    assert "Hello [name]" in sample["text"]
    wrong = await program.call("POST", "/messages/preview", MESSAGE | {"html": "{{ name"})
    assert problem(wrong, 422)["field"] == "html"
    assert problem(await program.call("POST", "/messages/preview", MESSAGE), 422)


async def test_templates_are_created_changed_and_deleted(program: Program) -> None:
    new = {"title": "Ours", "blocks": BLOCKS}
    first = await program.call("POST", "/templates", new, idempotency_key="one")
    again = await program.call("POST", "/templates", new, idempotency_key="one")
    assert first.json() == again.json()
    path = first.headers["location"]
    snippet = await program.make("/templates", {"title": "Sign", "kind": "snippet"})
    found = await program.pages("/templates?limit=3")
    assert [each["title"] for each in found][:3] == ["Ours", "Sign", "Announcement"]
    assert len(found) == 8
    assert await program.pages("/templates?kind=snippet") == [
        {name: value for name, value in snippet.items() if name not in ("blocks", "design")}
    ]
    etag = await program.etag(path)
    changed = await program.call("PATCH", path, {"design": {"corner": 0}}, if_match=etag)
    assert (changed.json()["design"]["corner"], len(changed.json()["blocks"])) == (0, 3)
    problem(await program.call("PATCH", path, {"title": "Late"}, if_match=etag), 412)
    ref = await made(program, template="ours")
    kept = await program.make("/templates", {"title": "Kept", "message": ref})
    assert len(kept["blocks"]) == 3
    assert (await program.call("DELETE", path, if_match="*")).status_code == 204
    problem(await program.call("GET", path), 404)
    assert len((await program.get(f"/messages/{ref}/source"))["blocks"]) == 3


@pytest.mark.parametrize(
    ("members", "field"),
    [
        ({"title": " "}, "title"),
        ({"title": "x", "blocks": [{"kind": "space", "height": 0}]}, "blocks[0].height"),
        ({"title": "x", "message": "1"}, "message"),
        ({"title": "x", "message": "1", "blocks": []}, "message"),
        ({"title": "x", "template": "nothing"}, "template"),
    ],
)
async def test_what_is_wrong_with_a_template_is_named(
    program: Program, members: dict[str, Any], field: str
) -> None:
    assert problem(await program.call("POST", "/templates", members), 422)["field"] == field


async def test_ready_made_templates_stay_and_limited_keys_change_none(program: Program) -> None:
    problem(await program.call("DELETE", "/templates/event", if_match="*"), 409)
    problem(await program.call("PATCH", "/templates/event", {"title": "x"}, if_match="*"), 409)
    limited = await program.new_key("contoso1")
    assert (await program.call("GET", "/templates", key=limited)).status_code == 200
    problem(await program.call("POST", "/templates", {"title": "x"}, key=limited), 403)


async def test_the_schema_of_a_document_is_published(program: Program) -> None:
    schemas = (await program.get("/openapi.json"))["components"]["schemas"]
    blocks = schemas["BlockDocument"]["properties"]["blocks"]["items"]["anyOf"]
    assert {"$ref": "#/components/schemas/ButtonBlock"} in blocks
    assert schemas["NewMessage"]["properties"]["design"]["$ref"] == "#/components/schemas/Theme"
    assert schemas["ButtonBlock"]["additionalProperties"] is False
