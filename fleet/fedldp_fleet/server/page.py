"""The live page, /metrics, /healthz and /status.json, on an address of their own."""

import asyncio
from collections.abc import Callable
from importlib import resources
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from fedldp_fleet.server.metrics import text

Look = Callable[[], dict[str, Any]]

FILES = {
    "index.html": "text/html",
    "page.js": "text/javascript",
    "page.css": "text/css",
    "icon.svg": "image/svg+xml",
}
LOOPBACK = ("127.0.0.1", "::1", "localhost")

_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def page_routes(look: Look, host: str) -> list[Route]:
    """Return the routes of a page that listens on an address.

    A page of another site can make a browser call the loopback interface. It cannot read the
    answers unless its own name leads there (DNS rebinding), so requests with another name are
    refused.
    """

    def route(path: str, respond: Callable[[Request], Any]) -> Route:
        async def endpoint(request: Request) -> Response:
            if host in LOOPBACK and request.url.hostname not in LOOPBACK:
                return Response("This page answers to localhost only.\n", 421, _HEADERS)
            loop = asyncio.get_running_loop()
            response: Response = await loop.run_in_executor(None, respond, request)
            response.headers.update(_HEADERS)
            return response

        return Route(path, endpoint, methods=["GET"])

    def health(_: Request) -> Response:
        problems = look()["problems"]
        document = {"status": "failing" if problems else "ok", "reasons": problems}
        return JSONResponse(document, 503 if problems else 200)

    def metrics(request: Request) -> Response:
        content, kind = text(look(), request.headers.get("accept", ""))
        return Response(content, headers={"Content-Type": kind})

    def file(name: str) -> Callable[[Request], Response]:
        content = (resources.files(__package__) / "page" / name).read_bytes()
        return lambda _: Response(content, media_type=FILES[name])

    files = [route("/", file("index.html")), *(route(f"/{name}", file(name)) for name in FILES)]
    return [
        *files,
        route("/status.json", lambda _: JSONResponse(look())),
        route("/healthz", health),
        route("/metrics", metrics),
    ]
