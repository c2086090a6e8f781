"""Build the web application: its routes, the memory that each page reads, and the pages for errors."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from typing import Any

from anyio.to_thread import run_sync
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from crystal.app.context import Machine, damage_explained, open_reader, open_writer
from crystal.errors import CrystalError, NotConfiguredError, NotFoundError, UnavailableError, UsageError
from crystal.serving.listening import LOOPBACK, listen, run
from crystal.web.pages import about, forget, health, memories, review, search, session, settings, timeline, usage
from crystal.web.rendering import Renderer
from crystal.web.responses import Answer, Page, PlainText, Redirect, RequestValues
from crystal.web.security import OPEN_PATH, Access, Guard, Refusal

Handler = Callable[[Machine, RequestValues], Answer]
Opener = Callable[[], AbstractContextManager[Machine]]

STATUS = ((NotFoundError, 404), (UsageError, 400), (NotConfiguredError, 503), (UnavailableError, 503))
DEFAULT_PORT = 8642
STATIC = {"app.css": "text/css", "app.js": "text/javascript", "icon.svg": "image/svg+xml"}


@dataclass(frozen=True, slots=True)
class MenuPage:
    """A page of the menu; ``key`` goes there after ``g``."""

    name: str
    path: str
    key: str
    show: Handler


VIEWS = (
    MenuPage("Timeline", "/", "t", timeline.show),
    MenuPage("Search", "/search", "s", search.show),
    MenuPage("About", "/about", "a", about.show),
    MenuPage("Memories", "/memories", "m", memories.show),
    MenuPage("Review", "/review", "r", review.show),
    MenuPage("Usage", "/usage", "u", usage.show),
    MenuPage("Health", "/health", "h", health.show),
    MenuPage("Settings", "/settings", "e", settings.show),
)
"""The menu, in its order. A new view is a row here and a file in ``pages/``."""

PAGES: Mapping[str, Handler] = {
    "/session/{id:path}": session.show,
    "/markdown/{id:path}": session.as_markdown,
    "/turn/{id:path}": session.find_turn,
    "/memory/{id}": memories.show_one,
    "/forget": forget.show,
}
"""Pages that others link to."""

ACTIONS: Mapping[str, Handler] = {
    "/memories/add": memories.add,
    "/memory/{id}/edit": memories.edit,
    "/memory/{id}/deprecate": memories.deprecate,
    "/memory/{id}/restore": memories.restore,
    "/review/{id}": review.judge,
    "/forget/preview": forget.preview,
    "/forget/confirm": forget.confirm,
    "/settings/private/add": settings.add_private,
    "/settings/private/remove": settings.remove_private,
}
"""Actions that change something: only forms reach them."""


def make_app(filters: Mapping[str, Callable[..., Any]], access: Access) -> ASGIApp:
    """Return the application.

    Args:
        filters: Functions of the command line, by their names in templates, so that both use the same words.
        access: The secrets of this run.
    """
    renderer = Renderer(filters, access.csrf, VIEWS)
    routes = [
        Route(path, _endpoint(renderer, show, open_reader, "GET"))
        for path, show in [*((view.path, view.show) for view in VIEWS), *PAGES.items()]
    ]
    routes += [
        Route(path, _endpoint(renderer, act, open_writer, "POST"), methods=["POST"]) for path, act in ACTIONS.items()
    ]
    routes += [Route(f"/static/{name}", partial(_static, name, kind)) for name, kind in STATIC.items()]
    handlers = {HTTPException: partial(_not_found, renderer), Exception: partial(_failed, renderer)}
    app = Starlette(routes=routes, exception_handlers=handlers)

    def refuse(refusal: Refusal) -> Response:
        return HTMLResponse(renderer.bare("refused.html", refusal=refusal), refusal.status)

    return Guard(app, access, refuse, lambda: HTMLResponse(renderer.bare("welcome.html")))


def _endpoint(
    renderer: Renderer, show: Handler, opener: Opener, method: str
) -> Callable[[Request], Awaitable[Response]]:
    """Return the endpoint of one route. It answers one request at a time, each in a thread."""
    lock = asyncio.Lock()

    def answer(params: RequestValues, path: str, *, is_part: bool) -> Response:
        try:
            with damage_explained(), opener() as machine:
                return _response(renderer, show(machine, params), is_part=is_part)
        except CrystalError as error:
            status = next((status for kind, status in STATUS if isinstance(error, kind)), 500)
            form = path.rpartition("/")[0].removesuffix("/private") if method == "POST" and status != 404 else "/"
            return _response(renderer, _error_page(error, "This did not work", status, form), is_part=is_part)

    async def endpoint(request: Request) -> Response:
        values = request.state.form if method == "POST" else request.query_params
        params = RequestValues(request.path_params, dict(values))
        async with lock:
            # While you type, the page drops a search when it starts the next one: skip requests that it dropped.
            if method == "GET" and await request.is_disconnected():
                return Response(status_code=204)
            return await run_sync(partial(answer, params, request.url.path, is_part="part" in values))

    return endpoint


def _response(renderer: Renderer, answer: Answer, *, is_part: bool) -> Response:
    if isinstance(answer, Redirect):
        return RedirectResponse(answer.to, 303)
    if isinstance(answer, PlainText):
        return PlainTextResponse(answer.write(renderer.wording))
    return HTMLResponse(renderer.part(answer) if is_part else renderer.whole(answer), answer.status)


async def _static(name: str, kind: str, _: Request) -> Response:
    return Response(files("crystal.web").joinpath(f"static/{name}").read_bytes(), media_type=kind)


async def _not_found(renderer: Renderer, _: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    missing = NotFoundError("there is no such page", hint="choose one from the menu")
    return _response(renderer, _error_page(missing, "Not found", status), is_part=False)


async def _failed(renderer: Renderer, _: Request, error: Exception) -> Response:
    bug = CrystalError(
        f"a bug of crystal: {type(error).__name__}", hint="the terminal in which `crystal web` runs shows where"
    )
    return _response(renderer, _error_page(bug, "This did not work", 500), is_part=False)


def _error_page(error: CrystalError, title: str, status: int, back: str = "/") -> Page:
    return Page("error.html", title, {"error": error, "back": back}, status)


def serve(filters: Mapping[str, Callable[..., Any]], port: int | None, ready: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM.

    Args:
        filters: Functions of the command line for the templates.
        port: None for the usual port, or any free one if that is taken.
        ready: Called with the opening link as soon as the server listens.

    Raises:
        UsageError: The number is not a port.
        UnavailableError: The port is taken.
    """
    with listen(port, DEFAULT_PORT, "crystal web") as listening:
        number = listening.getsockname()[1]
        access = Access(f"crystal-{number}")
        ready(f"http://{LOOPBACK}:{number}{OPEN_PATH}?token={access.link}")
        run(make_app(filters, access), listening)
