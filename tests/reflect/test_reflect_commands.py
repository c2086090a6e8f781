"""The commands that learn, review and count."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import subprocess
import sys
from pathlib import Path

import pytest

from crystal.app.context import open_machine
from crystal.app.reflect import Learned, SourceLine
from crystal.app.usage import Period
from crystal.cli import reflect as reflecting
from crystal.cli.render import Look, wrapped
from crystal.cli.usage import _rows
from crystal.model.recall import Remembered
from crystal.store.capture.hook_runs import add_hook_runs
from crystal.store.memories.learned import ReflectorRun
from crystal.store.sessions.contexts import Injection, add_injection
from tests.reflect.test_reflect import run_of
from tests.support.capture_machine import NOW, keep_transcript, line
from tests.support.chat_server import Reply, chat_server
from tests.support.command import crystal

WORDS = ("Never mock the database in tests.", "We pin dependencies exactly.", "I prefer tabs over spaces.")


def test_what_is_learned_is_reviewed_by_id_and_counted(home: Path) -> None:
    keep_transcript(home, "s1", *(line(text, at=NOW) for text in WORDS))
    assert crystal("init", "--yes").code == 0
    assert crystal("config", "set", "reflect.mode", "off").code == 0
    assert crystal("backfill", "--no-embed").code == 0
    assert crystal("reflect", "--now").code == 2
    settings = {"reflect.mode": "propose", "reflect.extractor": "model", "reflect.daily_cap_usd": "0"}
    for key, value in {**settings, "summary.base_url": "http://127.0.0.1:9/v1"}.items():
        assert crystal("config", "set", key, value).code == 0
    done = crystal("reflect", "--now")
    assert (done.code, "raise reflect.daily_cap_usd" in done.err) == (4, True), "nothing is read, and nothing lost"
    assert "sessions wait for a model: the daily cap" in done.err
    assert crystal("config", "set", "reflect.extractor", "rules").code == 0
    assert crystal("memories", "review").err == "nothing to review\n"
    assert crystal("config", "set", "reflect.mode", "propose").code == 0
    run = json.loads(crystal("reflect", "--now", "--json").out)
    assert (run["unreviewed"], run["run"]["inserted"], run["run"]["turns"]) == (3, 3, 3)
    assert "nothing new was read" in crystal("reflect").out
    assert "hint: crystal memories review\n" in crystal("memories").err
    listed = crystal("memories", "review")
    assert all(text in listed.out for text in WORDS)
    assert ", in /home/dev/quartz\n" in listed.out
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
    assert (learned["memory"]["from"], "from" in learned) == ("local", False)  # where a value comes from is a word
    assert "candidates told" in crystal("context", "--explain").out
    used = json.loads(crystal("usage", "--json").out)
    assert used["pool"] == {"active": 1, "proposed": 0, "archived": 2, "unreviewed": 0, "low_confidence": 0}
    assert used["periods"]["7d"]["run"]["inserted"] == 3
    with open_machine() as machine:
        add_injection(machine.store, Injection(machine.now(), "s9", "startup", 3, (keep,), 2, 50))
        add_hook_runs(machine.store, [(machine.now(), "Stop", 20.0)])
    told = crystal("usage").out
    assert "  told      1 session: 1 entry (33 % of the candidates), 2 memories omitted, 50 tokens\n" in told
    assert "  hook      1 run: half within 20 ms, 95 % within 20 ms\n" in told
    assert "last 30d" in told
    assert "used      not known yet" in told
    assert crystal("verify").code == 0


def test_both_turns_that_taught_a_memory_are_named_and_of_many_the_first(home: Path) -> None:
    for number in range(6):
        keep_transcript(home, f"run{number}", line("go"), *run_of("make docs", f"s{number}"))
    asked = line("So in this repo we always deploy with just ship, right?", role="assistant")
    keep_transcript(home, "deploy", line("how?"), asked, line("yes"))
    assert crystal("init", "--yes").code == crystal("backfill", "--no-embed").code == 0
    assert crystal("reflect", "--now").code == 0
    shown = crystal("memories", "review").out
    assert re.search("from assistant in deploy: So in this repo.*\n.*from user in deploy: yes", shown)
    assert (shown.count("from tool call in run"), shown.count("from tool result in run")) == (5, 5)
    assert "and 2 lines more: crystal memories show mem-" in shown


def test_a_proposal_that_is_deprecated_is_wrong_and_one_that_is_restored_is_kept(home: Path) -> None:
    keep_transcript(home, "s1", *(line(text, at=NOW) for text in WORDS))
    assert crystal("init", "--yes").code == crystal("backfill", "--no-embed").code == 0
    assert crystal("reflect", "--now").code == 0
    kept, hidden, _ = (
        one["memory"]["id"] for one in json.loads(crystal("memories", "review", "--json").out)["learned"]
    )
    assert crystal("memories", "deprecate", hidden).out.rstrip().endswith("deprecated")
    for _ in range(2):
        assert "proposed" not in crystal("memories", "restore", kept).out
    assert [one["memory"]["id"] in (kept, hidden) for one in
            json.loads(crystal("memories", "review", "--json").out)["learned"]] == [False]  # fmt: skip
    assert crystal("memories", "restore", hidden).code == 0
    every = json.loads(crystal("memories", "--json").out)["memories"]
    assert {one["id"]: one["source"].split()[0] for one in every} == {kept: "reviewed", hidden: "reviewed"}


@pytest.mark.slow
def test_each_key_of_the_review_acts_unless_it_was_decided_elsewhere_meanwhile(home: Path) -> None:
    texts = (*WORDS, "We deploy with Argo CD.", "Our main branch is trunk.", "We squash all commits.")
    keep_transcript(home, "s1", *(line(text, at=NOW - at) for at, text in enumerate(texts)))
    assert crystal("init", "--yes").code == crystal("backfill", "--no-embed").code == 0
    assert crystal("reflect", "--now").code == 0
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "crystal", "memories", "review"]
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env={**os.environ, "TERM": "dumb"})
    os.close(theirs)
    keys, decided = b"", ""
    for words, answer in (
        (" q quit", "k"),
        (" q quit", "e"),
        ("]:", "  \n"),
        ("press a key again", "e"),
        ("]:", "Use tabs.\n"),
        (" q quit", "w"),
        (" q quit", "n"),
        (" q quit", "W"),
        ("skipped: ", ""),
    ):
        shown = b""
        while words.encode() not in shown:
            if select.select([ours], [], [], 2)[0]:
                shown += os.read(ours, 65_536)
            else:
                os.write(ours, keys)  # a key is dropped that comes before the review listens
        if answer == "W":
            decided = re.findall(r"mem-\w{12}", shown.decode())[-1]
            assert crystal("memories", "review", "--keep", decided).code == 0
        keys = answer.encode()
        os.write(ours, keys)
    while process.poll() is None:
        os.write(ours, b"q")
        select.select([], [], [], 0.2)
    os.close(ours)
    assert process.returncode == 0
    every = json.loads(crystal("memories", "--status", "all", "--json").out)["memories"]
    found = sorted((one["source"].split()[0], one["status"]) for one in every)
    assert [one["status"] for one in every if one["id"] == decided] == ["active"]
    assert found == sorted([("reviewed", "active")] * 3 + [("learned", "deprecated"), ("refused", "deprecated"),
                                                           ("proposed", "deprecated")])  # fmt: skip
    assert "Use tabs." in [one["text"] for one in every]


def test_a_model_that_refuses_is_named_and_no_session_waits(home: Path) -> None:
    keep_transcript(home, "s1", *(line(text, at=NOW) for text in WORDS))
    assert crystal("init", "--yes").code == 0
    with chat_server(Reply({"error": "bad request"}, 400)) as server:
        settings = {"reflect.extractor": "model", "summary.mode": "simple", "summary.base_url": server.url}
        for key, value in {**settings, "reflect.mode": "off"}.items():
            assert crystal("config", "set", key, value).code == 0
        assert crystal("backfill", "--no-embed").code == 0
        assert crystal("config", "set", "reflect.mode", "propose").code == 0
        done = crystal("reflect", "--now")
    assert (done.code, "the rules learned in place of the model: openai" in done.err) == (4, True), done
    assert len(json.loads(crystal("memories", "review", "--json").out)["learned"]) == 3


def test_the_figures_of_years_fit_into_a_terminal() -> None:
    many = 12_345_678
    run = ReflectorRun(0, many * 1000, many, many, many, many, many, many, many, many, 1234.5678, many, many)
    spent = dict.fromkeys(("learning", "summary", "embedding"), 1234.5678) | {"deep search": 0.0012}
    period = Period(many, run, *[many] * 5, 0.9, many, many, spent, *[many] * 6, 123.4, 567.8)
    lines = [line for _, text in _rows(period) for line in wrapped(text, Look(80, False, True), 12)]
    assert max(map(len, lines)) <= 80
    said = " ".join(" ".join(lines).split())
    assert "3,429 h: 12,345,678 new, 12,345,678 confirmed" in said
    assert "deep search $0.0012, embedding $1,234.57" in said


def test_the_words_that_taught_a_memory_fit_into_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reflecting, "look_of", lambda _: Look(80, False, True))
    memory = Remembered("mem-0123456789ab", "x", "skill", None, "cli", "cli", "active", "learned", "a", "b", "s", 1, 1)
    taught = SourceLine("line", "01234567-89ab", 1, "tool_result", "ok " * 90)
    lines = [*reflecting.learned_lines(Learned(memory, "command", 0.99, 2, 1, 1, (taught,)), NOW)]
    assert max(map(len, lines)) <= 80
    assert any("ok ok ok" in shown for shown in lines)
