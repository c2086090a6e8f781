"""What a forgotten turn taught is forgotten with it, and nothing else; the lines named are those that are stored."""

from __future__ import annotations

import pytest

from crystal.app.forget import execute_and_prove, plan_forget
from crystal.app.integrity import prove, repair_all
from crystal.app.memories import remember
from crystal.app.memory_queries import list_memories
from crystal.app.reflect import keep_learned, learned_facts, reflect, unreviewed
from crystal.app.session_context import refresh
from crystal.forgetting.request import ForgetRequest
from crystal.store.memories import memories
from tests.support.capture_machine import NOW, line
from tests.support.examples import part_of
from tests.support.forgetting_machine import Desk
from tests.support.reflecting import run_of, said, texts

MOCKS = "Never mock the database in tests."


def test_forgetting_a_turn_forgets_what_only_it_taught(desk: Desk) -> None:
    taught, twice = "Never mock the zanzibar ledger.", "Always sort the xylophone keys."
    with desk.open() as machine:
        said(desk, machine, "s1", line(f"fix it. {taught} {twice}", ident="line-1", at=NOW))
        said(desk, machine, "s2", line(f"please go on. {twice} thanks", ident="line-2", at=NOW + 1))
        ids = {one.memory.text: one.memory.id for one in unreviewed(machine)}
        plan = plan_forget(machine, ForgetRequest(targets=("line-1",)))
        assert {(item.uuid, item.because) for item in plan.items} == {("line-1", "asked"), (ids[taught], "learned")}
        done, proof = execute_and_prove(machine, plan)
        assert done.is_done
        assert proof.proved, proof
        assert done.memories == 1
        assert texts(machine) == [twice]
        left = learned_facts(machine, memories.memory_of(machine.store, ids[twice]))  # type: ignore[arg-type]
        assert left is not None
        assert [source.line for source in left.sources] == ["line-2"]
        assert "zanzibar" not in machine.memory_record().read_text("utf-8")
        machine.store.execute("UPDATE sessions SET reflected_turn = 0")
        reflect(machine)
        assert texts(machine) == [twice]


@pytest.mark.parametrize("is_learned_first", [False, True])
def test_a_memory_that_the_user_wrote_outlives_the_line_that_confirms_it(desk: Desk, *, is_learned_first: bool) -> None:
    taught = "Never mock the zanzibar ledger."
    with desk.open() as machine:
        if not is_learned_first:
            remember(machine, "Never mock the zanzibar ledger here.")
        said(desk, machine, "s1", line(f"fix it. {taught}", ident="line-1", at=NOW))
        if is_learned_first:
            written = remember(machine, taught, project="/home/dev/quartz")
            assert [one.id for one in list_memories(machine, status=None)] == [written.id]
            assert written.source == "cli"
        assert texts(machine) == []
        plan = plan_forget(machine, ForgetRequest(targets=("line-1",)))
        assert [(item.uuid, item.because) for item in plan.items] == [("line-1", "asked")]


@pytest.mark.parametrize("is_rebuilt", part_of([True, False]))
@pytest.mark.parametrize("by", ["turn", "session", "project", "query"])
def test_nothing_is_left_of_what_was_learned(desk: Desk, by: str, is_rebuilt: bool) -> None:
    taught = "Never mock the zanzibar ledger."
    wish = {
        "turn": ForgetRequest(targets=("line-1",)), "session": ForgetRequest(session="s1"),
        "project": ForgetRequest(project="/home/dev/quartz"), "query": ForgetRequest(query="zanzibar"),
    }[by]  # fmt: skip
    with desk.open() as machine:
        said(desk, machine, "s1", line(f"fix it. {taught}", ident="line-1", at=NOW))
        keep_learned(machine, unreviewed(machine)[0].memory.id)
        refresh(machine)
        if is_rebuilt:
            machine.store.execute("DELETE FROM learned_from")
            machine.store.execute("UPDATE sessions SET reflected_turn = 0")
        done, proof = execute_and_prove(machine, plan_forget(machine, wish))
        assert done.is_done
        assert proof.proved, proof
        assert done.memories == 1
        assert texts(machine, None) == []
        machine.store.execute("UPDATE sessions SET reflected_turn = 0")
        reflect(machine)
        assert texts(machine, None) == []
        assert machine.store.value("SELECT count(*) FROM learned_from") == 0
    assert desk.holding("zanzibar") == []


