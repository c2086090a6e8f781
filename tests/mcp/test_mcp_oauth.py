"""Sign-in with OAuth: only what the user approves on the machine that has the memory gets a token."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from itertools import count
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from crystal.app.context import default_paths
from crystal.credentials import access_requests
from crystal.credentials.access import read_grants
from crystal.credentials.access_requests import RequestList
from crystal.mcp.remote.token_guard import Rates
from crystal.store import Store
from tests.support.command import crystal
from tests.support.remote_client import BASE, Remote, serving, token_for
from tests.support.table import each_row

BACK = "https://assistant.example/callback"
VERIFIER = "v" * 64
CHALLENGE = base64.urlsafe_b64encode(hashlib.sha256(VERIFIER.encode()).digest()).decode().rstrip("=")
NUMBERS = count()


class Assistant(Remote):
    """A hosted assistant and its user's browser."""

    def __init__(self, rates: Rates | None = None, **more: Any) -> None:
        super().__init__(rates=rates, key=b"k" * 32)
        self.follow_redirects = False
        about = {"redirect_uris": [BACK], "client_name": "Assistant", "token_endpoint_auth_method": "none", **more}
        self.registered = self.post("/register", json=about)
        self.id = self.registered.json().get("client_id", "")

    def begin(self, **other: str | None) -> Any:
        asked = {
            "client_id": self.id, "redirect_uri": BACK, "response_type": "code", "code_challenge": CHALLENGE,
            "code_challenge_method": "S256", "state": "s1", "scope": "read", "resource": f"{BASE}/mcp", **other,
        }  # fmt: skip
        return self.get(f"/authorize?{urlencode({name: value for name, value in asked.items() if value is not None})}")

    def page(self, **other: str | None) -> str:
        """Begin; return where the page is that waits for the user."""
        return str(self.begin(**other).headers["location"])

    def code_of_user(self, page: str) -> str:
        found = re.search(r"access approve ([A-Z-]+)<", self.get(page).text)
        assert found
        return found[1]

    def come_back(self, page: str) -> dict[str, str]:
        """Return what the browser brings back to the assistant."""
        answer = self.get(page)
        assert answer.status_code == 302, answer.text
        assert answer.headers["location"].startswith(BACK)
        return {name: value[0] for name, value in parse_qs(urlsplit(answer.headers["location"]).query).items()}

    def exchange(self, code: str, **other: str) -> Any:
        given = {"grant_type": "authorization_code", "code": code, "redirect_uri": BACK, "client_id": self.id,
                 "code_verifier": VERIFIER, **other}  # fmt: skip
        return self.post("/token", data=given)


@pytest.fixture
def assistant(told: Store) -> Assistant:
    return Assistant()


def test_it_gets_what_the_user_approves_and_nothing_before(told: Store) -> None:
    assistant = Assistant(scope="read remember")
    page = assistant.page(scope="read remember")
    shown = assistant.get(page)
    assert shown.status_code == 200
    assert "Assistant wants to use" in shown.text
    assert "assistant.example" in shown.text
    assert "asks to: read, remember." in shown.text
    assert not default_paths().access.exists()
    approved = crystal("access", "approve", assistant.code_of_user(page), "--scope", "read", "--project", "shop")
    assert "Assistant, at assistant.example, may read in shop (/code/shop) alone" in approved.out
    back = assistant.come_back(page)
    assert (back["state"], back["iss"]) == ("s1", f"{BASE}/")
    token = assistant.exchange(back["code"]).json()
    assert (token["token_type"].lower(), token["scope"]) == ("bearer", "read")
    assert assistant.exchange(back["code"]).status_code == 400, "a code is good once"
    inside = Remote(token["access_token"])
    assert "zebra" in inside.text("crystal_search", query="zebra")
    assert inside.rpc("tools/call", {"name": "crystal_remember", "arguments": {"text": "x"}}).status_code == 403
    assert token["access_token"].encode() not in default_paths().access.read_bytes()
    assert not json.loads(default_paths().access_requests.read_text())
    assert crystal("access", "revoke", "Assistant").code == 0
    assert inside.rpc("tools/list").status_code == 401


@each_row("registered", [{}, {"scope": "read"}])
def test_it_may_ask_for_every_scope_whatever_it_registered_with(told: Store, registered: dict[str, str]) -> None:
    """Some register without a scope, which RFC 7591 leaves open, then ask for all that the server has."""
    assistant = Assistant(**registered)
    page = assistant.page(scope="read remember forget")
    assert "asks to: read, remember, forget." in assistant.get(page).text
    assert "may read everywhere" in crystal("access", "approve", assistant.code_of_user(page)).out
    crystal("access", "revoke", "Assistant")


