"""The files of the pages: read once, sent with an entity tag and a strict policy. They say nothing of the cluster."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from importlib import resources
from typing import NamedTuple

from aiohttp import web
from aiohttp.typedefs import Handler

_TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
#: Nothing from elsewhere, nothing inline, in nobody's frame.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
#: Headers of every answer below /ui.
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}
#: The page; the others are what it loads.
INDEX = "index.html"


class File(NamedTuple):
    body: bytes
    content_type: str
    tag: str


def files() -> dict[str, File]:
    """By path: the page at ``/ui`` and ``/ui/``, what it loads at ``/ui/NAME``."""
    found: dict[str, File] = {}
    for entry in sorted(resources.files(__package__).joinpath("static").iterdir(), key=lambda e: e.name):
        body = entry.read_bytes()
        kind = _TYPES[entry.name[entry.name.rindex(".") :]]
        file = File(body, kind, f'"{hashlib.sha256(body).hexdigest()[:32]}"')
        for path in ("/ui", "/ui/") if entry.name == INDEX else (f"/ui/{entry.name}",):
            found[path] = file
    return found


def sender(file: File) -> Handler:
    """Sends a file, or says that the browser's copy is the same."""

    async def send(request: web.Request) -> web.StreamResponse:
        headers = {**HEADERS, "ETag": file.tag, "Cache-Control": "no-cache"}
        known = request.headers.get("If-None-Match", "")
        if file.tag in [tag.strip().removeprefix("W/") for tag in known.split(",")]:
            return web.Response(status=304, headers=headers)
        return web.Response(body=file.body, content_type=file.content_type, charset="utf-8", headers=headers)

    return send
