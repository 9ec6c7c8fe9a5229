"""The admin pages, one module per noun; each route names the role it needs."""

from __future__ import annotations

from fastapi import APIRouter

from postroom.web.admin import (
    account,
    asking,
    audit,
    dead_letters,
    imports,
    instances,
    keys,
    limits,
    lists,
    media,
    outbox,
    overview,
    rich_text,
    sending,
    settings,
    subscriber,
    subscribers,
    suppression,
    templates,
    traces,
    users,
    webhooks,
)
from postroom.web.admin.messages import (
    attachments,
    autosave,
    control,
    feedback,
    imported_pages,
    pages,
    progress,
    story,
    writing,
)
from postroom.web.admin.storage import blobs, queues, tables
from postroom.web.signed_in import ADMIN

MODULES = (
    account,
    overview,
    lists,
    subscribers,
    asking,
    subscriber,
    imports,
    suppression,
    imported_pages,  # /messages/import and /messages/new before /messages/{ref}
    writing,
    autosave,
    attachments,
    pages,
    control,
    progress,
    feedback,
    story,
    templates,
    media,
    rich_text,
    outbox,
    sending,
    limits,
    instances,
    settings,
    webhooks,
    traces,
    keys,
    users,
    dead_letters,
    tables,
    queues,
    blobs,
    audit,
)
router = APIRouter(include_in_schema=False)
for module in MODULES:
    router.include_router(module.router, prefix=ADMIN)