def test_who_has_no_token_is_told_where_to_sign_in(assistant: Assistant) -> None:
    refused = assistant.rpc("tools/list")
    assert refused.status_code == 401
    address = re.search(r'resource_metadata="([^"]+)"', refused.headers["www-authenticate"])
    assert address
    about = assistant.get(address[1]).json()
    assert about["resource"] == f"{BASE}/mcp"
    assert [one.rstrip("/") for one in about["authorization_servers"]] == [BASE]
    server = assistant.get("/.well-known/oauth-authorization-server").json()
    assert server["issuer"] == f"{BASE}/", "as the redirect says it"
    assert server["code_challenge_methods_supported"] == ["S256"]
    assert server["scopes_supported"] == ["read", "remember", "forget"]
    assert Remote().get("/.well-known/oauth-authorization-server").status_code == 401, "without --oauth there is none"
    assert "resource_metadata" not in Remote().rpc("tools/list").headers["www-authenticate"]


@each_row("uris", [
    ["http://evil.example/x"], ["javascript:alert(1)"], ["data:text/html,x"], [], ["https://a.example/" + "x" * 3_000],
    ["https://chatgpt.com@evil.example/"], ["https://:pw@a.example/"], ["https://a.example/#x"], ["https://a.example/#"],
    [BACK, "http://evil.example"], ["file:///etc/passwd"],
])  # fmt: skip
def test_who_may_register(told: Store, uris: list[str]) -> None:
    assert Assistant(redirect_uris=uris).registered.status_code == 400, uris


def test_a_client_on_this_machine_and_one_with_a_secret_may_register(told: Store) -> None:
    assert Assistant(redirect_uris=["http://127.0.0.1:3000/cb"]).registered.status_code == 201
    client = Assistant(token_endpoint_auth_method="client_secret_post")
    page = client.page()
    crystal("access", "approve", client.code_of_user(page))
    code = client.come_back(page)["code"]
    assert client.exchange(code, client_secret="guess").status_code == 401
    assert client.exchange(code).status_code == 401
    assert client.exchange(code, client_secret=client.registered.json()["client_secret"]).status_code == 200


@each_row(("other", "error"), [
    ({"client_id": "x"}, None), ({"client_id": "x.y"}, None), ({"redirect_uri": "https://evil.example/"}, None),
    ({"response_type": "token"}, "unsupported_response_type"), ({"code_challenge": None}, "invalid_request"),
    ({"code_challenge": ""}, "invalid_request"), ({"code_challenge": CHALLENGE[:-1]}, "invalid_request"),
    ({"code_challenge": f"{CHALLENGE}="}, "invalid_request"), ({"code_challenge": f"{CHALLENGE}\n"}, "invalid_request"),
    ({"code_challenge_method": "plain"}, "invalid_request"), ({"scope": "admin"}, "invalid_scope"),
    ({"resource": "https://other.example/mcp"}, "invalid_target"),
])  # fmt: skip
def test_a_wrong_beginning(told: Store, other: dict[str, str | None], error: str | None) -> None:
    answer = Assistant().begin(**other)
    assert answer.status_code == 400
    assert "location" not in answer.headers, "anybody may register an address: nobody is sent there unasked"
    link = re.search(f'<a href="({BACK}[^"]*)">', answer.text)
    assert (link is None) is (error is None)
    assert link is None or f"error={error}" in link[1]
    assert not default_paths().access_requests.exists()


def test_an_id_cannot_be_forged(assistant: Assistant) -> None:
    body, _, signature = assistant.id.partition(".")
    about = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    about["redirect_uris"] = ["https://evil.example/"]
    other = base64.urlsafe_b64encode(json.dumps(about).encode()).decode().rstrip("=")
    for forged in (f"{other}.{signature}", f"{body}.{signature[:-1]}", body, f"{body}.", "."):
        assert assistant.begin(client_id=forged, redirect_uri="https://evil.example/").status_code == 400


