"""The pages over HTTP, for this machine alone: reading needs no log-in, acting needs a token."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from huc_monitor._common.safe_text import quoted
from huc_monitor.errors import HUCError, UnknownNameError
from huc_monitor.monitor import CheckInProgressError
from huc_monitor.reporting.ui._access import COOKIE, Access
from huc_monitor.reporting.ui._links import Links
from huc_monitor.reporting.ui._pages import Pages

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request

    from huc_monitor.reporting.ui._fleet import Fleet

_HERE = ["127.0.0.1", "localhost"]  # other names are those of other sites (DNS rebinding)
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'",  # the rest stands in the page itself
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def make_app(fleet: Fleet, access: Access | None = None) -> Starlette:
    """Make the application over a fleet; without `access` it can only be read."""
    door = access or Access()

    def shown(make: Callable[[Request, Pages], str]) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            session = request.cookies.get(COOKIE)
            seal = door.seal(session) if session and door.knows(session) else ""
            pages = Pages(fleet, Links(door.allowed, seal))
            return await run_in_threadpool(_answer, make, request, pages)

        return answer

    hosts = Middleware(TrustedHostMiddleware, allowed_hosts=_HERE, www_redirect=False)
    return Starlette(
        routes=[
            Route("/", shown(lambda _, pages: pages.overview())),
            Route("/m/{slug}", shown(_model)),
            Route("/m/{slug}/branch/{index:int}", shown(_branch)),
        ],
        middleware=[hosts],
    )


def _answer(make: Callable[[Request, Pages], str], request: Request, pages: Pages) -> Response:
    """Make a page; what goes wrong is a page too."""
    try:
        return _page(make(request, pages))
    except UnknownNameError as error:
        return _page(pages.trouble("There is no such page", str(error)), 404)
    except CheckInProgressError as error:
        return _page(pages.trouble("A check is running", str(error)), 409)
    except (HUCError, OSError) as error:
        return _page(pages.trouble("This cannot be shown", str(error)), 500)


def _page(text: str, status: int = 200) -> Response:
    return HTMLResponse(text, status, headers=_HEADERS)


def _model(request: Request, pages: Pages) -> str:
    asked = request.query_params
    return pages.model(request.path_params["slug"], _window(request), asked.get("find", ""))


def _branch(request: Request, pages: Pages) -> str:
    found, rows = request.path_params, request.query_params.get("rows") == "1"
    return pages.branch(found["slug"], found["index"], _window(request), rows=rows)


def _window(request: Request) -> int | None:
    given = request.query_params.get("window")
    if given is None or given.isdecimal():
        return None if given is None else int(given[:12])
    msg = f"`window` must be the number of a window; got {quoted(given)}."
    raise UnknownNameError(msg)
