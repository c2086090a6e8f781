"""Measure what an agent receives over MCP beside the recalled text itself.

    python benchmarks/mcp_size.py

A memory of 240 turns of ordinary length (200 to 800 characters) in 12 sessions, and 12 memories, is made in a temporary
folder; each tool is called as an agent calls it. The text itself are the words that were recalled; what is counted is
everything in the result that a client passes on. The exit code is 1 when an answer is more than 1.3 times its text.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the memory is made as the tests make theirs

from tests.support.mcp_client import Tools
from tests.support.store_factory import HOUR, NOW, add_turn, open_store

TARGET = 1.3
WORDS = (
    "the checkout retries a payment webhook when postgres is slow so we keep each event id unique and answer quickly"
    " migrations run before deploys and a rollback needs the previous image tests fail with connection refused"
).split()
CALLS: list[tuple[str, dict[str, object]]] = [
    ("crystal_search", {"query": "payment webhook", "limit": 5}),
    ("crystal_search", {"query": "postgres migrations"}),
    ("crystal_search", {"query": "deploys rollback", "source": "memory"}),
    ("crystal_get", {"id": "100"}),
    ("crystal_get", {"id": "s0000003"}),
    ("crystal_recent", {"all": True}),
    ("crystal_recent", {"what": "sessions", "all": True}),
    ("crystal_timeline", {"since": "30d"}),
]


def main() -> int:
    argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0]).parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.environ.update({"HOME": folder, "LDM_HOME": f"{folder}/.ldm"})
        make_memory(Path(folder) / ".ldm/memory")
        ratios = list(measure())
    for name, arguments, received, itself in ratios:
        print(f"{received / itself:.2f}  {name} {json.dumps(arguments)}: {received:,} for {itself:,} characters")
    worst = max(received / itself for *_, received, itself in ratios)
    print(f"the target of {TARGET} was {'kept' if worst <= TARGET else 'missed'}: {worst:.2f} at most")
    return 0 if worst <= TARGET else 1


def make_memory(folder: Path) -> None:
    """Fill a memory with text of ordinary length."""
    chance = random.Random(1)
    folder.mkdir(parents=True)
    with open_store(folder) as store:
        for number in range(240):
            session, project = (
                f"s{number // 20:07}-2222-4000-8000-000000000001",
                f"/code/{'shop' if number < 160 else 'api'}",
            )
            role = ("user", "assistant", "assistant", "tool_result")[number % 4]
            tool = "Bash" if role == "tool_result" else None
            when = NOW - 300 * HOUR + number * HOUR
            add_turn(store, prose(chance, 200, 800), session=session, ts=when, role=role, tool=tool, project=project)
    for number in range(12):
        Tools().data("crystal_remember", text=prose(chance, 200, 400), key=f"k{number}")


def prose(chance: random.Random, least: int, most: int) -> str:
    """Sentences of some length."""
    size, text = chance.randint(least, most), ""
    while len(text) < size:
        text += chance.choice(WORDS) + " "
    return text[:size].strip()


def measure() -> Iterator[tuple[str, dict[str, object], int, int]]:
    """Call each tool; what it sent, and how much of that is recalled text."""
    tools = Tools()
    for name, arguments in CALLS:
        result = tools.call(name, **arguments)
        received = sum(map(len, strings_of({**result, "isError": None})))
        yield name, arguments, received - len("text"), sum(map(len, recalled(tools.data(name, **arguments))))


def strings_of(value: Any) -> Iterator[str]:
    """Every string of a result."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, dict)):
        for one in value.values() if isinstance(value, dict) else value:
            yield from strings_of(one)


def recalled(data: Any) -> Iterator[str]:
    """The texts and titles of an answer."""
    if isinstance(data, list):
        for one in data:
            yield from recalled(one)
    elif isinstance(data, dict):
        for name, one in data.items():
            if name in ("text", "title"):
                yield one
            elif name != "session" or "text" not in data:
                yield from recalled(one)


if __name__ == "__main__":
    sys.exit(main())
