"""The background writes every summary that is due; what is private or isolated by now goes to no model elsewhere."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from crystal.app.background import enrich, write_summaries_again
from crystal.store.problems import find_problem
from crystal.summarize.due import PART
from tests.llm.test_programs import CLAUDE, played, prints
from tests.reflect.test_reflect import keep_up
from tests.support.capture_machine import NOW, line
from tests.support.chat_server import CARD
from tests.support.forgetting_machine import Desk
from tests.support.summary_store import say
from tests.support.table import each_row

OPAL = "11111111-1111-4111-8111-111111111111"


@each_row(
    ("key", "value"),
    [
        ("private.projects", ["/home/dev/opal"]), ("isolated.projects", ["/home/dev/op*"]),
        ("private.sessions", ["s2"]), ("agents.claude-code.isolated", True),
    ],
)  # fmt: skip
def test_what_is_private_or_isolated_is_summarized_here(tmp_path: Path, key: str, value: object) -> None:
    desk, folder = Desk(tmp_path / key), tmp_path / f"{key}-bin"
    desk.meet()
    for name, chosen in {"mode": "llm", "provider": "claude", "consent": True}.items():
        desk.set(f"summary.{name}", chosen)
    played(folder, "claude", f"cat {folder}/input >> {folder}/every\n{prints({**CLAUDE, 'result': json.dumps(CARD)})}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        with desk.open() as machine:
            desk.say("s1", line("The quartz service owns the invoices.", at=NOW))
            vault = line("The opal vault has nine doors.", at=NOW, cwd="/home/dev/opal", ident=OPAL)
            desk.say("s2", vault)
            keep_up(machine)
            desk.say("fork", vault, line("Go on here.", at=NOW + 1))
            keep_up(machine)
        desk.set(key, value)
        with desk.open() as machine:
            enrich(machine, budget_seconds=60)
            write_summaries_again(machine)
            modes: dict[str, str] = dict(machine.store.rows("SELECT session_id, summary_mode FROM sessions"))
    sent = (folder / "every").read_text() if (folder / "every").exists() else ""
    is_all = key.startswith("agents")
    assert modes == {"s1": "simple" if is_all else "llm", "s2": "simple", "fork": "simple"}
    assert ("quartz" in sent) is not is_all
    assert "opal" not in sent


def test_without_consent_nothing_is_sent_whatever_the_mode(tmp_path: Path) -> None:
    desk, folder = Desk(tmp_path), tmp_path / "bin"
    desk.meet()
    desk.set("summary.mode", "llm")
    desk.set("summary.provider", "claude")
    played(folder, "claude", f"touch {folder}/asked")
    with pytest.MonkeyPatch.context() as patch, desk.open() as machine:
        patch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        desk.say("s1", line("The quartz service owns the invoices.", at=NOW))
        keep_up(machine)
        enrich(machine, budget_seconds=60)
        assert machine.store.value("SELECT summary_mode FROM sessions") == "deferred"
        problem = find_problem(machine.store, PART)
    assert problem is not None
    assert "crystal config set summary.consent true" in problem.message
    assert not (folder / "asked").exists()


@pytest.mark.slow
def test_more_sessions_than_a_day_has_are_summarized_in_one_go(tmp_path: Path) -> None:
    with Desk(tmp_path).open() as machine:
        for number in range(1_050):
            say(machine.store, [("user", f"Repair spool {number}.")], session=f"s{number}", agent="cc-desk")
        enrich(machine, budget_seconds=300)
        assert machine.store.value("SELECT count(*) FROM sessions WHERE summary_mode IS NULL") == 0
