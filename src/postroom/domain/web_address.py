"""Web addresses: the base of our links, the address we listen on, and the origin of a page."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from postroom.domain.texts import Text, _

THIS_MACHINE = ("127.0.0.1", "localhost", "::1")
EVERYWHERE = ("", "0.0.0.0", "::")
# Its host is part of the List-Id of every email.
_BASE_URL = re.compile(r"https?://([\w-]+\.)*[\w-]+(:\d{1,5})?/?", re.ASCII)
# An origin, as browsers send it, that is safe to show: a host name or IP address, and a port.
_ORIGIN = re.compile(r"https?://([a-z0-9.-]{1,253}|\[[0-9a-f:.]{2,45}\])(:\d{1,5})?")


def host_and_port(bind: str) -> tuple[str, int]:
    """Split an address to listen on, without the brackets of IPv6."""
    host, _, port = bind.rpartition(":")
    return host.strip("[]"), int(port)


def url_of(bind: str) -> str:
    """The web address at which this machine reaches a bound address."""
    host, port = host_and_port(bind)
    if host in ("", "0.0.0.0"):
        host = "127.0.0.1"
    elif ":" in host:
        host = "localhost"  # an IPv6 address cannot be part of a List-Id
    return f"http://{host}:{port}"


def base_url(text: str) -> str:
    """Normalize it to the form of the Origin header; ValueError if links cannot begin with it."""
    if not _BASE_URL.fullmatch(text):
        raise ValueError(
            "must be a web address with an ASCII host and no path, such as https://post.contoso.edu"
        )
    url = text.rstrip("/").lower()
    return url.removesuffix(":443" if url.startswith("https:") else ":80")


def own_origin(origin: str, host: str) -> str:
    """The origin of a page if the Host header shows that the page is ours; otherwise empty.

    It is safe to show: only a host name or IP address, and a port.
    """
    origin = origin.lower()
    is_ours = _ORIGIN.fullmatch(origin) and origin.partition("://")[2] == host.lower()
    return origin if is_ours else ""


def mismatch(url: str, bind: str, *, is_given: bool) -> Text | None:
    """Why links may not work; None if the base URL and the bound address fit together.

    There may be a proxy in front of the service, so any other host and port may be right.
    """
    host, port = host_and_port(bind)
    named = urlsplit(url)
    is_local = named.hostname in THIS_MACHINE
    if not is_given:
        if host in THIS_MACHINE or not is_local:
            return None
        return _(
            "Links begin with {url}, which works only on this machine. Set POSTROOM_URL to the "
            "address people use.",
            url=url,
        )
    if named.scheme != "http":
        return None
    if is_local and (named.port != port or host not in THIS_MACHINE + EVERYWHERE):
        return _(
            "POSTROOM_URL is {url}, but Postroom listens on {bind}: links will not work. Remove "
            "POSTROOM_URL, or set it to the address people use.",
            url=url,
            bind=bind,
        )
    if not is_local and host in THIS_MACHINE and named.port == port:
        return _(
            "POSTROOM_URL is {url}, but Postroom listens on {bind}, which only this machine can "
            "reach. Set POSTROOM_BIND to 0.0.0.0:{port}.",
            url=url,
            bind=bind,
            port=port,
        )
    return None
