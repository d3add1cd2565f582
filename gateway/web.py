"""The pages for people, and what the operator's page asks for."""

import hashlib
from importlib.resources import files
from pathlib import PurePath
from typing import NamedTuple

from fastapi import FastAPI, HTTPException, Request, Response

from gateway.fleet_view import FleetReport
from gateway.gateway import Gateway

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
# Everything is ours and from here; a page that is not may not frame these.
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Permissions-Policy": "microphone=(self)",
    # Asked for again each time, answered with 304: a page must not meet another release's modules.
    "Cache-Control": "no-cache",
}
_PAGES = {"/": "index.html", "/operator": "operator.html"}


class _File(NamedTuple):
    content: bytes
    headers: dict[str, str]


def add_pages(app: FastAPI, gateway: Gateway) -> None:
    """Routes of the pages, their files and `/v1/fleet`."""
    found = {entry.name: _read(entry.name) for entry in (files("gateway") / "pages").iterdir()}

    async def page(request: Request) -> Response:
        return _answer(request, found[_PAGES[request.url.path]])

    async def part(request: Request) -> Response:
        file = found.get(request.path_params["name"])
        if file is None:
            raise HTTPException(404, "no such file")
        return _answer(request, file)

    for path in _PAGES:
        app.add_route(path, page, methods=["GET"], include_in_schema=False)
    app.add_route("/pages/{name}", part, methods=["GET"], include_in_schema=False)

    @app.get(
        "/v1/fleet",
        responses={
            401: {"description": "no valid credentials"},
            403: {"description": "not allowed"},
            503: {"description": "Redis is away"},
        },
    )
    async def fleet(request: Request, response: Response) -> FleetReport:
        """The fleet as it is now, for keys with scope `listen`."""
        gateway.door.enter(request, "listen")
        response.headers["Cache-Control"] = "no-store"
        return await gateway.fleet.look()


def _read(name: str) -> _File:
    content = (files("gateway") / "pages" / name).read_bytes()
    etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    return _File(content, {**_HEADERS, "Content-Type": _TYPES[PurePath(name).suffix], "ETag": etag})


def _answer(request: Request, file: _File) -> Response:
    if request.headers.get("if-none-match") == file.headers["ETag"]:
        return Response(status_code=304, headers=file.headers)
    return Response(file.content, headers=file.headers)
