"""Measure what an agent receives over MCP beside the recalled text itself.

    python benchmarks/mcp_size.py [--memory FOLDER [--code FOLDER]]

A memory of 240 turns of ordinary length (200 to 800 characters) in 12 sessions, of turns of one word, of edits and
commands, and of 12 memories is made in a temporary folder; each tool is called as an agent calls it. The text itself
are the words that were recalled, or in a report all of it; what is counted is everything that a client passes on.
The exit code is 1 when an answer is more than ``allowed``: 1.3 times its text, or for a few short texts a fixed number
of characters more. With ``--memory`` an existing memory is asked instead, with words that its users said, and the
median and the largest of each tool are told; ``--code`` is a checkout of what was worked on there, for blame.
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
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the memory is made as the tests make theirs

from crystal.credentials.access import SCOPES
from crystal.mcp.handlers import ClientContext
from tests.support.mcp_client import Tools
from tests.support.store_factory import HOUR, NOW, add_turn, open_store
from tests.support.work_sessions import cured

TARGET = 1.3
LONG, ONCE = 200, 40
"""From how many characters on an answer is long, and a text counts once, however often it is told."""
REPORTS = ("crystal_status", "crystal_sources_status", "crystal_remember")
OWN = {"crystal_forget": ("data: ", "to carry it out: ")}
ANSWER, TEXT = 75, 24
"""Characters that an answer, and each text in it, may cost instead: the fence with its nonce; an id, who and when."""
TEXTS = ("text", "title", "command", "about", "request", "reason", "error", "steps", "why")
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
    ("crystal_search", {"query": "affirmative"}),
    ("crystal_get", {"key": "k3"}),
    ("crystal_changed", {"since": "30d"}),
    ("crystal_changed", {"session": "33333333"}),
    ("crystal_how", {"question": "tests", "all": True}),
    ("crystal_fix", {"error": "cannot add str to int in total", "project": "shop"}),
    ("crystal_about", {"thing": "cart.py"}),
    ("crystal_status", {}),
    ("crystal_sources_status", {}),
    ("crystal_remember", {"text": "Releases are made on Thursdays."}),
    ("crystal_forget", {"query": "webhook payment"}),
    ("crystal_forget", {"query": "affirmative"}),
    ("search_memory", {"query": "postgres"}),
    ("get_recent_conversations", {"n": 5}),
    ("read_memory", {}),
]
CONNECTOR: list[tuple[str, dict[str, object]]] = [
    ("search", {"query": "payment webhook"}),
    ("fetch", {"id": "100"}),
    ("fetch", {"id": "s0000003"}),
]


def allowed(itself: int, texts: int) -> float:
    """Return how many characters an answer may have, given those of its texts and their number."""
    return max(TARGET * itself, itself + ANSWER + TEXT * texts)


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
        remote = Tools(ClientContext(url="https://memory.example"), scopes=SCOPES)
        answers = [*measure(Tools(ClientContext(folder="/code/shop")), CALLS), *measure(remote, CONNECTOR)]
        return tell_tools(answers, is_long=True)


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
        for number in range(4):
            add_turn(store, "affirmative", session=f"t000000{number}", ts=NOW - number * HOUR, project="/code/shop")
        cured(store, "33333333-3333-4000-8000-000000000003", NOW - 50 * HOUR, "/code/shop")
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


class Answer(NamedTuple):
    """What a call sent, how much of that is recalled text, and how many texts have a head."""

    name: str
    arguments: dict[str, object]
    received: int
    itself: int
    texts: int

    @property
    def ratio(self) -> float:
        return self.received / self.itself


def tell_tools(answers: list[Answer], *, is_long: bool = False) -> int:
    """Print the median and the largest ratio of each tool, and the calls that cost more than is allowed."""
    tools, missed = dict[str, list[Answer]](), 0
    for one in answers:
        tools.setdefault(one.name, []).append(one)
        is_missed = one.received > allowed(one.itself, one.texts)
        missed += is_missed
        if is_missed or is_long or one.ratio > TARGET:
            print(f"{one.ratio:.2f}  {one.name} {json.dumps(one.arguments)}: {one.received:,} characters for"
                  f" {one.itself:,} in {one.texts} texts{' (MISSED)' * is_missed}")  # fmt: skip
    for name, of_tool in tools.items():
        long = [one.ratio for one in of_tool if one.itself >= LONG] or [0.0]
        short = [one.received - one.itself for one in of_tool if one.itself < LONG] or [0]
        print(f"{name}: {statistics.median(long):.2f}, at most {max(long):.2f} in {len(of_tool)} answers; of less than"
              f" {LONG} characters {max(short)} more")  # fmt: skip
    print(f"the target of {TARGET} was {f'missed by {missed} answers' if missed else 'kept'}")
    return 1 if missed else 0


def measure(tools: Tools, calls: Iterable[tuple[str, dict[str, object]]]) -> Iterator[Answer]:
    """Call each tool; of a report all but the fence is text, and so are notes and what a preview asks."""
    for name, arguments in calls:
        result = tools.call(name, **arguments)
        if result["isError"]:
            continue
        received = "".join(strings_of({**result, "isError": None})).removeprefix("text")
        data = tools.data("crystal_get" if name == "fetch" else name, **arguments)
        lines = received.splitlines()
        texts = [] if name in REPORTS else [*recalled(data)]
        texts = texts or lines[1:-1]
        own = sum(len(line) for line in lines if line.startswith(("note: ", *OWN.get(name, ()))))
        long = dict.fromkeys(text for text in texts if len(text) >= ONCE)
        itself = sum(map(len, long)) + sum(len(text) for text in texts if len(text) < ONCE)
        heads = sum(line.startswith("[") for line in lines) or received.count('"id":')
        yield Answer(name, arguments, len(received), itself + own, heads)


def strings_of(value: Any) -> Iterator[str]:
    """Every string of a result."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, dict)):
        for one in value.values() if isinstance(value, dict) else value:
            yield from strings_of(one)


def recalled(data: Any) -> Iterator[str]:
    """The texts and titles of an answer, and the numbers of blamed lines."""
    if isinstance(data, list):
        for one in data:
            yield from recalled(one)
    elif isinstance(data, dict):
        for name, one in data.items():
            if name in ("before", "after"):
                yield str(one).partition(": ")[2]
            elif name == "ranges":  # the lines are what blame was asked for
                yield ",".join(f"{first}-{last}" if last > first else f"{first}" for first, last in one)
            elif name in ("added", "removed") and one and data.get("what") == "edited":  # what an edit did
                yield f"+{one}"
            elif (name in TEXTS and one) or (name == "file" and "edits" in data):
                yield from [one] if isinstance(one, str) else one
            elif name != "session" or "text" not in data:
                yield from recalled(one)


if __name__ == "__main__":
    sys.exit(main())
