"""Guard the server: answer only the browser on this machine that opened the link, on crystal's own pages.

Every request passes ``Guard`` before it reaches a page, also one for a page that does not exist.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs, parse_qsl

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from crystal.serving.peer import is_other_user
from crystal.serving.request_checks import LOCAL_NAMES, is_same, name_of_host, read_body, with_headers

OPEN_PATH = "/open"
STYLE_PATH = "/static/app.css"
"""Served to everybody, because the page with a refusal uses it."""
MAX_FORM_BYTES = 1 << 20
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self';"
    " base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "cache-control": "no-store",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


def _secret() -> str:
    return secrets.token_urlsafe(32)


@dataclass(slots=True)
class Access:
    """The secrets of one run of the server.

    Attributes:
        cookie_name: Differs by port, because browsers send a cookie to every port of a host.
        link: The one-time token of the opening link; empty once it was used.
        cookie: The value of the cookie that the link is exchanged for.
        csrf: The token that every form must contain.
    """

    cookie_name: str
    link: str = field(default_factory=_secret, repr=False)
    cookie: str = field(default_factory=_secret, repr=False)
    csrf: str = field(default_factory=_secret, repr=False)

    def use_link(self, token: str) -> bool:
        """Return True if the token is the link's; a second call with it returns False."""
        if not self.link or not is_same(token, self.link):
            return False
        self.link = ""
        return True


@dataclass(frozen=True, slots=True)
class Refusal:
    """Reason why a request is refused."""

    status: int
    title: str
    message: str


OTHER_USER = Refusal(403, "This page is another user's", "Run “crystal web” yourself to see your own memory.")
NO_COOKIE = Refusal(
    403, "This page is locked", "Run “crystal web”, and open the link that it prints: each opens the page once."
)
USED_LINK = Refusal(
    403,
    "This link was used before",
    "Each link opens the page once. Stop the server with Ctrl-C, run “crystal web” again, and open its new link."
    " If you did not use the link yourself, somebody else on this machine did.",
)
WRONG_HOST = Refusal(
    421, "This address is not served", "Open http://127.0.0.1 with the port that “crystal web” prints."
)
WRONG_ORIGIN = Refusal(403, "Another page sent this", "Nothing was changed. Only crystal's own pages may do that.")
WRONG_FORM = Refusal(403, "This form is too old", "Nothing was changed. Go back, reload the page, and try again.")
TOO_LONG = Refusal(413, "This is too much text", "Nothing was changed. A form may have at most 1 MB.")


class Guard:
    """Refuse requests that are not the user's own, and put the security headers on every answer.

    Args:
        app: The application that gets the accepted requests.
        access: The secrets of this run.
        refuse: Makes the page for a refusal.
        welcome: Makes the page that follows the link; it must navigate by itself, because a browser does not send a
            strict cookie along a redirect that another program began.
    """

    def __init__(
        self, app: ASGIApp, access: Access, refuse: Callable[[Refusal], Response], welcome: Callable[[], Response]
    ) -> None:
        self._app, self._access, self._refuse, self._welcome = app, access, refuse, welcome

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        send = with_headers(scope, send, HEADERS)
        headers = Headers(scope=scope)
        answer = self._answer(scope, headers)
        if answer is None and scope["method"] == "POST":
            fields = await _read_form(headers, receive)
            answer = self._check_form(fields)
            scope.setdefault("state", {})["form"] = fields
        await (answer or self._app)(scope, receive, send)

    def _answer(self, scope: Scope, headers: Headers) -> Response | None:
        """Return the answer to a request that may not reach a page; None if it may."""
        if name_of_host(", ".join(headers.getlist("host"))) not in LOCAL_NAMES:
            return self._refuse(WRONG_HOST)
        if is_other_user(scope.get("client"), scope.get("server")):
            return self._refuse(OTHER_USER)
        has_cookie = is_same(_cookie(headers, self._access.cookie_name), self._access.cookie)
        if scope["path"] == OPEN_PATH and scope["method"] == "GET":
            return self._open(scope, has_cookie=has_cookie)
        if not has_cookie and not (scope["path"] == STYLE_PATH and scope["method"] == "GET"):
            return self._refuse(NO_COOKIE)
        if scope["method"] not in ("GET", "HEAD") and not _is_own_origin(headers):
            return self._refuse(WRONG_ORIGIN)
        return None

    def _open(self, scope: Scope, *, has_cookie: bool) -> Response:
        [token] = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[:1]
        if not self._access.use_link(token):
            return self._welcome() if has_cookie else self._refuse(USED_LINK)
        answer = self._welcome()
        answer.set_cookie(self._access.cookie_name, self._access.cookie, httponly=True, samesite="strict")
        return answer

    def _check_form(self, fields: dict[str, str] | None) -> Response | None:
        if fields is None:
            return self._refuse(TOO_LONG)
        return None if is_same(fields.pop("csrf", ""), self._access.csrf) else self._refuse(WRONG_FORM)


def _cookie(headers: Headers, name: str) -> str:
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(name)
    except CookieError:
        return ""
    return "" if found is None else found.value


def _is_own_origin(headers: Headers) -> bool:
    """Return True if one of crystal's pages sent this. Browsers hide a form's origin if its referrer is hidden."""
    origin, site = headers.get("origin"), headers.get("sec-fetch-site")
    if origin in (None, "null"):
        return site == "same-origin"
    return origin == f"http://{headers.get('host')}" and site in (None, "same-origin")


async def _read_form(headers: Headers, receive: Receive) -> dict[str, str] | None:
    """Return the fields of a form; empty if the body is no form, None if it is too long."""
    body = await read_body(receive, MAX_FORM_BYTES)
    if body is None:
        return None
    if headers.get("content-type", "").partition(";")[0] != "application/x-www-form-urlencoded":
        return {}
    return dict(parse_qsl(body.decode("latin-1"), keep_blank_values=True))
