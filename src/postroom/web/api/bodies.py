"""The members of a call that contain the body of a message, and how they become its HTML."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field, StrictBool

from postroom.actions.write_body import FORMATS, BodyInput, write_again, write_body
from postroom.domain.block import BadBlock
from postroom.domain.errors import BadInput
from postroom.domain.message import check_body, check_language
from postroom.mail.preview_text import check_preview_text
from postroom.records.bodies import MessageBodies
from postroom.web.api.auth import ApiCaller
from postroom.web.api.openapi import ABSENT, Blocks, Design, RequestBody
from postroom.web.api.problems import DETAIL_CHARS_MAX, invalid
from postroom.writing.sources import BodySource

BYTES_MAX = 10 * 1024 * 1024  # two bodies, every character escaped
DOCUMENTS = frozenset(("blocks", "design"))
_MEMBERS = frozenset((*FORMATS, "design", "template", "inline_styles"))

Body = Annotated[
    str | None,
    AfterValidator(lambda text: None if text is None else check_body(text)),
    Field(description="May contain merge fields such as {{ name }}."),
]
Markdown = Annotated[Body, Field(description="Instead of `html`, which is made from it.")]
Template = Annotated[
    str,
    Field(
        description="The id or the title of a template. Alone, the message is a copy of it; with "
        "`blocks`, these fill the places of its layout that have the same names.",
        min_length=1,
        max_length=200,
    ),
]
PreviewText = Annotated[
    str,
    AfterValidator(check_preview_text),
    Field(description="The text shown beside the subject in an inbox."),
]
Language = Annotated[
    str,
    AfterValidator(check_language),
    Field(description="A tag such as de or pt-BR; empty for the language of the list."),
]


class BodyMembers(RequestBody):
    """The body as HTML, Markdown, MJML or blocks: one of them, or a template alone."""

    bytes_max: ClassVar[int] = BYTES_MAX
    documents: ClassVar[frozenset[str]] = DOCUMENTS
    html: Body = ABSENT
    markdown: Markdown = ABSENT
    mjml: Markdown = ABSENT
    blocks: Blocks = ABSENT
    design: Design = ABSENT
    template: Template = ABSENT
    inline_styles: Annotated[
        StrictBool, Field(description="Copy the style sheets of `html` into its tags.")
    ] = ABSENT
    text: Body = ABSENT
    preview_text: PreviewText = ABSENT
    language: Language = ABSENT

    @property
    def has_body(self) -> bool:
        """Whether anything but the text part is sent."""
        return bool(_MEMBERS & self.model_fields_set)

    async def written(
        self, caller: ApiCaller, language: str, before: BodySource | None = None
    ) -> MessageBodies:
        """The HTML and its source; refused with the path to the member that is wrong."""
        sent = {name: getattr(self, name) for name in _MEMBERS & self.model_fields_set}
        body = BodyInput(**sent)
        with field_named(body):
            return await write_body(caller.context.storage, body, language, before)


async def written_again(source: BodySource, language: str) -> MessageBodies:
    with field_named(BodyInput()):
        return await write_again(source, language)


@contextlib.contextmanager
def field_named(body: BodyInput) -> Iterator[None]:
    """Refuse a body that cannot be used, with the path to the mistake: “blocks[2].href: …”."""
    try:
        yield
    except BadBlock as error:
        sentence = str(error)
        is_named = not error.path or sentence.startswith(error.path)
        detail = sentence if is_named else f"{error.path}: {sentence}"
        raise invalid(detail[:DETAIL_CHARS_MAX], error.path or "blocks") from None
    except BadInput as error:
        raise invalid(str(error)[:DETAIL_CHARS_MAX], body.format) from None
