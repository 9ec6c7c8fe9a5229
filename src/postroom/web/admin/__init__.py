"""The admin pages, one module a noun; each route names the role it wants (visitor.py)."""

from __future__ import annotations

from fastapi import APIRouter

from postroom.web.admin import (
    account,
    asking,
    imports,
    keys,
    limits,
    lists,
    messages,
    messages_autosave,
    messages_send,
    messages_watch,
    messages_write,
    outbox,
    overview,
    person,
    sending,
    subscribers,
    test_mails,
    users,
)
from postroom.web.visitor import ADMIN

MODULES = (
    account,
    overview,
    lists,
    subscribers,
    asking,
    person,
    imports,
    messages_write,  # /messages/new before /messages/{ref}
    messages_autosave,
    messages,
    messages_autosave,
    messages_send,
    messages_watch,
    test_mails,
    sending,
    outbox,
    limits,
    keys,
    users,
)
router = APIRouter(include_in_schema=False)
for module in MODULES:
    router.include_router(module.router, prefix=ADMIN)
