"""Uploaded files as downloads.

A download is never shown as a page of ours: it is an attachment, in a sandbox, and browsers must
not guess another type.
"""

from __future__ import annotations

from starlette.responses import Response

from postroom.mail.attachments import file_name_parameters


def as_download(name: str, media_type: str, content: bytes) -> Response:
    """A file that a browser saves and never shows."""
    # In HTTP a file name is not continued in several parameters (RFC 6266, RFC 5987).
    encoded = "".join(part.partition("=")[2] for part in file_name_parameters(name))
    parameter = f"filename={encoded}" if name.isascii() else f"filename*={encoded}"
    headers = {
        "Content-Disposition": f"attachment; {parameter}",
        "X-Content-Type-Options": "nosniff",
        "Content-Security-Policy": "sandbox; default-src 'none'",
        "Content-Type": media_type,  # without the charset that the framework would add
    }
    return Response(content, headers=headers)
