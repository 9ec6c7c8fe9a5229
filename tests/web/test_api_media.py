"""/media: pictures that programs add, find and delete."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from tests.picture_samples import SCRIPT, png, svg
from tests.web.program import Program, problem


async def add(program: Program, content: bytes, **more: str) -> Any:
    body = {"content": base64.b64encode(content).decode(), **more}
    answer = await program.call("POST", "/media", body)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_a_picture_is_added_found_and_deleted(program: Program) -> None:
    made = await add(program, png(), name="a/b/square.png", alt="A square")
    assert (made["name"], made["alt"], made["width"]) == ("square.png", "A square", 80)
    assert made["url"].endswith(made["path"])
    assert await add(program, png(), name="again.png") == made
    program.clock.move(1)
    other = await add(program, png(30), name="other.png")
    assert await program.pages("/media?limit=1") == [other, made]
    assert await program.pages("/media?words=SQUARE") == [made]
    assert await program.get(f"/media/{made['id']}") == made
    assert (await program.client.get(made["path"])).headers["content-type"] == "image/png"
    path = f"/media/{made['id']}"
    problem(await program.call("DELETE", path), 428)
    draft = {
        "list": "contoso1",
        "subject": "x",
        "html": f"<img src='{{{{ site_url }}}}{made['path']}'>",
        "at": "2127-01-01T09:00Z",
    }
    await program.make("/messages", draft)
    refused = problem(await program.call("DELETE", path, if_match="*"), 409)
    assert "scheduled or have been sent" in refused["detail"]
    gone = await program.call("DELETE", f"{path}?force=true", if_match="*")
    assert gone.status_code == 204
    problem(await program.call("GET", path), 404)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("no base64!", "base64"),
        ("", "empty"),
        (base64.b64encode(svg()).decode(), "SVG"),
        (base64.b64encode(SCRIPT).decode(), "This picture cannot be read"),
    ],
)
async def test_a_bad_picture_is_refused(program: Program, content: str, words: str) -> None:
    refused = problem(await program.call("POST", "/media", {"content": content}), 422)
    assert words in refused["detail"]
    assert await program.pages("/media") == []


@pytest.mark.parametrize("content", ["QQ==QQ==", "Q" * (256 * 1024 - 2) + "==QQQQ", "QQQ"])
async def test_base64_in_several_pieces_is_as_strict(program: Program, content: str) -> None:
    refused = problem(await program.call("POST", "/media", {"content": content}), 422)
    assert "base64" in refused["detail"]


async def test_a_message_cannot_name_pictures_without_end(program: Program) -> None:
    html = "".join(f"/m/{n:015}{n:024x}-600.jpg\n" for n in range(501))
    draft = {"list": "contoso1", "subject": "x", "html": f"<p>{html}</p>"}
    refused = problem(await program.call("POST", "/messages", draft), 422)
    assert "500 pictures" in refused["detail"]
    previewed = await program.call("POST", "/messages/preview", draft)
    assert previewed.status_code == 200
