"""Measure what an agent receives over MCP beside the recalled text itself.

    python benchmarks/mcp_size.py [--memory FOLDER [--code FOLDER]]

A memory of 240 turns of ordinary length (200 to 800 characters) in 12 sessions, and 12 memories, is made in a temporary
folder; each tool is called as an agent calls it. The text itself are the words that were recalled; what is counted is
everything in the result that a client passes on. The exit code is 1 when an answer is more than 1.3 times its text.
With ``--memory`` an existing memory is asked instead, with words that its users said, and the median and the largest of
each tool are told; ``--code`` is a checkout of what was worked on there, for the tools that read files.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the memory is made as the tests make theirs

from crystal.mcp.offer import ClientContext
from tests.support.mcp_client import Tools
from tests.support.store_factory import HOUR, NOW, add_turn, open_store

TARGET = 1.3
TEXTS = ("text", "title", "command", "about", "request", "reason", "error", "steps")
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
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--memory", type=Path, help="the folder of crystal.db")
    parser.add_argument("--code", default="/", help="the folder of the agent that asks")
    given = parser.parse_args()
    if given.memory:
        os.environ["CRYSTAL_DATA_DIR"] = str(given.memory)
        return tell_tools(list(measure(Tools(ClientContext(folder=given.code)), asked_of(Tools(), given.code))))
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.environ.update({"HOME": folder, "LDM_HOME": f"{folder}/.ldm"})
        make_memory(Path(folder) / ".ldm/memory")
        ratios = list(measure(Tools(), CALLS))
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


def asked_of(tools: Tools, code: str) -> Iterator[tuple[str, dict[str, object]]]:
    """Ask a memory whose content is unknown: 20 searches, and each other tool."""
    said = tools.data("crystal_recent", all=True, limit=100)["items"]
    words = [one["text"].split()[:6] for one in said]
    for number, found in enumerate(words[:: max(1, len(words) // 20)][:20]):
        query = " ".join(found)
        yield "crystal_search", {"query": query, "limit": (3, 5, 10)[number % 3]}
        yield "crystal_get", {"id": tools.data("crystal_search", query=query, limit=1)["hits"][0]["id"]}
        yield "crystal_search", {"query": query, "role": ("user", "tool_call", "tool_result")[number % 3], "limit": 5}
    for session in tools.data("crystal_recent", what="sessions", all=True, limit=5)["items"]:
        yield "crystal_get", {"id": session["id"]}
        yield "crystal_changed", {"session": session["id"]}
    yield "crystal_recent", {"all": True}
    yield "crystal_recent", {"what": "sessions", "all": True}
    yield "crystal_timeline", {"since": "1500d"}
    yield "crystal_changed", {"since": "1500d"}
    for question in ("run the tests", "lint", "build", "commit", "format"):
        yield "crystal_how", {"question": question, "all": True}
    projects = {one["project"] for one in said if one["project"]}
    for project in sorted(projects):
        for error in ("exit status 1", "FAIL", "undefined: ", "golangci-lint issues"):
            yield "crystal_fix", {"error": error, "project": project}
        for file in sorted(
            {one["file"] for one in tools.data("crystal_changed", since="1500d", project=project)["files"]}
        ):
            inside = file.partition(f"/{project}/")[2] or file
            if (Path(code) / inside).is_file():
                yield "crystal_blame", {"file": inside, "project": project}


def tell_tools(ratios: list[tuple[str, dict[str, object], int, int]]) -> int:
    """Print the median and the largest ratio of each tool, and the calls that missed the target."""
    tools = dict[str, list[float]]()
    for name, arguments, received, itself in ratios:
        tools.setdefault(name, []).append(received / itself)
        if received / itself > TARGET:
            print(f"{received / itself:.2f}  {name} {json.dumps(arguments)}: {received:,} for {itself:,} characters")
    for name, of_tool in tools.items():
        print(f"{name}: {statistics.median(of_tool):.2f}, at most {max(of_tool):.2f} in {len(of_tool)} answers")
    return 0 if max(map(max, tools.values())) <= TARGET else 1


def measure(
    tools: Tools, calls: Iterable[tuple[str, dict[str, object]]]
) -> Iterator[tuple[str, dict[str, object], int, int]]:
    """Call each tool; what it sent, and how much of that is recalled text."""
    for name, arguments in calls:
        result = tools.call(name, **arguments)
        texts = () if result["isError"] else dict.fromkeys(recalled(tools.data(name, **arguments)))
        itself = sum(map(len, texts))
        if itself:
            received = sum(map(len, strings_of({**result, "isError": None})))
            yield name, arguments, received - len("text"), itself


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
            if name in ("before", "after"):
                yield str(one).partition(": ")[2]
            elif (name in TEXTS and one) or (name == "file" and "edits" in data):
                yield from [one] if isinstance(one, str) else one
            elif name != "session" or "text" not in data:
                yield from recalled(one)


if __name__ == "__main__":
    sys.exit(main())
