"""The tools of the MCP server as a client sees them: names, schemas, what an alias may reach."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal.errors import UsageError
from crystal.mcp import scopes
from crystal.mcp.arguments import checked
from crystal.mcp.catalog import ALIASES, TOOLS
from crystal.mcp.handlers import ClientContext
from crystal.mcp.protocol import McpError
from crystal.store import Store
from tests.support.mcp_client import Tools

CHECKED_KEYWORDS = frozenset(
    "type enum minLength maxLength minimum maximum items minItems maxItems anyOf default description title".split()
)
"""Keywords of JSON Schema that ``crystal.mcp.arguments`` checks, or that only describe."""


def test_every_tool_says_all_of_itself() -> None:
    for tool in (*TOOLS, *ALIASES):
        told = tool.definition
        hints = told["annotations"]
        assert {"title", "readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"} == set(hints)
        assert (hints["readOnlyHint"], hints["destructiveHint"]) != (True, True)
        jsonschema.Draft202012Validator.check_schema(told["inputSchema"])
        assert told["inputSchema"]["type"] == "object"
        assert told["inputSchema"]["additionalProperties"] is False
        assert len(told["description"]) > 40
        places = [name for name in told["inputSchema"]["properties"] if "path" in name or "folder" in name]
        # It takes folders inside of the agent's own alone: tests/sources/test_sources_command.py
        assert places == (["path"] if tool.name == "crystal_sources_add" else [])
        for name, rule in told["inputSchema"]["properties"].items():
            assert set(rule) <= CHECKED_KEYWORDS, name
            assert rule.get("type") != "string" or "maxLength" in rule or "enum" in rule, (
                f"{tool.name} {name}: no limit"
            )


def test_the_names_that_users_know() -> None:
    assert {tool.name for tool in TOOLS} == {
        "crystal_search", "crystal_remember", "crystal_forget", "crystal_status", "crystal_get", "crystal_recent",
        "crystal_timeline", "crystal_blame", "crystal_changed", "crystal_how", "crystal_fix", "crystal_about", "crystal_sources_add", "crystal_sources_sync", "crystal_sources_status",
    }  # fmt: skip
    assert {tool.name: set(tool.properties) for tool in ALIASES} == {
        "search_memory": {"query", "limit"},
        "get_recent_conversations": {"n"},
        "save_memory": {"content", "source"},
        "memory_search": {"query", "maxResults", "minScore"},
        "read_memory": {"scope"},
        "write_memory": {"content", "scope"},
    }


def test_the_scope_of_memories_is_this_project_unless_the_settings_allow_more(
    told: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert told
    tools = Tools(ClientContext(folder="/code/shop", agent="codex"))
    tools.data("crystal_remember", text="zebras hold everywhere")
    assert tools.data("write_memory", content="okapis ship")["project"] == "shop"
    assert [one["text"] for one in tools.data("read_memory")["memories"]] == ["okapis ship"]
    for name, more in (("read_memory", {}), ("write_memory", {"content": "quaggas"})):
        assert tools.call(name, scope="global", **more)["isError"]
    monkeypatch.setenv("CRYSTAL_MCP_GLOBAL_SCOPE", "claude-*:cod*")
    assert tools.data("write_memory", content="quaggas", scope="global")["project"] is None
    everywhere = {one["text"] for one in tools.data("read_memory", scope="global")["memories"]}  # of one moment
    assert everywhere == {"quaggas", "zebras hold everywhere"}
    tools.data("write_memory", content="the newest is of the project")
    monkeypatch.setattr(scopes, "MAX_READ", 2)
    assert {one["text"] for one in tools.data("read_memory", scope="global")["memories"]} == everywhere
    for agent, folder in (("gemini-cli", "/code/shop"), (None, "/code/shop")):
        other = Tools(ClientContext(folder=folder, agent=agent))
        assert other.call("read_memory", scope="global")["isError"]
    assert Tools(ClientContext(agent="codex")).call("read_memory")["isError"], "no folder"


def test_aliases_are_there_when_the_setting_says_so() -> None:
    assert len(Tools(aliases=False).listed) == len(TOOLS)
    with pytest.raises(McpError):
        Tools(aliases=False).call("memory_search", query="x")
    assert len(Tools().listed) == len(TOOLS) + len(ALIASES)


_value = st.none() | st.booleans() | st.integers(-5, 2_000) | st.floats(allow_nan=False) | st.text(max_size=5)
_anything = _value | st.sampled_from(["json", "7d", "messages", "fact", "off"]) | st.lists(_value, max_size=2)


@pytest.mark.slow
@given(st.sampled_from([*TOOLS, *ALIASES]), st.data())
def test_arguments_are_judged_as_json_schema_judges_them(tool: Any, data: st.DataObject) -> None:
    names = st.sampled_from([*tool.properties, "other"])
    given_ = data.draw(st.dictionaries(names, _anything, max_size=4))
    without_null = {name: value for name, value in given_.items() if value is not None}
    is_valid = jsonschema.Draft202012Validator(tool.input).is_valid(without_null)
    try:
        assert checked(tool.input, given_) == without_null
    except UsageError:
        assert not is_valid
    else:
        assert is_valid
