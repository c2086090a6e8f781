"""A year of conversations to look at: four projects, code, changes of files, a subagent; and what was remembered."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

from tests.support.docs_sample import call_block, result_block, text_block, write_session

Said = tuple[str, Any]
PROJECTS = ("shop", "relay", "notes", "atlas")
MEMORIES = (
    ("This project deploys with `just ship`, never by hand.", "fact", "shop"),
    ("Prefers real databases in tests over mocks.", "preference", None),
    ("Event ids of webhooks are kept in the table webhook_events, unique.", "fact", "shop"),
    ("The flaky date test was a time zone: CI runs in UTC.", "event", "atlas"),
    ("Answers in British English, short sentences.", "preference", None),
)
RETRY = '''import time

def attempt(times: int, url: str) -> Response:
    """Ask a server, and again after 0.2, 0.4, 0.8 seconds."""
    for number in range(times):
        try:
            return http.get(url, timeout=5)
        except http.Timeout:
            time.sleep(0.2 * 2**number)
    raise PriceError(f"{url} did not answer {times} times")
'''
TOPICS = (
    ("shop", "Customers are charged twice", "The payment webhook comes in twice. How do we stop that?"),
    ("shop", "Retry for the price service", "Add a retry with exponential backoff to fetch_price in prices.py."),
    ("relay", "Backpressure in the poller", "The poller eats memory when home is slow. Can it wait instead?"),
    ("relay", "Rotate the signing key", "How do we rotate the signing key without downtime?"),
    ("notes", "Search in notes is slow", "Why does the search in notes take two seconds?"),
    ("atlas", "Flaky date test in CI", "test_month_end fails in CI every evening. It passes here."),
    ("atlas", "Map tiles at zoom 3", "Tiles are blurred at zoom 3. Is it the resampling?"),
    ("notes", "Export to Markdown", "Write an exporter: one Markdown file per note, with front matter."),
)
BRIEF = str(uuid.uuid5(uuid.NAMESPACE_URL, "lessons"))
"""Id of a session with short prompts, a tool with a long name, and texts that need much room."""
LESSONS = (
    "Never mock the payment service in tests.", "We pin dependencies exactly in shop.",
    "I prefer small commits over large ones.", "Always run the migrations before the tests.",
)  # fmt: skip


def write_year(home: Path, now: datetime, *, sessions: int = 90) -> str:
    """Write the transcripts of a year; return the id of the session that has something of everything."""
    random = Random(4)
    for number in range(sessions):
        project, title, question = TOPICS[random.randrange(len(TOPICS))]
        start = now - timedelta(days=int(random.random() ** 1.6 * 360), hours=random.randrange(1, 9), minutes=number)
        _write(home, project, f"year-{number}", short(title, question, random), start)
    asked = [("user", text) for text in LESSONS]
    tool = "mcp__project_tracker_of_the_company__search_issues_by_query"
    asked += [("assistant", call_block(tool, query="open")), ("user", result_block(tool, "none"))]
    asked += [("assistant", text_block(text)) for text in ("> " * 40 + "deep", "- " * 40 + "deep", "[" * 2_000)]
    _write(home, "shop", "lessons", asked, now - timedelta(hours=5))
    return _write(home, "shop", "retry", list(retry("/home/ada/shop")), now - timedelta(hours=2), subagent=True)


def short(title: str, question: str, random: Random) -> Sequence[Said]:
    """Return a few turns about a topic."""
    said: list[Said] = [("user", question)]
    for _ in range(random.randrange(1, 6)):
        said += [
            ("assistant", call_block("Bash", command="rg -n TODO src | head", description="Look around")),
            ("user", result_block("Bash", "src/main.py:14: TODO handle the timeout\nsrc/queue.py:80: TODO bound it")),
        ]
    said.append(("assistant", text_block(f"**{title}.** I looked at `src/` and changed two places; the tests pass.")))
    return said


def retry(project: str) -> Iterator[Said]:
    """Yield a conversation with Markdown, code, a list, tools, a change and a written file."""
    yield "user", "fetch_price in `prices.py` fails when the price service is slow. Add a retry with backoff, please."
    yield (
        "assistant",
        {"type": "thinking", "thinking": "One call, no timeout. Three attempts should do.", "signature": ""},
    )
    yield "assistant", call_block("Read", file_path=f"{project}/prices.py")
    yield (
        "user",
        result_block("Read", "1\tdef fetch_price(sku):\n2\t    return http.get(PRICES + sku).json()['amount']"),
    )
    yield (
        "assistant",
        text_block(
            "It calls the price service **once**, and without a timeout. I would:\n\n"
            "1. wrap the call in three attempts that wait 0.2, 0.4 and 0.8 seconds,\n"
            "2. give each attempt a timeout of 5 seconds,\n"
            "3. raise a `PriceError` that names the address.\n\n"
            f"```python\n{RETRY}```\n\nShall I write it to `attempts.py`, so that `stock.py` can use it too?"
        ),
    )
    yield "user", "Yes. And look whether other places have the same problem."
    yield "assistant", call_block("Write", file_path=f"{project}/attempts.py", content=RETRY)
    yield "user", result_block("Write", "File created successfully.")
    yield (
        "assistant",
        call_block(
            "Edit", file_path=f"{project}/prices.py",
            old_string="def fetch_price(sku):\n    return http.get(PRICES + sku).json()['amount']",
            new_string="def fetch_price(sku):\n    answer = attempt(3, PRICES + sku)\n    return answer.json()['amount']",
        ),
    )  # fmt: skip
    yield "user", result_block("Edit", f"The file {project}/prices.py has been updated.")
    yield "assistant", call_block("Bash", command="pytest -q", description="Run the tests")
    yield "user", result_block("Bash", "." * 72 + "\n72 passed in 3.41s")
    yield (
        "assistant",
        text_block(
            "Done: `prices.py` uses it, and all 72 tests pass. Two more places call without a timeout:\n\n"
            "| place | what it asks |\n|---|---|\n| `stock.py:41` | the warehouse |\n| `mail.py:12` | the mail server |\n\n"
            "> A mail that is sent twice is worse than one that is late, so `mail.py` should not retry."
        ),
    )


def inner() -> Iterator[Said]:
    """Yield what a subagent did."""
    yield "user", "Find every call of http.get without a timeout."
    yield "assistant", call_block("Grep", pattern="http.get(", path="src")
    yield "user", result_block("Grep", "src/stock.py:41: http.get(STOCK + sku)\nsrc/mail.py:12: http.get(MAIL)")
    yield "assistant", text_block("Two places: `stock.py:41` and `mail.py:12`.")


def _write(
    home: Path, project: str, name: str, said: Sequence[Said], start: datetime, *, subagent: bool = False
) -> str:
    session = str(uuid.uuid5(uuid.NAMESPACE_URL, name))
    folder = home / ".claude" / "projects" / f"-home-you-{project}"
    folder.mkdir(parents=True, exist_ok=True)
    write_session(folder / f"{session}.jsonl", iter(said), f"/home/ada/{project}", start)
    if subagent:
        inside = folder / session / "subagents" / "agent-a1b2c3d4.jsonl"
        inside.parent.mkdir(parents=True)
        alone = inside.with_name(f"{uuid.uuid5(uuid.NAMESPACE_URL, name + ' inside')}.jsonl")
        write_session(alone, inner(), f"/home/ada/{project}", start + timedelta(seconds=65))
        lines = [
            json.loads(line) | {"isSidechain": True, "sessionId": session}
            for line in alone.read_text("utf-8").splitlines()
        ]
        inside.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
        alone.unlink()
    return session
