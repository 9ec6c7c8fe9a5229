"""Queues of the storage explorer: the next items with their age; put, move, delete.

An item is found by its id among the next 32, which is what every engine can show; see
records/queue_items.py for what deleting one means for those before it.
"""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from postroom.actions import edit_storage
from postroom.domain.dead_letter import names_of
from postroom.domain.errors import BadInput, NotFound
from postroom.domain.texts import _
from postroom.records.names import QUEUE_TEXTS, QUEUES
from postroom.storage.port import CLAIM_ITEMS_MAX, Item
from postroom.web.admin.admin_request import AdminRequest, Owner
from postroom.web.forms import Form
from postroom.web.pages import go
from postroom.web.submit_once import Submission, SubmitResult

router = APIRouter(prefix="/storage/queues")
PATH = "/admin/storage/queues"


@router.get("/{queue}")
async def index(request: Owner, queue: str) -> Response:
    return await _index(request, queue, Form())


@router.post("/{queue}/put")
async def put(request: Owner, queue: str) -> Response:
    _check_queue(queue)
    form = await request.form()

    async def store(_submission: Submission) -> SubmitResult:
        await edit_storage.put_item(request.act(), queue, form.value("body"))
        return SubmitResult(f"{PATH}/{queue}")

    try:
        await request.act_once(form, store)
    except BadInput as error:
        form.mistakes["body"] = str(error)
        return await _index(request, queue, form, 422)
    return go(f"{PATH}/{queue}", "item-put")


@router.get("/{queue}/items/{id_}")
async def item_page(request: Owner, queue: str, id_: str) -> Response:
    return await _show_item(request, queue, id_, Form())


@router.post("/{queue}/items/{id_}/move")
async def move(request: Owner, queue: str, id_: str) -> Response:
    _check_queue(queue)
    form = await request.form()
    to = form.value("to")
    if to not in QUEUES or to == queue:
        form.mistakes["to"] = _("Choose another queue.")
        return await _show_item(request, queue, id_, form, 422)
    try:
        await edit_storage.move_item(request.act(), queue, id_, to)
    except NotFound as error:
        return await _index(request, queue, Form(mistake=str(error)), 409)
    return go(f"{PATH}/{queue}", "item-moved")


@router.post("/{queue}/items/{id_}/delete")
async def delete(request: Owner, queue: str, id_: str) -> Response:
    _check_queue(queue)
    try:
        await edit_storage.delete_item(request.act(), queue, id_)
    except NotFound as error:
        return await _index(request, queue, Form(mistake=str(error)), 409)
    return go(f"{PATH}/{queue}", "item-deleted")


async def _index(request: AdminRequest, queue: str, form: Form, status: int = 200) -> Response:
    _check_queue(queue)
    queues = request.storage.queues
    return request.show(
        "storage/queue.html",
        status,
        queue=queue,
        purpose=QUEUE_TEXTS[queue],
        form=form,
        length=await queues.length(queue),
        items=await queues.peek(queue, limit=CLAIM_ITEMS_MAX),
    )


async def _show_item(
    request: AdminRequest, queue: str, id_: str, form: Form, status: int = 200
) -> Response:
    item = await _find(request, queue, id_)
    if item is None:
        gone = _("This item is no longer waiting: it was processed, or is being processed.")
        return await _index(request, queue, Form(mistake=gone), 404)
    return request.show(
        "storage/item.html",
        status,
        queue=queue,
        item=item,
        ref=names_of(item.body).get("ref", ""),
        form=form,
        queues=[(name, name) for name in QUEUES if name != queue],
    )


async def _find(request: AdminRequest, queue: str, id_: str) -> Item | None:
    _check_queue(queue)
    items = await request.storage.queues.peek(queue, limit=CLAIM_ITEMS_MAX)
    return next((item for item in items if item.id == id_), None)


def _check_queue(queue: str) -> None:
    if queue not in QUEUES:
        raise NotFound(_("There is no such queue."))
