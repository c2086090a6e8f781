"""The commands that learn, review and count."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.capture_machine import NOW, keep_transcript, line
from tests.support.command import crystal

WORDS = ("Never mock the database in tests.", "We pin dependencies exactly.", "I prefer tabs over spaces.")


def test_what_is_learned_is_reviewed_by_id_and_counted(home: Path) -> None:
    keep_transcript(home, "s1", *(line(text, at=NOW) for text in WORDS))
    assert crystal("init", "--yes").code == 0
    assert crystal("config", "set", "reflect.mode", "off").code == 0
    assert crystal("backfill", "--no-embed").code == 0
    assert crystal("reflect", "--now").code == 2
    assert crystal("memories", "review").err == "nothing to review\n"
    assert crystal("config", "set", "reflect.mode", "propose").code == 0
    run = json.loads(crystal("reflect", "--now", "--json").out)
    assert (run["unreviewed"], run["run"]["inserted"], run["run"]["turns"]) == (3, 3, 3)
    assert "nothing new was read" in crystal("reflect").out
    listed = crystal("memories", "review")
    assert all(text in listed.out for text in WORDS)
    ids = {
        one["memory"]["text"]: one["memory"]["id"]
        for one in json.loads(crystal("memories", "review", "--json").out)["learned"]
    }
    keep, wrong, never = (ids[text] for text in WORDS)
    done = crystal("memories", "review", "--keep", keep, "--wrong", wrong, "--never", never)
    assert done.out == f"kept: {keep}\nwrong: {wrong}\nnever learned again: {never}\n"
    assert crystal("memories", "review", "--keep", "mem-000000000000").code == 1
    assert WORDS[0] in crystal("memories").out
    assert WORDS[1] not in crystal("memories").out
    shown = crystal("memories", "show", keep)
    assert "from user in s1" in shown.out
    learned = json.loads(crystal("memories", "show", keep, "--json").out)["learned"]
    assert (learned["kind"], learned["sources"][0]["text"]) == ("convention", WORDS[0])
    assert "candidates told" in crystal("context", "--explain").out
    used = json.loads(crystal("usage", "--json").out)
    assert used["pool"] == {"active": 1, "proposed": 0, "archived": 2, "unreviewed": 0, "low_confidence": 0}
    assert used["periods"]["7d"]["run"]["inserted"] == 3
    assert "last 30d" in crystal("usage").out
    assert crystal("verify").code == 0
