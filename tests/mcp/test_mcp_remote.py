"""The memory over HTTP: who may pass, what each token allows, and the protocol of the transport."""

from __future__ import annotations

import base64
import json
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from crystal.app.context import default_paths
from crystal.credentials import access
from crystal.credentials.access import SCOPES, TokenChecker, make_grant, read_grants, revoke_grant
from crystal.errors import NotConfiguredError, UsageError
from crystal.mcp.catalog import ALIASES, CONNECTOR, TOOLS
from crystal.mcp.remote.http_transport import MAX_BODY
from crystal.mcp.remote.server import ServerAddress
from crystal.mcp.remote.token_guard import HEADERS, Rate, Rates
from crystal.store import Store
from tests.support.command import crystal
from tests.support.examples import part_of
from tests.support.mcp_client import ENVELOPE, INITIALIZE, granted
from tests.support.mcp_memory import fence_of
from tests.support.remote_client import BASE, Remote, token_for
from tests.support.store_factory import add_turn
from tests.support.table import each_row

MODERN = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/list"}


# -------------------------------------------------------------------------------------------------------- who may pass


@each_row(("headers", "status"), [
    ({}, 200), ({"host": "localhost"}, 200), ({"host": "[::1]:9"}, 200), ({"host": "memory.example"}, 200),
    ({"host": "evil.example"}, 421), ({"host": "127.0.0.1.evil.example"}, 421), ({"host": ""}, 421),
    ({"host": "memory.example.evil:443"}, 421), ({"origin": BASE}, 200), ({"origin": "null"}, 403),
    ({"origin": "http://evil.example"}, 403), ({"origin": "http://127.0.0.1:9"}, 403), ({"origin": ""}, 403),
    ({"host": "memory.example", "origin": "https://memory.example"}, 200),
    ({"host": "memory.example", "origin": BASE}, 403),
    ({"authorization": ""}, 401), ({"authorization": "Bearer"}, 401), ({"authorization": "Bearer x"}, 401),
    ({"authorization": "Basic cGhvbmU6cGhvbmU="}, 401), ({"authorization": "Bearer constructor"}, 401),
    ({"transfer-encoding": "chunked", "content-length": "9"}, 400), ({"content-type": "text/plain"}, 415), ({"content-type": ""}, 415),
])  # fmt: skip
def test_the_gate(remote: Remote, headers: dict[str, str], status: int) -> None:
    answer = remote.rpc("tools/list", headers=headers)
    assert answer.status_code == status
    assert "zebra" not in answer.text or status == 200
    assert {name: answer.headers[name] for name in HEADERS} == HEADERS
    if status == 401:
        assert answer.headers["www-authenticate"].startswith('Bearer realm="crystal"')
        assert ("invalid_token" in answer.headers["www-authenticate"]) is headers["authorization"].startswith("Bearer ")


def test_without_a_token_no_address_and_no_method_tells_anything(told: Store) -> None:
    token_for("phone")
    stranger = Remote()
    for method in ("GET", "POST", "PUT", "DELETE", "OPTIONS", "HEAD"):
        for path in ("/", "/mcp", "/mcp/", "/nothing", "/access.json", "/search"):
            assert stranger.request(method, path).status_code == 401, (method, path)


def test_a_token_is_stored_as_a_hash_in_a_file_of_the_owner(home: Path) -> None:
    token = token_for("phone")
    path = default_paths().access
    assert token.startswith("crystal-access-")
    assert len(token) > 50
    assert token.encode() not in path.read_bytes()
    assert token[15:].encode() not in path.read_bytes()
    if os.name == "posix":
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_token_ends_when_it_is_revoked_and_when_it_expires(remote: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    soon = time.time_ns() // 1_000_000 + 60_000
    short = Remote(token_for("short", expires_at=soon))
    assert short.rpc("tools/list").status_code == 200
    assert crystal("access", "revoke", "phone").code == 0
    assert remote.rpc("tools/list").status_code == 401
    assert crystal("access", "revoke", "phone").code == 1
    monkeypatch.setattr(time, "time_ns", lambda: soon * 1_000_000)
    assert short.rpc("tools/list").status_code == 401


@each_row("path", ["/mcp", "/remember"])
def test_a_token_that_ends_while_its_request_arrives_changes_nothing(
    told: Store, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    said = {"text": "the shop is blue"}
    call = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "crystal_remember", "arguments": said},
    }
    body = json.dumps(call if path == "/mcp" else said).encode()
    soon, count = time.time_ns() // 1_000_000 + 60_000, told.value("SELECT count(*) FROM memories")
    ends = {"revoked": lambda: revoke_grant(default_paths().access, "revoked"),
            "expired": lambda: monkeypatch.setattr(time, "time_ns", lambda: soon * 1_000_000)}  # fmt: skip
    for label, end in ends.items():
        token = token_for(label, expires_at=soon)

        def slowly(end: Callable[[], object] = end) -> Iterator[bytes]:
            yield body[:9]
            end()
            yield body[9:]

        answer = Remote(token).post(path, content=slowly(), headers={"content-type": "application/json"})
        assert answer.status_code == 401
        assert "invalid_token" in answer.headers["www-authenticate"]
    assert told.value("SELECT count(*) FROM memories") == count


