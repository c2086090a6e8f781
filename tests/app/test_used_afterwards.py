"""Claims of what agents' searches found: it counts as used if the agent opened it and names what is new in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from crystal.app.context import open_machine
from crystal.app.used_afterwards import found_and_used
from crystal.store.work.index import bring_up_to_date
from tests.support.capture_machine import NOW, keep_transcript, line
from tests.support.command import crystal
from tests.support.exports import start_and_import
from tests.support.web_client import Client

SEARCH = ("mcp__plugin_crystal_crystal__crystal_search", {"query": "the pool"})
GET = ("mcp__crystal__crystal_get", {"id": "{hit}", "context": 1})
SHELL = ("Bash", {"command": 'cd /tmp && crystal search "the pool"; crystal show h{hit} --json', "description": "look"})
USE = ("Edit", {"file_path": "config/pool.toml", "old_string": "1", "new_string": "2"})

SESSIONS: dict[str, tuple[list[Any], list[tuple[int, int]]]] = {
    "only searched": ([SEARCH, USE], [(0, 0)]),
    "opened and named": ([SEARCH, GET, "I change config/pool.toml now"], [(1, 1)]),
    "opened and edited": ([("crystal_search", {"query": "x"}), ("crystal_get", {"id": "{hit}"}), USE], [(1, 1)]),
    "opened, and other words of it said": ([SEARCH, GET, "The limit of the pool is in there"], [(1, 0)]),
    "named before it was opened": (["What is in config/pool.toml?", SEARCH, GET, USE], [(1, 0)]),
    "opened by the second search": ([SEARCH, SEARCH, GET, USE], [(0, 0), (1, 1)]),
    "opened without a search": ([GET, USE], []),
    "opened what is not there": ([SEARCH, ("crystal_get", {"id": "99999999"}), USE], [(0, 0)]),
    "opened a session": ([SEARCH, ("crystal_get", {"id": "told"}), USE], [(0, 0)]),
    "searched in a shell": ([SHELL, USE], [(1, 1)]),
    "opened by its place": ([("Bash", {"command": "crystal search x; crystal show 1"}), USE], [(0, 0)]),
    "searched with settings": (
        [("Bash", {"command": "NO_COLOR=1 crystal search x; crystal show --json h{hit}|head"}), USE], [(1, 1)]
    ),
    "searched on the second line": (
        [("Bash", {"command": "cd /tmp &&\\\n  crystal search x\nif true; then crystal show 'h{hit}'; fi"}), USE], [(1, 1)]
    ),
    "quoted a search": (
        [("Bash", {"command": "echo 'run; crystal search x'; cat <<EOF\ncrystal search y\nEOF\n# ; crystal search"})], []
    ),
    "spoke of a search": ([("Bash", {"command": "grep 'crystal search' README.md"}), GET, USE], []),
}  # fmt: skip


def keep_session(home: Path, name: str, at: int, steps: list[Any], hit: str) -> None:
    for number, step in enumerate(steps):
        content = step
        if isinstance(step, tuple):
            given = json.loads(json.dumps(step[1]).replace("{hit}", hit))
            content = [{"type": "tool_use", "id": f"{name}{number}", "name": step[0], "input": given}]
        keep_transcript(home, name.replace(" ", "-"), line(content, role="assistant", at=at + number * 1000))


def test_a_hit_counts_as_used_if_it_was_opened_and_something_new_of_it_is_named(home: Path) -> None:
    keep_transcript(home, "told", line("The limit of the pool is in config/pool.toml, line 7", at=NOW - 10**6))
    start_and_import()
    hit = str(json.loads(crystal("search", "pool", "--json").out)["hits"][0]["id"])
    for number, (name, (steps, _)) in enumerate(SESSIONS.items()):
        keep_session(home, name, NOW + number * 60_000, steps, hit)
    start_and_import()
    with open_machine() as machine:
        bring_up_to_date(machine.store)
        found = found_and_used(machine, NOW)
    for number, (name, (_, expected)) in enumerate(SESSIONS.items()):
        mine = [one for one in found if 0 <= one.at - NOW - number * 60_000 < 60_000]
        assert [(one.known, one.used) for one in mine] == expected, name

    figures = json.loads(crystal("usage", "--json").out)["periods"]["30d"]
    counts = tuple(sum(each) for each in zip(*((one.known, one.used) for one in found), strict=True))
    assert (figures["searches"], figures["opened"], figures["opened_used"]) == (len(found), *counts) == (13, 8, 6)
    assert "found     agents searched 13 times and opened 8 hits; names of 6 came up later" in crystal("usage").out
    assert "6 of 8" in Client().get("/usage").text

    with open_machine() as machine:
        machine.store.execute("UPDATE sessions SET device = 'laptop' WHERE session_id = 'only-searched'")
        assert len(found_and_used(machine, NOW)) == len(found) - 1, "ids of hits are others on another machine"

    assert crystal("forget", "--session", "told", "--yes").code == 0
    with open_machine() as machine:
        assert {(one.known, one.used) for one in found_and_used(machine, NOW)} == {(0, 0)}
