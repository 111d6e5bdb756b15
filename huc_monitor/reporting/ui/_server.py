"""The pages over HTTP, for this machine alone: reading needs no log-in, acting needs a token."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import parse_qs

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from huc_monitor._common.safe_text import quoted
from huc_monitor.errors import HUCError, InvalidInputError, UnknownNameError
from huc_monitor.monitor import CheckInProgressError
from huc_monitor.reporting.ui._access import COOKIE, Access
from huc_monitor.reporting.ui._acting import act
from huc_monitor.reporting.ui._fleet import Fleet
from huc_monitor.reporting.ui._links import Links
from huc_monitor.reporting.ui._pages import Pages

if TYPE_CHECKING:
    from starlette.requests import Request

_HERE = ["127.0.0.1", "localhost"]  # other names are those of other sites (DNS rebinding)
Answer: TypeAlias = "Callable[[Request], Awaitable[Response]]"
_LONGEST_FORM = 65_536
_READ_ONLY = "This server only shows pages. Start it with --allow-actions to act."
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
    site = _Site(fleet, access or Access())
    hosts = Middleware(TrustedHostMiddleware, allowed_hosts=_HERE, www_redirect=False)
    return Starlette(
        routes=[
            Route("/", site.shown(lambda _, pages: pages.overview())),
            Route("/alerts", site.shown(site.alerts)),
            Route("/login", site.shown(lambda _, pages: pages.login()), methods=["GET"]),
            Route("/login", site.login, methods=["POST"]),
            Route("/logout", site.sealed(site.leave), methods=["POST"]),
            Route("/m/{slug}", site.shown(_model)),
            Route("/m/{slug}/branch/{index:int}", site.shown(_branch)),
            Route("/m/{slug}/versions", site.shown(_versions)),
            Route("/m/{slug}/{verb}", site.sealed(site.act), methods=["POST"]),
        ],
        middleware=[hosts],
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Site:
    """Answers requests: pages for everyone, actions for who is logged in."""

    fleet: Fleet
    door: Access

    def pages(self, request: Request) -> Pages:
        """Return the pages as the sender of a request sees them."""
        session = request.cookies.get(COOKIE, "")
        known = self.door.name(session) is not None
        return Pages(self.fleet, Links(self.door.allowed, self.door.seal(session) if known else ""))

    def shown(self, make: Callable[[Request, Pages], str]) -> Answer:
        """Answer with a page."""

        async def answer(request: Request) -> Response:
            pages = self.pages(request)
            return await run_in_threadpool(_told, lambda: _page(make(request, pages)), pages, 404)

        return answer

    def sealed(self, done: Callable[[Request, Mapping[str, str], str], str]) -> Answer:
        """Let a form do something if it is one of ours and its sender is logged in."""

        async def answer(request: Request) -> Response:
            form, pages = await _form(request), self.pages(request)
            session = request.cookies.get(COOKIE)
            name = self.door.name(session)
            sure = self.door.is_sealed(session, form.get("seal", "")) and _from_here(request)
            if name is None or not sure:
                why = "Log in, and use the form on the page." if self.door.allowed else _READ_ONLY
                return _page(pages.trouble("Nothing was done", why), 403)

            def make() -> Response:
                return RedirectResponse(done(request, form, name), 303, _HEADERS)

            return await run_in_threadpool(_told, make, pages, 400)

        return answer

    async def login(self, request: Request) -> Response:
        """Let in who brings the token and a name."""
        form = await _form(request)
        name, token = form.get("name", "").strip(), form.get("token", "")
        session = self.door.enter(token, name) if name and _from_here(request) else None
        if session is None:
            why = "The token or the name is not right." if self.door.allowed else _READ_ONLY
            return _page(self.pages(request).login(why), 403)
        answer = RedirectResponse("/alerts", 303, _HEADERS)
        answer.set_cookie(COOKIE, session, httponly=True, samesite="strict", path="/")
        return answer

    def leave(self, request: Request, _form: Mapping[str, str], _name: str) -> str:
        """Log out."""
        self.door.leave(request.cookies.get(COOKIE, ""))
        return "/alerts"

    def act(self, request: Request, form: Mapping[str, str], name: str) -> str:
        """Do what a form asks for, and say which page shows it."""
        slug, verb = request.path_params["slug"], request.path_params["verb"]
        act(self.pages(request).seat(slug), verb, form, name)
        return f"/m/{slug}/versions" if verb in {"promote", "rollback"} else f"/alerts#{slug}"

    def alerts(self, request: Request, pages: Pages) -> str:
        """Show the alerts, with the name of who is logged in."""
        return pages.alerts(self.door.name(request.cookies.get(COOKIE)) or "")


def _told(make: Callable[[], Response], pages: Pages, unknown: int) -> Response:
    """Make an answer; what goes wrong is a page too, and `unknown` its status for a wrong name."""
    try:
        return make()
    except InvalidInputError as error:
        return _page(pages.trouble("This is not possible", str(error)), unknown)
    except CheckInProgressError as error:
        return _page(pages.trouble("A check is running", str(error)), 409)
    except (HUCError, OSError) as error:
        return _page(pages.trouble("This went wrong", str(error)), 500)


def _page(text: str, status: int = 200) -> Response:
    return HTMLResponse(text, status, headers=_HEADERS)


async def _form(request: Request) -> dict[str, str]:
    """Read a small form; the last value of a name counts."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _LONGEST_FORM:
            return {}
    given = parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=20)
    return {name: values[-1] for name, values in given.items()}


def _from_here(request: Request) -> bool:
    """Whether a browser says that its page came from this server; older ones say nothing."""
    site = request.headers.get("sec-fetch-site")
    if site is not None:  # without a referrer, the origin of our own forms is "null"
        return site == "same-origin"
    origin = request.headers.get("origin")
    return origin in {None, f"http://{request.headers.get('host')}"}


def _versions(request: Request, pages: Pages) -> str:
    return pages.versions(request.path_params["slug"])


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
