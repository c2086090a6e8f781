"""In a large memory a preview reads a part: its counts are true, and forgetting deletes all the same everything."""

from __future__ import annotations

import uuid
from collections.abc import Collection
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from crystal.app.forget import execute_and_prove, plan_forget
from crystal.cli.forget import _preview_lines
from crystal.forgetting.match.query_terms import Terms
from crystal.forgetting.plan import planner
from crystal.forgetting.plan.select import Scope, find_duplicates, select
from crystal.forgetting.request import ForgetRequest, Selection
from crystal.store import Store
from crystal.store.forget import forgotten_rows
from tests.forgetting.test_forgetting_candidates import stored
from tests.support.examples import examples, part_of
from tests.support.forgetting_machine import NOW, Desk, said

SESSION, OTHER = str(uuid.UUID(int=1)), str(uuid.UUID(int=2))


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A machine whose memory counts as large, and whose previews read three texts."""
    monkeypatch.setattr(forgotten_rows, "LARGE_CHUNKS", 0)
    monkeypatch.setattr(planner, "MAX_READ", 3)
    monkeypatch.setattr(planner, "MAX_LOOKED_UP", 1)
    desk = Desk(tmp_path)
    desk.meet()
    return desk


@pytest.mark.slow
def test_a_common_word_is_counted_between_two_bounds_and_forgotten_whole(desk: Desk) -> None:
    words = [said(f"number {at} says quokka in the middle", at=NOW + at) for at in range(8)]
    at_ends = [said("quokka stands at the beginning of this one", at=NOW + 10)]
    desk.say(SESSION, *words, said("this one stays", at=NOW + 20))
    desk.say(OTHER, *at_ends, said(r"it printed \nquokka stands at the beginning of this one", at=NOW + 30))
    desk.capture()
    with desk.open() as machine:
        plan = plan_forget(machine, ForgetRequest(query="quokka"))
        assert (len(plan.items), plan.unread, plan.is_brief) == (3, 6, True)
        head, *rest = _preview_lines(plan, machine.now(), 100)
        read = "3 messages among those read so far; 6 more are read after you confirm"
        assert head == f"will be forgotten: every message with these words ({read})"
        assert "after you confirm, crystal looks for repetitions and deletes them too" in rest
        done, proof = execute_and_prove(machine, plan)
    assert (done.lines, done.is_done) == (10, True)
    assert proof.proved, proof
    assert desk.texts() == ["this one stays"]
    assert desk.holding("quokka") == []


@pytest.mark.parametrize("words", part_of(["of the", "का है"]))
def test_a_phrase_that_the_index_cannot_look_up_is_not_searched_for_in_every_text(desk, monkeypatch, words):
    """It has no word that is long enough, or a script whose borders of words the index does not know."""
    texts = [f"number {at} is one {words} many" for at in range(8)]
    desk.say(SESSION, *(said(text, at=NOW + at) for at, text in enumerate(texts)), said("this stays", at=NOW + 20))
    ident = str(uuid.UUID(int=3))
    desk.say(OTHER, said(texts[0], at=NOW + 30, ident=ident))
    desk.capture()
    read: list[Collection[int] | None] = []
    each_text = forgotten_rows.each_text
    with monkeypatch.context() as patch:
        patch.setattr(forgotten_rows, "each_text", lambda store, turns: read.append(turns) or each_text(store, turns))
        plan = desk.plan(query=f'"{words}"')
        named = desk.plan(targets=(ident,))
    assert all(turns is not None and len(turns) <= 3 for turns in read), read
    assert (plan.unread, plan.is_brief, named.is_brief) == (7, True, True)
    with desk.open() as machine:
        assert execute_and_prove(machine, plan)[1].proved
    assert desk.texts() == ["this stays"]


@pytest.mark.slow
def test_a_session_or_a_time_narrows_what_is_read(desk: Desk) -> None:
    desk.say(SESSION, *(said(f"number {at} says quokka in the middle", at=NOW + at) for at in range(6)))
    desk.say(OTHER, *(said(f"another {at} says quokka, too", at=NOW + at) for at in range(2)))
    desk.capture()
    plan = desk.plan(query="quokka", session=OTHER)
    assert (len(plan.items), plan.unread) == (2, 0)
    assert {item.session_id for item in plan.items} == {OTHER}
    assert desk.plan(query="quokka", before=NOW + 2).unread == 1


@pytest.mark.slow
def test_a_word_that_nobody_said_is_not_found(desk: Desk) -> None:
    desk.say(SESSION, *(said(f"number {at} says quokka in the middle", at=NOW + at) for at in range(6)))
    desk.capture()
    assert desk.plan(query="unicorn").is_empty


WORDS = st.sampled_from(["quokka", "Quokka", "sleeps", "under", "the", "zanzibar", "bridge", "é", "密码"])
TEXT = st.builds("{} {} {}".format, WORDS, st.sampled_from(["sleeps under the bridge", "é 密码 at night"]), WORDS)


@pytest.mark.slow
@examples(40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(TEXT, min_size=1, max_size=4), data=st.data())
def test_no_repetition_of_what_has_the_words_is_missed(tmp_path_factory, texts, data):
    glue = st.sampled_from(["x", "", "\n", "é"])
    copies = [data.draw(glue) + text + data.draw(glue) for text in texts]
    query = data.draw(st.sampled_from(["quokka", "the", '"kka sl"', "密", "é"]))
    with stored(tmp_path_factory.mktemp("repeated"), texts + copies) as store:
        found, _ = select(store, ForgetRequest(query=query), "local", Scope((), (), (), None, lambda *_: None))
        every = all_with_repetitions(store, found, None)
        assert all_with_repetitions(store, found, Terms.of(query)) == every


def all_with_repetitions(store: Store, found: Selection, terms: Terms | None) -> set[str]:
    return found.lines.union(*(more.lines for more, _ in find_duplicates([store], found.lines, (), terms)))
