"""Lines of transcripts, and the turns in them."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

from crystal.model.capture import Turn
from crystal.transcript.claude_code.reader import READER

WHEN = "2026-11-20T23:51:53.936Z"


def line_of(kind: str, content: object, **fields: object) -> dict[str, Any]:
    line = {"type": kind, "uuid": "u1", "parentUuid": "u0", "timestamp": WHEN, "cwd": "/w", "gitBranch": "main"}
    return {**line, "message": {"role": kind, "content": content}, **fields}


def turns(*lines: object, subagent: bool = False) -> list[Turn]:
    raw = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines]
    return list(READER.turns(enumerate(raw), "session", subagent=subagent))


def said(*lines: object, subagent: bool = False) -> list[tuple[str, str]]:
    return [(turn.role, turn.text) for turn in turns(*lines, subagent=subagent)]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)
