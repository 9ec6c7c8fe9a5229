"""The files of the media library, for everybody who has their address.

    /m/<id>-<width>.jpg    see domain/picture.py

Nothing else of the blob container can be reached: a name that does not look like this is not found
before storage is asked. A file never changes, so mail programs, browsers and proxies keep it.
"""

from __future__ import annotations

import hashlib
from http import HTTPStatus

from fastapi import APIRouter, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from postroom.domain.picture import CONTENT_TYPES, FOLDER, kind_of_file
from postroom.records import media
from postroom.web.context import context_of

router = APIRouter(include_in_schema=False)
HEADERS = {
    "Cache-Control": "public, max-age=31536000, immutable",  # a year
    "Cross-Origin-Resource-Policy": "cross-origin",  # webmail shows it on its own pages
}


@router.api_route(FOLDER + "{name}", methods=["GET", "HEAD"])
async def picture_file(request: Request, name: str) -> Response:
    kind = kind_of_file(name)
    content = await media.load_file(context_of(request).storage.blobs, name) if kind else None
    if kind is None or content is None:
        raise HTTPException(HTTPStatus.NOT_FOUND)
    etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    headers = {**HEADERS, "ETag": etag}
    if _is_known(request.headers.get("if-none-match", ""), etag):
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
    return Response(content, media_type=CONTENT_TYPES[kind], headers=headers)


def _is_known(known: str, etag: str) -> bool:
    """RFC 9110, 13.1.2: a list of etags, compared weakly; or any."""
    tags = [each.strip().removeprefix("W/") for each in known.split(",")]
    return etag in tags or known.strip() == "*"
