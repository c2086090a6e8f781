"""Every question to the tools that read, and the answers, so that two memories can be compared."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from typing import Any

from crystal.errors import CrystalError
from crystal.mcp.protocol import McpError
from crystal.store import Store
from tests.support.mcp_client import Tools
from tests.support.mcp_memory import SHOP
from tests.support.store_factory import DAY, NOW, add_turn

NONCE = re.compile(r"(?<=memory-)[a-z0-9]{6}|(?<=\n\[)[a-z0-9]{6}")
ELSEWHERE = "99999999-eeee-4000-8000-000000000009"
LOST = "77777777-eeee-4000-8000-000000000007"
WORDS = [f"{one}{two}" for one in ("alba", "bero", "cali", "domo", "eska") for two in ("tross", "nik", "pern")]


def queries(rng: random.Random) -> Iterator[tuple[str, dict[str, object]]]:
    """Every tool that reads, with words, names and ids of what is seen and of what is not."""
    for _ in range(10):
        query = " ".join(rng.sample(WORDS, rng.randint(1, 3)))
        query = rng.choice([query, query[:-2], f'"{query}"'])
        yield "crystal_search", {"query": query, "limit": rng.randint(1, 6), "around": True}
        yield "memory_search", {"query": query}
        yield "search_memory", {"query": query}
        yield "search", {"query": query}
    for name, value in (("project", "attic"), ("session", ELSEWHERE[:6]), ("agent", "codex"), ("branch", "dusk"),
                        ("source", "memory"), ("source", "papers"), ("device", "far")):  # fmt: skip
        yield "crystal_search", {"query": WORDS[0], name: value}
    for ident in (ELSEWHERE, LOST, ELSEWHERE[:5], SHOP, "17", "40", "mem-"):
        yield "crystal_get", {"id": ident}
        yield "fetch", {"id": ident}
        yield "crystal_forget", {"id": ident}
    yield "crystal_get", {"key": "nest"}
    yield "crystal_forget", {"key": "nest"}
    yield "crystal_forget", {"query": WORDS[3]}
    for what in ("messages", "sessions"):
        for more in ({}, {"all": True}, {"project": "attic"}, {"agent": "codex"}, {"offset": 2}):
            yield "crystal_recent", {"what": what, **more}
    yield "get_recent_conversations", {}
    yield "crystal_timeline", {"since": "30d"}
    yield "crystal_timeline", {"since": "30d", "project": "attic"}
    yield "crystal_changed", {"since": "30d"}
    yield "crystal_how", {"question": "quokka", "all": True}
    yield "crystal_about", {"thing": "quokka"}
    yield "crystal_fix", {"error": "TypeError: cannot add quokka to int"}
    yield "crystal_changed", {"session": ELSEWHERE[:6]}
    yield "crystal_status", {}
    yield "crystal_sources_status", {}


def answers(tools: Tools, seed: int) -> Iterator[str]:
    """Yield each question with its answer."""
    for name, arguments in queries(random.Random(seed)):
        try:
            answer = tools.data(name, **arguments)
        except (CrystalError, McpError) as error:
            answer = {"error": str(error)}
        answer.pop("token", None)  # of what is found, in the order of its rows
        if "text" in answer:
            answer["text"] = NONCE.sub("", str(answer["text"]))
        yield json.dumps([name, arguments, answer])
    yield json.dumps(tools.methods["resources/list"]({}))


def are_those(before: list[str], tools: Tools, seed: int) -> bool:
    """Tell whether all answers are those of before: it asks no further than to the first other one."""
    return all(one == other for one, other in zip(answers(tools, seed), before, strict=True))


def say(store: Store, rng: random.Random, count: int, **more: Any) -> None:
    for number in range(count):
        words = " ".join(rng.choices(WORDS, k=rng.randint(2, 9)))
        add_turn(store, words, ts=NOW - rng.randint(1, 9 * DAY), role=("user", "assistant")[number % 2], **more)
