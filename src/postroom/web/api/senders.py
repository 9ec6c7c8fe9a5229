"""/instances and /senders: what runs, and how many senders each machine may run.

They concern the whole installation, so only an access key that is not limited to some lists may use
them.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter
from pydantic import BaseModel, Field, StrictInt
from starlette.responses import Response

from postroom.actions import change_settings
from postroom.domain.errors import BadInput
from postroom.domain.instance import instance_data
from postroom.domain.scaling import ScalingCause
from postroom.records import instances, setting_changes
from postroom.records.setting_changes import SettingChanges
from postroom.web.api import etags
from postroom.web.api.auth import ApiCaller, Reader, Writer
from postroom.web.api.etags import Representation, expected_version
from postroom.web.api.openapi import ABSENT, Count, IfMatch, RequestBody, documented, example
from postroom.web.api.problems import invalid
from postroom.web.api.route import ApiRoute

router = APIRouter(route_class=ApiRoute, tags=["operation"])
_INSTANCE: dict[str, Any] = {
    "role": "supervisor",
    "host": "mail1",
    "pid": 4711,
    "version": "1.0.0",
    "since": "2026-11-15T09:00:00Z",
    "seen_at": "2026-11-15T09:20:00Z",
    "in_hand": 0,
    "per_second": 0.0,
    "held_back": False,
    "active": False,
    "senders_min": 0,
    "senders_max": 4,
    "changes": [
        {
            "at": "2026-11-15T09:10:00Z",
            "before": 0,
            "after": 4,
            "cause": "length",
            "reason": "32 batches and 0 single emails were waiting.",
        }
    ],
}
_LIMITS = {"min": 0, "max": 4}
SENDERS_MAX = 64  # as the settings allow
Senders = Annotated[StrictInt, Field(ge=0, le=SENDERS_MAX)]


class SenderChange(BaseModel):
    at: datetime
    before: Count
    after: Count
    cause: ScalingCause
    reason: str


class InstanceView(BaseModel):
    model_config = example(_INSTANCE)
    role: str
    host: str
    pid: int
    version: str
    since: datetime
    seen_at: datetime
    in_hand: Count = Field(description="Batches for a sender, requests for the web role.")
    per_second: float = Field(description="Emails for a sender, requests for the web role.")
    held_back: bool = Field(
        description="A sender that is waiting for the mail server, a rate limit or a full disk."
    )
    active: bool = Field(description="Whether this scheduler is the leader.")
    senders_min: Count | None = Field(description="Of a supervisor.")
    senders_max: Count | None = Field(description="Of a supervisor.")
    changes: list[SenderChange] = Field(
        description="Changes in the number of a supervisor's senders, the newest first."
    )


class Instances(BaseModel):
    model_config = example({"items": [_INSTANCE]})
    items: list[InstanceView]


class SenderLimitsView(BaseModel):
    model_config = example(_LIMITS)
    min: Count
    max: Count


class SenderLimitsChange(RequestBody):
    model_config = example({"max": 8})
    min: Senders = ABSENT
    max: Annotated[StrictInt, Field(ge=1, le=SENDERS_MAX)] = ABSENT


@router.get("/instances", **documented(Instances, "All running processes.", headers=""))
async def show_instances(caller: Reader) -> Response:
    """Show which processes run, and why the number of senders changed."""
    caller.check_is_for_every_list()
    found = await instances.running(caller.tables, caller.now)
    content = msgspec.json.encode({"items": [instance_data(each) for each in found]})
    return Response(content, media_type="application/json")


@router.get("/senders", **documented(SenderLimitsView, "The limits."))
async def show_sender_limits(caller: Reader) -> Response:
    """Show the minimum and maximum number of senders on each machine."""
    caller.check_is_for_every_list()
    return etags.respond(await _represent(caller))


@router.patch("/senders", **documented(SenderLimitsView, "The changed limits."))
async def change_sender_limits(
    caller: Writer, call: SenderLimitsChange, if_match: IfMatch = None
) -> Response:
    """Change how many senders each machine may run.

    Omitted members are not changed. Every `postroom serve` follows within seconds.
    """
    caller.check_is_for_every_list()
    given = call.model_dump(exclude_unset=True)
    values = {f"senders_{name}": value for name, value in given.items()}
    settings = caller.context.settings
    try:
        async with expected_version(if_match, lambda: _represent(caller)) as etag:
            written = await change_settings.change(caller.act, settings, values, etag)
    except BadInput as error:
        raise invalid(str(error), "max") from None
    return etags.respond(_data(caller, *written))


async def _represent(caller: ApiCaller) -> Representation:
    return _data(caller, *await setting_changes.read(caller.tables))


def _data(caller: ApiCaller, changes: SettingChanges, etag: str) -> Representation:
    now = change_settings.merged(caller.context.settings, changes)
    return Representation({"min": now.senders_min, "max": now.senders_max}, etag)