@pytest.mark.parametrize("is_said_again", [False, True])
def test_a_memory_that_the_user_edited_goes_with_the_only_line_that_taught_it(
    desk: Desk, *, is_said_again: bool
) -> None:
    proposal = "I propose that we store amounts as integer zanzibars, because floats lose precision."
    with desk.open() as machine:
        for ident, words in [("a1", f"I read it. {proposal}"), ("a2", proposal)][: 1 + is_said_again]:
            asked = line(words, role="assistant", ident=ident, at=NOW + 1)
            answer = line("yes, agreed", ident=f"u{ident}", at=NOW + 2)
            said(desk, machine, f"s-{ident}", line("how?", at=NOW), asked, answer)
        (one,) = unreviewed(machine)
        keep_learned(machine, one.memory.id, "Amounts are integers; the last digit is the zanzibar.")
        plan = plan_forget(machine, ForgetRequest(targets=("a1",)))
        taught = [] if is_said_again else [(one.memory.id, "learned")]
        assert [(item.uuid, item.because) for item in plan.items] == [("a1", "asked"), *taught]
        _, proof = execute_and_prove(machine, plan)
        assert proof.proved, proof
        found = [learned_facts(machine, one) for one in list_memories(machine, status=None)]
        assert [[source.line for source in one.sources] for one in found if one] == [["a2", "ua2"]] * is_said_again


def test_a_command_outlives_a_line_that_ran_it_but_not_all_of_them(desk: Desk) -> None:
    docs, both = "`make docs` works here", ["`make docs -B` works here", "`make docs` works here"]
    with desk.open() as machine:
        for number in range(4):
            runs = [*run_of("make docs", f"s{number}", ident=f"call-{number}"), *run_of("make docs -B", f"s{number}")]
            said(desk, machine, f"s{number}", *runs)
        assert texts(machine) == both
        execute_and_prove(machine, plan_forget(machine, ForgetRequest(session="s1")))
        assert texts(machine) == both
        assert {one.confirmed for one in unreviewed(machine)} == {3}
        (one,) = (one for one in unreviewed(machine) if one.memory.text == docs)
        assert [source.role for source in one.sources] == ["tool_call", "tool_result"] * 3
        execute_and_prove(machine, plan_forget(machine, ForgetRequest(targets=("call-0", "call-2"))))
        assert texts(machine) == both
        assert {one.memory.text: one.confirmed for one in unreviewed(machine)} == {both[0]: 3, docs: 1}
        _, proof = execute_and_prove(machine, plan_forget(machine, ForgetRequest(targets=("call-3",))))
        assert proof.proved, proof
        assert texts(machine) == both[:1]


COPIED = "SELECT memory, 'gone', 's9', kind, 0.8, at FROM learned_from"


@pytest.mark.parametrize(
    ("damage", "row"),
    [
        (f"INSERT INTO learned_from (memory, line, session, kind, confidence, at) {COPIED}", "learned_from"),
        ("UPDATE learned_from SET confidence = 7", "learned_from"),
        ("UPDATE sessions SET reflected_turn = 1000000", "sessions"),
    ],
)
def test_verify_names_what_taught_falsely_and_repair_mends_it(desk: Desk, damage: str, row: str) -> None:
    with desk.open() as machine:
        said(desk, machine, "s1", line(MOCKS, at=NOW))
        machine.store.execute(damage)
        found = prove(machine, lambda _: None)
        assert [(fault.kind, fault.what) for fault in found.faults] == [("memories", row)]
        (done,) = repair_all(machine, found)
        assert done.startswith("what taught memories: ")
        assert prove(machine, lambda _: None).faults == []
        reflect(machine)
        (one,) = unreviewed(machine)
        assert ([source.session_id for source in one.sources], one.confidence) == (["s1"], 0.9)
