"""The memory that the tools of the MCP server are asked about, and reading their answers."""

from __future__ import annotations

import re
from typing import Any

from tests.support.mcp_client import Tools

SHOP = "11111111-aaaa-4000-8000-000000000001"
API = "22222222-bbbb-4000-8000-000000000002"
MINE = "33333333-cccc-4000-8000-000000000003"


def hits(tools: Tools, **asked: object) -> list[dict[str, Any]]:
    return list(tools.data("crystal_search", **asked)["hits"])


FENCE = re.compile(r"<crystal-memory-([a-z0-9]{6})>\n(.*)\n</crystal-memory-\1>(?:\n[^\n<]+)*", re.DOTALL)


def fence_of(text: str) -> str:
    """What stands in the one fence of an answer."""
    match = FENCE.fullmatch(text)
    assert match, text
    assert "crystal-memory" not in match[2], "nothing inside looks like a tag"
    return match[2]


def outside(text: str) -> str:
    """What an answer says outside of its fence."""
    return text.replace(fence_of(text), "").replace("crystal-memory", "tag", 2)
