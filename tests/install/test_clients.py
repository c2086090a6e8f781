"""Clients' files: what crystal puts in comes out again, whatever else stands there, and nothing else is touched."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from crystal.install.clients.entry_text import document_of, with_server, without_server
from crystal.install.clients.known import Client
from tests.support.client_entries import ENTRY, OLDER
from tests.support.examples import examples

# --- JSON of every kind


SPACES = st.text(" \t\n\r", max_size=2)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
SERVERS = st.dictionaries(
    st.text(max_size=4).filter(lambda name: name != "crystal"),
    st.fixed_dictionaries({"command": st.text(max_size=4)}, optional={"args": st.lists(st.text(max_size=3))}),
    max_size=3,
)
OTHERS = st.dictionaries(
    st.text(max_size=3).filter(lambda key: key != "mcpServers"), SCALARS | st.lists(SCALARS), max_size=3
)


@st.composite
def documents(draw: st.DrawFn, *, comments: bool = False) -> str:
    """A document in some consistent or wild formatting."""
    between: dict[str, Any] = {"mcpServers": draw(SERVERS)} if draw(st.booleans()) else {}
    value = {**draw(OTHERS), **between, **draw(OTHERS)}
    style = "wild" if comments else draw(st.sampled_from(["indent", "compact", "minified", "wild"]))
    if style == "wild":
        gaps = SPACES | st.sampled_from([" // a comment, {\n", '/* {\n"crystal": 1 } */']) if comments else SPACES
        return draw(gaps) + written_wildly(draw, value, gaps) + draw(gaps)
    indent = draw(st.sampled_from(["  ", "    ", "\t", "", " "])) if style == "indent" else None
    text = json.dumps(value, indent=indent, separators=(",", ":") if style == "minified" else None)
    return text.replace("\n", draw(st.sampled_from(["\n", "\r\n"]))) + draw(st.sampled_from(["", "\n", "\r\n"]))


def written_wildly(draw: st.DrawFn, value: Any, gaps: st.SearchStrategy[str]) -> str:
    if isinstance(value, dict):
        parts = [
            f"{draw(gaps)}{json.dumps(key)}{draw(gaps)}:{draw(gaps)}{written_wildly(draw, item, gaps)}{draw(gaps)}"
            for key, item in value.items()
        ]
        return "{" + (",".join(parts) or draw(gaps)) + "}"
    if isinstance(value, list):
        parts = [f"{draw(gaps)}{written_wildly(draw, item, gaps)}{draw(gaps)}" for item in value]
        return "[" + (",".join(parts) or draw(gaps)) + "]"
    return json.dumps(value)


def client_of(*, comments: bool) -> Client:
    return Client("x", "X", Path("x.json"), Path(), "jsonc" if comments else "json")


def check_json(text: str, *, comments: bool) -> None:
    old = document_of(client_of(comments=comments), text)
    after = with_server(client_of(comments=comments), text, ENTRY)
    new = document_of(client_of(comments=comments), after)
    assert new == {**old, "mcpServers": {**old.get("mcpServers", {}), "crystal": ENTRY.as_document()}}
    assert list(new) == [*old, *(["mcpServers"] if "mcpServers" not in old else [])], "the order of keys"
    assert with_server(client_of(comments=comments), after, ENTRY) == after
    group_too = "mcpServers" not in old
    assert without_server(client_of(comments=comments), after, group_too=group_too) == text
    older = with_server(client_of(comments=comments), text, OLDER)
    brought_up = with_server(client_of(comments=comments), older, ENTRY)
    assert document_of(client_of(comments=comments), brought_up) == new
    assert without_server(client_of(comments=comments), brought_up, group_too=group_too) == text


@pytest.mark.slow
@examples(60)
@given(documents())
@example("{}")
@example("{\n}")
@example('{"mcpServers":{}}')
@example('{\r\n  "mcpServers": {\r\n  }\r\n}')
def test_json_any_document_is_kept_twice_is_once_and_out_is_as_before(text: str) -> None:
    check_json(text, comments=False)


@pytest.mark.slow
@examples(40)
@given(documents(comments=True))
@example("{ // mine\n}")
@example('{"a": "// no comment", /* one */ "mcpServers": {"x": {"command": "y"} // last\n}}')
def test_json_comments_are_kept_too(text: str) -> None:
    check_json(text, comments=True)


@pytest.mark.slow
@examples(40)
@given(documents(), st.booleans())
def test_json_what_was_added_around_ours_stays(text: str, first: bool) -> None:
    document = document_of(client_of(comments=False), with_server(client_of(comments=False), text, ENTRY))
    ours = document["mcpServers"].pop("crystal") | {"timeout": 5}
    other = {"another": {"command": "x"}}
    pairs = {**other, "crystal": ours} if first else {"crystal": ours, **other}
    document["mcpServers"] = {**document["mcpServers"], **pairs}
    left = without_server(client_of(comments=False), json.dumps(document, indent=2), group_too=True)
    del document["mcpServers"]["crystal"]
    assert json.loads(left) == document


def test_json_comments_beside_ours_stay_when_it_goes() -> None:
    text = '{\n  "mcpServers": {\n    "x": {}, // of x\n    "crystal": {"command": "/c/crystal", "args": ["mcp"]} // of ours\n  } // end\n}\n'
    left = without_server(client_of(comments=True), text, group_too=True)
    assert document_of(client_of(comments=True), left) == {"mcpServers": {"x": {}}}
    assert [word in left for word in ("// of x", "// of ours", "// end")] == [True] * 3
    text = '{"mcpServers": {"crystal": {"command": "/c/crystal", "args": ["mcp"]}, // ours\n "x": {} /* x */ }}'
    left = without_server(client_of(comments=True), text, group_too=True)
    assert document_of(client_of(comments=True), left) == {"mcpServers": {"x": {}}}
    assert "// ours\n" in left
    text = '{"mcpServers": { // first\n "crystal": {"command": "/c/crystal", "args": ["mcp"]} // last\n }}'
    left = without_server(client_of(comments=True), text, group_too=False)
    assert document_of(client_of(comments=True), left) == {"mcpServers": {}}