def test_a_damaged_list_lets_nobody_in(remote: Remote) -> None:
    path = default_paths().access
    for content in (b"{}", b"", b'[{"id": 1}]', b"\xff", b"[null]"):
        path.write_bytes(content)
        answer = remote.rpc("tools/list")
        assert answer.status_code == 503
        assert "crystal access list" in answer.json()["hint"]
        assert str(path.parent) not in answer.text
        assert str(path) in crystal("access", "list").err
    with pytest.raises(NotConfiguredError):
        read_grants(path)
    path.unlink()
    assert remote.rpc("tools/list").status_code == 401


def test_tokens_made_at_once_are_all_kept(home: Path) -> None:
    path = default_paths().access
    made = [threading.Thread(target=make_grant, args=(path, f"n{one}", ("read",), (), 1, None)) for one in range(12)]
    for thread in made:
        thread.start()
    for thread in made:
        thread.join()
    assert {one.label for one in read_grants(path)} == {f"n{one}" for one in range(12)}
    revoke_grant(path, "n3")
    assert len(read_grants(path)) == 11
    with pytest.raises(UsageError, match="taken"):
        make_grant(path, " n4 ", ("read",), (), 1, None)
    for label in ("", " ", "x" * 61, "a\x1b[0m"):
        with pytest.raises(UsageError, match="label"):
            make_grant(path, label, ("read",), (), 1, None)


