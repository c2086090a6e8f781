"""Sign in assistants that cannot be given a token: OAuth 2.1 as MCP requires it, with the package ``mcp``.

The user approves on the machine that has the memory: the page in the browser shows a code, and with that code
``crystal access approve`` makes an access as ``crystal access make`` does. The server itself cannot grant access.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import html
import json
import re
import secrets
import time
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, urlsplit

from mcp.server.auth.handlers.authorize import AuthorizationHandler
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    AuthorizeError,
    OAuthAuthorizationServerProvider,
    RefreshToken,
    RegistrationError,
    TokenError,
    construct_redirect_uri,
)
from mcp.server.auth.routes import create_auth_routes, create_protected_resource_routes
from mcp.server.auth.settings import ClientRegistrationOptions
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyHttpUrl, AnyUrl
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from crystal.credentials.access import SCOPES, Grant, TokenChecker, hash_of, new_token
from crystal.credentials.access_requests import SECONDS, AccessRequest, RequestList
from crystal.mcp.remote.token_guard import METADATA
from crystal.serving.request_checks import LOCAL_NAMES, is_same

CONSENT, AUTHORIZE = "/consent", "/authorize"
MAX_CLIENT, MAX_NAME, MAX_WAITING = 3_000, 60, 100
CHALLENGE = re.compile(r"[A-Za-z0-9_-]{43}")  # RFC 7636, section 4.2: a SHA-256 in base64url, without padding
PATHS = ("/.well-known/oauth-authorization-server", METADATA, AUTHORIZE, "/token", "/register", CONSENT)
PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta http-equiv="refresh" content="3"><title>crystal</title><h1>{name} wants to use your memory</h1>
<p>It will get its token at <b>{host}</b>. It asks to: {scopes}.</p>
<p>To allow it to read, run this on the machine that has the memory; to allow more, add --scope:</p>
<pre>crystal access approve {code}</pre>
<p>To refuse, close this page. After you approve, it continues by itself.</p></html>"""
REFUSED = """<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>crystal</title><p>This sign-in cannot begin: {error}. A program at <b>{host}</b> asked for it.</p>
<p>If you know that program, <a href="{link}">tell it about the error</a>; else close this page.</p></html>"""


@dataclass(slots=True)
class PendingSignIn:
    """A sign-in that the user has not approved yet, or whose token was not fetched yet.

    Attributes:
        request: The entry that ``crystal access approve`` reads.
        token: The token for the client.
        client: The client.
        params: The parameters of the client's request.
        code: The authorization code, which the client exchanges for the token; empty until the user has approved.
        code_ends: Time when the code expires, in seconds.
    """

    request: AccessRequest
    token: str
    client: OAuthClientInformationFull
    params: AuthorizationParams
    code: str = ""
    code_ends: float = 0.0
    ident: str = field(default_factory=lambda: secrets.token_urlsafe(32))

    @property
    def is_over(self) -> bool:
        """Return True if the time for the user's approval has passed."""
        return self.request.at + SECONDS * 1000 < time.time() * 1000


