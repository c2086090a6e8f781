"""The MCP server as a process and on the wire: greetings, hostile lines, ends, locks. The tools are in test_mcp_tools."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from crystal.mcp import stdio
from crystal.mcp.protocol import LEGACY, MODERN
from tests.support.examples import examples
from tests.support.mcp_client import ENVELOPE, INITIALIZE, Talk, crystal_spec, served
from tests.support.table import each_row

# -------------------------------------------------------------------------------------------------------- greetings


def assert_official(method: str, version: str, result: dict[str, Any]) -> None:
    """Check a result by the official types, whose import takes a worker without these tests half a second."""
    importlib.import_module("mcp_types.methods").validate_server_result(method, version, result)


def test_the_versions_are_those_of_the_official_types() -> None:
    version = importlib.import_module("mcp_types.version")
    assert version.HANDSHAKE_PROTOCOL_VERSIONS == LEGACY
    assert version.MODERN_PROTOCOL_VERSIONS == MODERN


@each_row("wanted", [*LEGACY, "2026-07-28", "2031-01-01", "1.0", "", "2024-11-05 "])
def test_a_version_is_agreed_on(talk: Talk, wanted: str) -> None:
    result = talk.ask("initialize", {**INITIALIZE, "protocolVersion": wanted})["result"]
    assert result["protocolVersion"] == (wanted if wanted in LEGACY else LEGACY[-1])
    assert_official("initialize", result["protocolVersion"], result)
    for method in ("tools/list", "resources/list", "resources/templates/list"):
        assert_official(method, result["protocolVersion"], talk.ask(method)["result"])


def test_the_newest_client_probes_and_then_greets(talk: Talk) -> None:
    probe = talk.ask("server/discover", {"_meta": ENVELOPE}, "server-discover-probe-1")
    assert_official("server/discover", "2026-07-28", probe["result"])
    assert talk.ask("server/discover", None, "bare")["error"]["code"] == -32601
    assert talk.ask("no/such", {"_meta": ENVELOPE}, "x")["error"]["code"] == -32601
    assert talk.greet()["protocolVersion"] == "2025-11-25"


def test_the_version_without_greetings_is_spoken(talk: Talk) -> None:
    for method in ("tools/list", "resources/list", "resources/templates/list"):
        result = talk.ask(method, {"_meta": ENVELOPE})["result"]
        assert_official(method, "2026-07-28", result)
        assert result["resultType"] == "complete"
    called = talk.ask("tools/call", {"_meta": ENVELOPE, "name": "crystal_status", "arguments": {}})["result"]
    assert_official("tools/call", "2026-07-28", called)
    other = {**ENVELOPE, "io.modelcontextprotocol/protocolVersion": "2030-01-01"}
    refused = talk.ask("tools/list", {"_meta": other})["error"]
    assert (refused["code"], refused["data"]) == (-32022, {"supported": list(MODERN), "requested": "2030-01-01"})
    half = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}
    assert talk.ask("tools/list", {"_meta": half})["error"]["code"] == -32602


def test_a_ping_needs_no_greeting(talk: Talk) -> None:
    assert talk.ask("ping") == {"jsonrpc": "2.0", "id": 1, "result": {}}


@each_row("method", ["prompts/list", "logging/setLevel", "completion/complete", "tasks/get", "", "x" * 9999])
def test_what_is_not_served_is_refused(talk: Talk, method: str) -> None:
    assert talk.ask(method, {})["error"]["code"] == -32601


@each_row(
    ("method", "params"),
    [
        ("tools/call", {}),
        ("tools/call", {"name": 3}),
        ("tools/call", {"name": "crystal_status", "arguments": []}),
        ("tools/call", {"name": "no_such_tool"}),
        ("resources/read", {}),
        ("resources/read", {"uri": 3}),
        ("tools/list", {"cursor": 3}),
        ("tools/list", {"cursor": "of another server"}),
        ("resources/list", {"cursor": "2"}),
        ("resources/templates/list", {"cursor": "2"}),
        ("initialize", {"protocolVersion": 3}),
        ("initialize", {}),
    ],
)
def test_params_that_do_not_fit_are_refused(talk: Talk, method: str, params: object) -> None:
    assert talk.ask(method, params)["error"]["code"] == -32602
    assert talk.ask("ping")["result"] == {}


# ----------------------------------------------------------------------------------------------------- hostile lines

LINES: list[tuple[bytes, int | None]] = [
    (b"{", -32700),
    (b"nonsense", -32700),
    (b"\xff\xfe\x00", -32700),
    (b'{"jsonrpc": "2.0", "id": NaN, "method": "ping"}', -32700),
    (b"[" * 100_000, -32700),
    (b'{"a":' * 50_000, -32700),
    (b"1" * 5_000, -32700),
    (b"[]", -32600),
    (b"[1, 2]", -32600),
    (b'[{"jsonrpc": "2.0", "id": 1, "method": "ping"}]', -32600),
    (b"3", -32600),
    (b"null", -32600),
    (b'"text"', -32600),
    (b'{"id": 7, "method": "ping"}', -32600),
    (b'{"jsonrpc": "1.0", "id": 7, "method": "ping"}', -32600),
    (b'{"jsonrpc": "2.0", "id": 7}', -32600),
    (b'{"jsonrpc": "2.0", "id": 7, "method": 4}', -32600),
    (b'{"jsonrpc": "2.0", "id": null, "method": "ping"}', -32600),
    (b'{"jsonrpc": "2.0", "id": true, "method": "ping"}', -32600),
    (b'{"jsonrpc": "2.0", "id": 1.5, "method": "ping"}', -32600),
    (b'{"jsonrpc": "2.0", "id": {}, "method": "ping"}', -32600),
    (b'{"jsonrpc": "2.0", "id": 7, "method": "ping", "params": 3}', -32602),
    (b'{"jsonrpc": "2.0", "id": 7, "method": "ping", "params": []}', -32602),
    (b'{"jsonrpc": "2.0", "id": "\\ud800", "method": "no"}', -32601),
    (b"", None),
    (b"   \r", None),
    (b'{"jsonrpc": "2.0", "method": "notifications/nobody/knows", "params": {"a": 1}}', None),
    (b'{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": [1]}}', None),
    (b'{"jsonrpc": "2.0", "method": "notifications/initialized", "params": []}', None),
    (b'{"jsonrpc": "2.0", "id": 99, "result": {}}', None),
    (b'{"jsonrpc": "2.0", "id": 99, "error": {"code": 1, "message": "x"}}', None),
]


@each_row(("line", "code"), LINES)
def test_a_line_that_is_no_request_costs_an_error_at_most(talk: Talk, line: bytes, code: int | None) -> None:
    talk.others.clear()
    talk.send(line + b"\n")
    assert talk.ask("ping", ident="after")["result"] == {}
    assert [message["error"]["code"] for message in talk.others] == ([] if code is None else [code])


def test_a_huge_line_is_left_out_and_a_large_one_read(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdio, "MAX_BYTES", 300_000)
    talk.send(b" " * 200_000 + b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n')
    assert talk.read()["result"] == {}
    talk.send(b'{"jsonrpc": "2.0", "id": 2, "method": "ping", "params": {"a": "' + b"a" * 400_000 + b'"}}\n')
    assert talk.read()["error"]["code"] == -32700
    assert talk.ask("ping")["result"] == {}


def test_batches_are_refused_in_the_one_version_that_had_them(talk: Talk) -> None:
    talk.ask("initialize", {**INITIALIZE, "protocolVersion": "2025-03-26"}, "hello")
    talk.send(json.dumps([{"jsonrpc": "2.0", "id": 11, "method": "ping"}]).encode() + b"\n")
    assert talk.read()["error"]["code"] == -32600
    assert talk.ask("ping")["result"] == {}


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
_METHODS = "ping tools/list tools/call resources/read initialize server/discover notifications/cancelled".split()
_message = st.fixed_dictionaries(
    {"jsonrpc": st.just("2.0") | _json, "method": st.sampled_from(_METHODS) | st.text(max_size=10)},
    optional={"id": st.integers() | st.text(max_size=5) | _json, "params": _json},
)


@pytest.mark.slow
@examples(40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(_message.map(lambda one: json.dumps(one).encode()) | st.binary(max_size=60), max_size=6))
def test_whatever_comes_every_answer_is_a_message_and_the_server_lives(home: Path, lines: list[bytes]) -> None:
    with served(crystal_spec()) as talk:
        for line in lines:
            talk.send(line + b"\n")
        assert talk.ask("ping", ident="the-end-of-it")["result"] == {}
        for message in talk.others:
            assert message["jsonrpc"] == "2.0"
            assert ("result" in message) != ("error" in message)
