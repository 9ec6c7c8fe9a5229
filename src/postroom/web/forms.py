"""Forms: what was typed, what is wrong with it, and what somebody else typed meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from starlette.datastructures import UploadFile
from starlette.requests import Request

from postroom.domain.address import BadAddress
from postroom.domain.errors import BadInput

T = TypeVar("T")
FIELDS_MAX = 100
FIELD_BYTES_MAX = 2 * 1024 * 1024 + 4096  # a body typed into the page
FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")


@dataclass
class Form:
    """A form as it goes back to the page: nothing typed is lost."""

    values: dict[str, str] = field(default_factory=dict)
    mistakes: dict[str, str] = field(default_factory=dict)  # a sentence beside the field
    others: dict[str, str] = field(default_factory=dict)  # what stands there now, by somebody else
    mistake: str = ""  # about the whole

    def value(self, name: str) -> str:
        return self.values.get(name, "")

    def is_ticked(self, name: str) -> bool:
        return bool(self.values.get(name))

    def take(self, name: str, check: Callable[[str], T]) -> T | None:
        """The value as it is stored; None, and a sentence beside the field, if it cannot be."""
        try:
            return check(self.value(name))
        except (BadInput, BadAddress) as error:
            self.mistakes[name] = str(error)
            return None

    @property
    def is_good(self) -> bool:
        return not self.mistakes and not self.others and not self.mistake

    def show_others(self, now_there: Mapping[str, str], etag: str) -> None:
        """Somebody else was faster: their values beside ours; sending again overwrites them."""
        self.others = {
            name: value for name, value in now_there.items() if value != self.value(name)
        }
        self.values["etag"] = etag
        self.mistake = self.mistake or "changed"


async def posted(request: Request) -> Form:
    """Fields of a urlencoded or multipart body; a body that is neither has none."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in FORMS:
        return Form()
    async with request.form(
        max_files=0, max_fields=FIELDS_MAX, max_part_size=FIELD_BYTES_MAX
    ) as form:
        return Form(
            {name: value for name, value in form.items() if not isinstance(value, UploadFile)}
        )