def test_every_hash_is_compared(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time that a wrong token takes says nothing of the right ones: no comparison is left out."""
    tokens = [token_for(f"n{one}") for one in range(4)]
    compared: list[tuple[str, str]] = []
    monkeypatch.setattr(access.hmac, "compare_digest", lambda one, two: compared.append((one, two)) or one == two)
    door = TokenChecker(default_paths().access)
    for token in (*tokens, "x", tokens[0][:-1]):
        compared.clear()
        found = door.find(token, 0)
        assert (found is not None) is (token in tokens)
        assert len(compared) == len(tokens)
        assert {len(one) + len(two) for one, two in compared} == {128}


# --------------------------------------------------------------------------------------------------------------- rates


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_who_asks_too_often_has_to_wait(told: Store) -> None:
    clock = Clock()
    rates = Rates(Rate(40, 1, clock), Rate(3, 0.1, clock), Rate(10, 2, clock), Rate(60, 1, clock))
    token, other = token_for("phone"), token_for("laptop")
    phone, laptop = Remote(token, rates), Remote(other, rates)
    assert [phone.rpc("ping").status_code for _ in range(12)] == [200] * 10 + [429] * 2
    assert phone.rpc("ping").headers["retry-after"] == "1"
    assert laptop.rpc("ping").status_code == 200, "each token has its own"
    clock.now += 1
    assert [phone.rpc("ping").status_code for _ in range(3)] == [200, 200, 429]
    guesses = [phone.rpc("ping", headers={"authorization": f"Bearer {one}"}).status_code for one in range(5)]
    assert guesses == [401, 401, 401, 429, 429]
    clock.now += 5
    assert phone.rpc("ping").status_code == 200, "who has a token is not kept out by who guesses"
    asked = [laptop.rpc("ping").status_code for _ in range(40)]
    assert asked[-1] == 429, "of an address, all requests count"


def test_a_rate_remembers_a_bounded_number_of_names() -> None:
    rate = Rate(1, 1, Clock())
    for number in range(30_000):
        rate.count(str(number))
    assert len(rate._left) <= 10_000
    assert rate.wait("29999") == 1


# --------------------------------------------------------------------------------------------------- what a token allows


ARGUMENTS: dict[str, dict[str, object]] = {
    "crystal_search": {"query": "zebra"}, "crystal_get": {"id": "m999"}, "crystal_remember": {"text": "a zebra"},
    "crystal_forget": {"query": "okapi"}, "search_memory": {"query": "zebra"}, "memory_search": {"query": "zebra"},
    "search": {"query": "zebra"}, "fetch": {"id": "m999"},
    "save_memory": {"content": "a zebra"}, "crystal_sources_add": {"path": "x"}, "write_memory": {"content": "x"},
}  # fmt: skip
SCOPE_OF = {
    "read": "crystal_search crystal_get crystal_recent crystal_timeline crystal_status crystal_sources_status"
    " search_memory get_recent_conversations memory_search crystal_changed crystal_how crystal_fix crystal_about search fetch",
    "remember": "crystal_remember save_memory",
    "forget": "crystal_forget",
    "": "crystal_sources_add crystal_sources_sync read_memory write_memory crystal_blame",
}
"""What each scope allows; the last row is what only an agent on this machine has. A new tool needs a place here."""


def test_each_token_has_the_tools_of_its_scopes_and_no_others(told: Store) -> None:
    scope_of = {name: scope for scope, names in SCOPE_OF.items() for name in names.split()}
    every = (*TOOLS, *ALIASES, *CONNECTOR)
    assert set(scope_of) == {tool.name for tool in every}
    assert all(scope_of[tool.name] in (tool.scope, "") and tool.scope in SCOPES for tool in every)
    every_scopes = [some for size in range(1, len(SCOPES) + 1) for some in combinations(SCOPES, size)]
    for scopes, projects in (
        *((scopes, ()) for scopes in part_of(every_scopes, 3)),
        (SCOPES[:1], granted("shop")),
        (SCOPES, granted("shop")),
    ):
        client = Remote(token_for(f"{scopes} {len(projects)}", tuple(scopes), projects))
        listed = {tool["name"] for tool in client.ask("tools/list")["result"]["tools"]}
        assert listed == {name for name, scope in scope_of.items() if scope in scopes}
        for name, scope in scope_of.items():
            answer = client.rpc("tools/call", {"name": name, "arguments": ARGUMENTS.get(name, {})})
            if not scope:
                assert answer.json()["error"]["code"] == -32602, name
            elif scope in scopes:
                assert answer.json().get("result"), (name, answer.text)
            else:
                assert answer.status_code == 403, name
                assert f'error="insufficient_scope", scope="{scope}"' in answer.headers["www-authenticate"]
        resources = client.ask("resources/list")["result"]["resources"]
        assert bool(resources) is ("read" in scopes)
        read = client.rpc("resources/read", {"uri": "crystal://session/11111111-aaaa-4000-8000-000000000001"})
        assert read.status_code == (200 if "read" in scopes else 403)


def test_what_is_answered_is_fenced(remote: Remote) -> None:
    assert "zebra clock" in fence_of(remote.text("crystal_search", query="zebra clock"))


def test_the_preview_of_forgetting_stays_from_one_request_to_the_next(remote: Remote) -> None:
    preview = json.loads(remote.text("crystal_forget", query="zebra clock", response_format="json"))
    other = Remote(token_for("other"))
    assert "not the token of a preview" in other.text("crystal_forget", confirm=preview["token"])
    assert "forgotten: " in remote.text("crystal_forget", confirm=preview["token"])


def test_a_token_that_may_only_forget_reads_nothing_by_a_preview(told: Store) -> None:
    forgetter = Remote(token_for("forgetter", ("forget",)))
    shown = forgetter.text("crystal_forget", query="zebra clock", response_format="json")
    assert "zebra" not in shown
    assert json.loads(shown)["items_in_all"] > 0
    assert "forgotten: " in forgetter.text("crystal_forget", confirm=json.loads(shown)["token"])


# -------------------------------------------------------------------------------------------------------- the protocol


def test_greetings(remote: Remote) -> None:
    assert remote.greet()["protocolVersion"] == "2025-11-25"
    assert (
        remote.ask("initialize", {**INITIALIZE, "protocolVersion": "2025-03-26"})["result"]["protocolVersion"]
        == "2025-03-26"
    )
    assert remote.ask("ping") == {"jsonrpc": "2.0", "id": 1, "result": {}}
    found = remote.rpc("server/discover", {"_meta": ENVELOPE}, headers={**MODERN, "mcp-method": "server/discover"})
    assert found.json()["result"]["supportedVersions"] == ["2026-07-28"]
    note = remote.post("/mcp", json={"jsonrpc": "2.0", "method": "notifications/initialized"})
    assert (note.status_code, note.content) == (202, b"")
    for method in ("GET", "DELETE"):
        answer = remote.request(method, "/mcp")
        assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    assert remote.put("/mcp").status_code == 405


LIST: dict[str, Any] = {"_meta": ENVELOPE}
CALL: dict[str, Any] = {"_meta": ENVELOPE, "name": "crystal_status", "arguments": {}}
ZEBRA = "crystal://session/zébra"
READ: dict[str, Any] = {"_meta": ENVELOPE, "uri": ZEBRA}
CODED = f"=?base64?{base64.b64encode(ZEBRA.encode()).decode()}?="


@each_row(("method", "params", "headers", "status", "code"), [
    ("tools/list", None, {}, 200, None), ("tools/list", None, {"mcp-protocol-version": "2025-06-18"}, 200, None),
    ("tools/list", None, {"mcp-protocol-version": "1999-01-01"}, 400, -32022),
    ("tools/list", None, {"mcp-protocol-version": "2026-07-28"}, 400, -32602),
    ("tools/list", LIST, MODERN, 200, None), ("tools/list", LIST, {}, 400, -32020),
    ("tools/list", LIST, {**MODERN, "mcp-protocol-version": "2025-11-25"}, 400, -32020),
    ("tools/list", LIST, {**MODERN, "mcp-method": "tools/call"}, 400, -32020),
    ("tools/call", CALL, {**MODERN, "mcp-method": "tools/call", "mcp-name": "crystal_status"}, 200, None),
    ("tools/call", CALL, {**MODERN, "mcp-method": "tools/call", "mcp-name": "crystal_search"}, 400, -32020),
    ("tools/call", CALL, {**MODERN, "mcp-method": "tools/call"}, 400, -32020),
    ("resources/read", READ, {**MODERN, "mcp-method": "resources/read", "mcp-name": CODED}, 200, -32002),
    ("resources/read", READ, {**MODERN, "mcp-method": "resources/read", "mcp-name": CODED[:-3] + "?="}, 400, -32020),
    ("nothing", {"_meta": ENVELOPE}, {**MODERN, "mcp-method": "nothing"}, 404, -32601),
    ("nothing", None, {}, 200, -32601), ("prompts/list", None, {"mcp-protocol-version": "2025-11-25"}, 200, -32601),
    ("tools/call", {}, {}, 200, -32602),
])  # fmt: skip
def test_versions_and_headers(
    remote: Remote, method: str, params: object, headers: dict[str, str], status: int, code: int | None
) -> None:
    answer = remote.rpc(method, params, headers=headers)
    assert answer.status_code == status, answer.text
    assert answer.json().get("error", {}).get("code") == code


@each_row(("body", "status", "code"), [
    (b"", 400, -32700), (b"{", 400, -32700), (b"[]", 400, -32600), (b"\xff", 400, -32700), (b"[" * 100_000, 400, -32700),
    (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', 400, -32600), (b'{"id":1,"method":"ping"}', 400, -32600),
    (b'{"jsonrpc":"2.0","id":7,"result":{}}', 202, None), (b" " * (MAX_BODY + 1), 413, -32600),
])  # fmt: skip
def test_bodies_that_are_no_request(remote: Remote, body: bytes, status: int, code: int | None) -> None:
    answer = remote.post("/mcp", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == status
    assert code is None or answer.json()["error"]["code"] == code


# ------------------------------------------------------------------------------------------------------------ the place


PAIR = {"certificate": Path("c"), "key": Path("k")}


@each_row(("options", "names", "refused"), [
    ({}, {"127.0.0.1"}, None), ({"host": "::1"}, {"[::1]"}, None), ({"host": "localhost"}, {"localhost"}, None),
    ({"host": "192.168.1.5"}, None, "tokens could be read"), ({"host": "0.0.0.0"}, None, "tokens could be read"),
    ({"host": "box.lan"}, None, "tokens could be read"), ({"host": "127.evil"}, None, "tokens could be read"),
    ({"host": "Box.lan", **PAIR}, {"box.lan"}, None), ({"host": "0.0.0.0", **PAIR}, None, "has no name"),
    ({"host": "::", "url": "https://Box.lan:8443", **PAIR}, {"[::]", "box.lan"}, None),
    ({"certificate": Path("c")}, None, "go together"), ({"key": Path("k")}, None, "go together"),
    ({"behind_proxy": True}, None, "needs --url"), ({"behind_proxy": True, "url": "http://x"}, None, "--url is"),
    ({"behind_proxy": True, "url": "https://m.example", **PAIR}, None, "proxy does TLS"),
    ({"behind_proxy": True, "url": "https://m.example/", "host": "0.0.0.0"}, {"0.0.0.0", "m.example"}, None),
    ({"url": "https://"}, None, "--url is"), ({"url": "https://m.example/crystal"}, None, "--url is"),
    ({"url": "https://user@m.example"}, None, "--url is"), ({"url": "https://m.example"}, {"127.0.0.1", "m.example"}, None),
])  # fmt: skip
def test_where_it_may_listen(options: dict[str, Any], names: set[str] | None, refused: str | None) -> None:
    if refused is not None:
        with pytest.raises(UsageError, match=refused):
            ServerAddress(**options).checked()
    else:
        assert ServerAddress(**options).checked().names == names


@each_row(("words", "code", "says"), [
    (("mcp", "--host", "0.0.0.0"), 2, "add --http"), (("mcp", "--http", "--agent", "codex"), 2, "--agent"),
    (("mcp", "--http"), 3, "crystal access make"), (("mcp", "--http", "--port", "x"), 2, "--port"),
    (("mcp", "--http", "--host", "10.0.0.1"), 2, "--tls-cert"),
    (("mcp", "--http", "--tls-cert", "/nothing", "--tls-key", "/nothing"), 2, "cannot be used"),
    (("access", "make", "--label", "x", "--scope", "write"), 2, "read, remember, forget"),
    (("access", "make", "--label", "x", "--project", "none"), 1, "crystal projects"),
    (("access", "make", "--label", "x", "--expires", "2020-01-01"), 2, "in the past"),
    (("access", "make", "--label", "x", "--expires", "soon"), 2, "--expires"),
    (("access", "log", "-n", "0"), 2, "1 or more"), (("access", "list"), 0, "nobody may ask"),
])  # fmt: skip
def test_the_commands_refuse_what_cannot_be(told: Store, words: tuple[str, ...], code: int, says: str) -> None:
    done = crystal(*words)
    assert done.code == code, done
    assert says in done.out + done.err


def test_a_name_of_several_projects_gives_access_to_none(told: Store) -> None:
    add_turn(told, "the quokka", session="0d1c2b3a-5b1f-4c55-9e5f-8c2e6d0a4f50", project="/clients/acme/shop")
    done = crystal("access", "make", "--label", "phone", "--project", "shop")
    assert (done.code, "2 projects are called 'shop'" in done.err, "/clients/acme/shop" in done.err) == (2, True, True)
    assert crystal("access", "make", "--label", "phone", "--project", "/clients/acme/shop").code == 0
    assert [one.folders for one in read_grants(default_paths().access)[0].projects] == [("/clients/acme/shop",)]


def test_make_and_list(told: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    made = crystal(
        "access", "make", "--label", "phone", "--scope", "remember,read", "--project", "SHOP", "--expires", "2d"
    )
    assert made.out.startswith("crystal-access-")
    assert made.out.strip() not in made.err
    assert "phone may read, remember in shop (/code/shop) alone; until 2026-" in made.err
    row = json.loads(crystal("access", "list", "--json").out)["access"][0]
    assert (row["label"], row["scopes"], row["projects"]) == ("phone", ["read", "remember"], ["shop"])
    assert row["expires_at"] - row["made_at"] == 2 * 86_400_000
    assert made.out.strip() not in crystal("access", "list", "--json").out
    assert crystal("access", "make", "--label", "ever", "--expires", "never", "--json").code == 0
    token_for("old", expires_at=1)
    shown = crystal("access", "list").out
    assert "never expires" in shown
    assert "old: read, remember, forget everywhere; EXPIRED" in shown