class SignIn(OAuthAuthorizationServerProvider[AuthorizationCode, RefreshToken, AccessToken]):
    """OAuth provider for the handlers of the package ``mcp``.

    A client's id is its signed description, so that nothing is stored for a client that only registers.

    Args:
        tokens: Finds the grant of a token.
        requests: The list that ``crystal access approve`` reads.
        key: Signs the ids of clients.
        url: The server's address, without a path.
    """

    def __init__(self, tokens: TokenChecker, requests: RequestList, key: bytes, url: str) -> None:
        self._tokens, self._requests, self._url = tokens, requests, url
        self._key = hashlib.blake2b(b"sign-in", key=key).digest()
        self._waiting: dict[str, PendingSignIn] = {}

    def routes(self) -> list[Route]:
        """Return the routes of the authorization server and of its metadata."""
        issuer, resource = AnyHttpUrl(self._url), AnyHttpUrl(f"{self._url}/mcp")
        scopes = ClientRegistrationOptions(enabled=True, valid_scopes=[*SCOPES], default_scopes=["read"])
        made = create_auth_routes(self, issuer, client_registration_options=scopes)
        return [
            *(one for one in made if one.path != AUTHORIZE),
            Route(AUTHORIZE, self._authorize, methods=["GET", "POST"]),
            *create_protected_resource_routes(resource, [issuer], [*SCOPES], "crystal"),
            Route(CONSENT, self._consent),
        ]

    # ---------------------------------------------------------------------------------------------------- clients

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        """Give a client an id that contains its description."""
        for uri in client_info.redirect_uris or ():
            _refuse_misleading(uri)
        name = " ".join((client_info.client_name or "").split())[:MAX_NAME].strip()
        about = {
            "redirect_uris": [str(uri) for uri in client_info.redirect_uris or ()],
            "scope": " ".join(SCOPES),  # many register without one, then ask for all; the user decides
            "client_name": name if name and name.isprintable() else "an assistant",
            "token_endpoint_auth_method": client_info.token_endpoint_auth_method,
        }  # fmt: skip
        body = base64.urlsafe_b64encode(json.dumps(about).encode()).decode().rstrip("=")
        if not about["redirect_uris"] or len(body) > MAX_CLIENT:
            raise RegistrationError("invalid_client_metadata", "give one or a few short redirect URIs")
        client_info.client_id = f"{body}.{self._sign('id', body)}"
        if client_info.client_secret is not None:
            client_info.client_secret = self._sign("secret", body)

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        """Return the client of an id; None if its signature is not valid."""
        body, _, signature = client_id.partition(".")
        if not is_same(signature, self._sign("id", body)):
            return None
        about = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        secret = None if about["token_endpoint_auth_method"] == "none" else self._sign("secret", body)  # noqa: S105
        return OAuthClientInformationFull(client_id=client_id, client_secret=secret, **about)

    def _sign(self, purpose: str, body: str) -> str:
        return hmac.new(self._key, f"{purpose}:{body}".encode(), hashlib.sha256).hexdigest()

    # --------------------------------------------------------------------------------------------------- the code

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        """Store the request; return the address of the page that waits for the user."""
        if params.resource is not None and params.resource.rstrip("/") not in (self._url, f"{self._url}/mcp"):
            raise AuthorizeError("invalid_target", "this server has no such resource")
        if not CHALLENGE.fullmatch(params.code_challenge):
            raise AuthorizeError("invalid_request", "code_challenge is not a SHA-256 in base64url without padding")
        token = new_token()
        host = urlsplit(str(params.redirect_uri)).netloc
        asked = tuple(one for one in SCOPES if one in (params.scopes or ("read",)))
        request = self._requests.add(client.client_name or "an assistant", host, asked, hash_of(token))
        waiting = PendingSignIn(request, token, client, params)
        kept = [one for one in self._waiting.values() if not one.is_over][-MAX_WAITING:]
        self._waiting = {one.ident: one for one in (*kept, waiting)}
        return f"{self._url}{CONSENT}?id={waiting.ident}"

    async def _authorize(self, request: Request) -> Response:
        """Begin a sign-in. An error is a page with a link to the client: anybody may register one."""
        answer = await AuthorizationHandler(self).handle(request)
        back = answer.headers.get("location", "")
        if not back or back.startswith(f"{self._url}{CONSENT}?"):
            return answer
        parts = urlsplit(back)
        error, host, link = (
            html.escape(one) for one in (dict(parse_qsl(parts.query)).get("error", ""), parts.netloc, back)
        )
        return HTMLResponse(REFUSED.format(error=error, host=host, link=link), 400)

    async def _consent(self, request: Request) -> Response:
        """Show the code until the user has approved it, then redirect to the client."""
        waiting = self._waiting.get(request.query_params.get("id", ""))
        if waiting is None or waiting.is_over:
            return HTMLResponse("<!doctype html><title>crystal</title><p>This sign-in is over. Begin again.</p>", 410)
        if self._granted(waiting) is None:
            asked = waiting.request
            name, host, scopes = (html.escape(one) for one in (asked.client, asked.host, ", ".join(asked.scopes)))
            return HTMLResponse(PAGE.format(name=name, host=host, scopes=scopes, code=asked.code))
        waiting.code, waiting.code_ends = secrets.token_urlsafe(32), time.time() + 60
        back = construct_redirect_uri(
            str(waiting.params.redirect_uri),
            code=waiting.code,
            state=waiting.params.state,
            iss=str(AnyHttpUrl(self._url)),
        )
        return RedirectResponse(back, 302)

    def _granted(self, waiting: PendingSignIn) -> Grant | None:
        return self._tokens.find(waiting.token, time.time_ns() // 1_000_000)

    def _with_code(self, code: str) -> PendingSignIn | None:
        found = (one for one in self._waiting.values() if one.code and is_same(code, one.code))
        return next((one for one in found if one.code_ends > time.time()), None)

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        """Return the request of a code; the handler checks client, address and PKCE."""
        found = self._with_code(authorization_code)
        if found is None or found.client.client_id != client.client_id:
            return None
        params = found.params
        return AuthorizationCode(
            code=found.code, scopes=[*found.request.scopes], expires_at=found.code_ends,
            client_id=client.client_id or "",
            code_challenge=params.code_challenge, redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly, resource=params.resource,
        )  # fmt: skip

    async def exchange_authorization_code(
        self,
        client: OAuthClientInformationFull,
        authorization_code: AuthorizationCode,
    ) -> OAuthToken:
        """Return the token for a code, which is valid once."""
        found = self._with_code(authorization_code.code)
        grant = None if found is None else self._granted(found)
        if found is None or grant is None:
            raise TokenError("invalid_grant", "this code is used, over or revoked")
        del self._waiting[found.ident]
        left = None if grant.expires_at is None else max(0, grant.expires_at // 1000 - int(time.time()))
        return OAuthToken(access_token=found.token, expires_in=left, scope=" ".join(grant.scopes))

    # ------------------------------------------------------------- no refresh tokens: sign in again when one expires

    async def load_refresh_token(self, client: OAuthClientInformationFull, refresh_token: str) -> RefreshToken | None:
        """Return None, because there are no refresh tokens."""

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        """Raise TokenError, because there are no refresh tokens."""
        raise TokenError("unsupported_grant_type", "sign in again")

    async def load_access_token(self, token: str) -> AccessToken | None:
        """Return None: ``TokenGuard`` checks the tokens."""

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        """Do nothing: only the user revokes a token, with ``crystal access revoke``."""


def _refuse_misleading(uri: AnyUrl) -> None:
    """Raise RegistrationError for a redirect URI that others can read, or that looks like a different one."""
    is_local = uri.scheme == "http" and uri.host in LOCAL_NAMES
    if not (uri.scheme == "https" or is_local):
        raise RegistrationError("invalid_redirect_uri", "redirect URIs begin with https, or lead to loopback")
    if uri.username or uri.password or uri.fragment is not None:
        raise RegistrationError("invalid_redirect_uri", "redirect URIs have no user name and no fragment")