@each_row("other", [
    {"code_verifier": "w" * 64}, {"redirect_uri": "https://assistant.example/other"}, {"code": "x"},
    {"code": "\xe9"}, {"client_id": "\xe9.\xe9"}, {"grant_type": "refresh_token", "refresh_token": "x"}, {"grant_type": "password"},
])  # fmt: skip
def test_a_code_is_of_no_use_to_another(told: Store, other: dict[str, str]) -> None:
    client = Assistant()
    page = client.page()
    crystal("access", "approve", client.code_of_user(page), "--label", f"number {next(NUMBERS)}")
    code = client.come_back(page)["code"]
    assert client.exchange(**{"code": code, **other}).status_code in (400, 401), other
    thief = Assistant(client_name="Thief")
    assert thief.exchange(code).status_code == 400


def test_what_is_revoked_or_too_late_gets_nothing(assistant: Assistant, monkeypatch: pytest.MonkeyPatch) -> None:
    page = assistant.page()
    for code in ("BBBB-BBBB", "", "x"):
        assert crystal("access", "approve", code).code == 1
    assert crystal("access", "approve", assistant.code_of_user(page)).code == 0
    code = assistant.come_back(page)["code"]
    assert crystal("access", "revoke", "Assistant").code == 0
    assert assistant.exchange(code).status_code == 400
    assert assistant.get("/consent?id=x").status_code == 410
    late, first = assistant.page(), read_grants(default_paths().access)
    code = assistant.code_of_user(late)
    monkeypatch.setattr(access_requests, "SECONDS", 0)
    monkeypatch.setattr("crystal.mcp.remote.oauth.SECONDS", -1)
    assert crystal("access", "approve", code).code == 1
    assert assistant.get(late).status_code == 410
    assert read_grants(default_paths().access) == first


@pytest.mark.slow
def test_what_waits_is_bounded_and_the_page_shows_no_markup_of_others(
    told: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    rates = Rates()
    for one in (rates.page, rates.sign_in):
        monkeypatch.setattr(one, "_clock", lambda: 0.0)  # however long the requests take
    client = Assistant(rates, client_name="<script>alert(1)</script>")
    assert "<script>" not in client.get(client.page()).text
    begun = [client.begin().status_code for _ in range(25)]
    assert begun == [302] * 19 + [429] * 6, "who begins often does not push out those of others"
    for _ in range(150):
        RequestList(default_paths().access_requests).add("x", "x", ("read",), "x")
    waiting = json.loads(default_paths().access_requests.read_text())
    assert len(waiting) == len({one["code"] for one in waiting}) == 100
    answers = [client.get("/consent?id=x").status_code for _ in range(60)]
    assert answers[-1] == 429
    assert Remote(token_for("phone")).rpc("ping").status_code == 200


@pytest.mark.slow
def test_the_official_client_signs_in(told: Store) -> None:
    import anyio
    import httpx
    import httpx2
    from mcp import Client
    from mcp.client.auth import OAuthClientProvider
    from mcp.client.streamable_http import streamable_http_client
    from mcp.shared.auth import AuthorizationCodeResult, OAuthClientMetadata

    kept: dict[str, Any] = {}

    class Kept:
        async def get_tokens(self) -> Any:
            return kept.get("tokens")

        async def set_tokens(self, tokens: Any) -> None:
            kept["tokens"] = tokens

        async def get_client_info(self) -> Any:
            return kept.get("client")

        async def set_client_info(self, client_info: Any) -> None:
            kept["client"] = client_info

    async def browse(address: str) -> None:
        async with httpx.AsyncClient() as browser:
            page = (await browser.get(address)).headers["location"]
            found = re.search(r"access approve ([A-Z-]+)<", (await browser.get(page)).text)
            assert found
            assert crystal("access", "approve", found[1], "--label", "desk", "--expires", "never").code == 0
            kept["back"] = (await browser.get(page)).headers["location"]

    async def come_back() -> Any:
        query = parse_qs(urlsplit(kept["back"]).query)
        return AuthorizationCodeResult(code=query["code"][0], state=query["state"][0], iss=query["iss"][0])

    async def talk(url: str) -> str:
        about = OAuthClientMetadata(client_name="Desk", redirect_uris=["http://127.0.0.1:9/cb"], scope="read")  # type: ignore[list-item]
        provider = OAuthClientProvider(url, about, Kept(), browse, come_back)
        async with (
            httpx2.AsyncClient(auth=provider) as sender,
            Client(streamable_http_client(url, http_client=sender)) as client,
        ):
            found = await client.call_tool("crystal_search", {"query": "zebra"})
            return str(found.content[0].text)  # type: ignore[union-attr]

    with serving("--oauth") as (url, _):
        assert "zebra" in anyio.run(talk, url)
    assert [one.label for one in read_grants(default_paths().access)] == ["desk"]
