"""Archives are searched for words where a filter says that they may be, and nothing is missed."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal.app import background
from crystal.app.background import enrich
from crystal.config.harnesses import CLAUDE_CODE
from crystal.forgetting.match import archive_lines, archive_words
from crystal.forgetting.match.patterns import TextMatcher
from crystal.forgetting.match.query_terms import Terms
from crystal.store.forget import word_blocks
from tests.forgetting.test_forgetting_candidates import TEXTS
from tests.support.capture_machine import line
from tests.support.examples import examples
from tests.support.forgetting_machine import NOW, Desk, said

SESSION, OTHER = str(uuid.UUID(int=1)), str(uuid.UUID(int=2))


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A machine on which each row of the ledger becomes a block."""
    monkeypatch.setattr(word_blocks, "BLOCK_BYTES", 1)
    desk = Desk(tmp_path)
    desk.meet()
    return desk


@examples(400)
@given(texts=st.lists(TEXTS, min_size=1, max_size=3), data=st.data())
def test_what_has_the_words_of_a_query_is_never_left_out(texts: list[str], data: st.DataObject) -> None:
    nested = json.dumps({"input": texts[0], "more": [f"\x1b[1m{texts[-1]}"]}, ensure_ascii=data.draw(st.booleans()))
    fields = {"message": texts, "toolUseResult": nested, "cwd": "/code", "uuid": "u"}
    one = data.draw(st.sampled_from([json.dumps(fields).encode(), " ".join(texts).encode("utf-8", "replace")]))
    whole = data.draw(st.sampled_from([*texts, " ".join(texts)]))
    start = data.draw(st.integers(0, len(whole) - 1))
    part = whole[start : data.draw(st.integers(start + 1, len(whole)))]
    words = archive_words.filter_of(archive_lines.readable_texts(one, CLAUDE_CODE))
    for query in (part, f'"{part}"', f'{part} "{whole[:start]}"'):
        terms = Terms.of(query)
        found = any(archive_lines._has_words(terms, one, CLAUDE_CODE, whole=whole) for whole in (True, False))
        if found:
            assert archive_words.may_have(words, [archive_words.hashes_of(terms)]), (query, terms)


def test_only_archives_that_may_have_the_words_are_read(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Notes of the client are in no turn. What came since the filters were made is read, too."""
    for at in range(5):
        desk.say(SESSION, said(f"number {at} says nothing", at=NOW + at))
        desk.capture()
    desk.say(OTHER, said("hello"), line("", kind="system", content="a quokka came by"))
    desk.capture()
    with desk.open() as machine:
        blocks = word_blocks.all_blocks(machine.store)
        assert (len(blocks), word_blocks.are_words_due(machine.store)) == (6, False)
    monkeypatch.setattr(word_blocks, "BLOCK_BYTES", 1 << 20)
    desk.say(OTHER, said("and hello again"))
    desk.capture()
    read: list[str] = []
    text_of_row = archive_lines.text_of_row
    monkeypatch.setattr(archive_lines, "text_of_row", lambda row, home: read.append(row.key) or text_of_row(row, home))
    for query, is_there in (("quokka", True), ('"quokka came"', True), ("wombats", False), ('"a quokka went"', False)):
        read.clear()
        plan = desk.plan(query=query)
        assert (plan.is_empty, read) == (not is_there, [OTHER, OTHER] if is_there else [OTHER]), query


def test_only_archives_that_may_quote_a_text_are_searched_for_its_parts(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.say(SESSION, said("the quokka eats at the same place as before", ident="gone"))
    for at in range(4):
        desk.say(str(uuid.UUID(int=9)), said(f"{at} eats at the same place as before"))
        desk.capture()
    desk.say(OTHER, said("not that the quokka eats at the same place as before, or is it?"))
    desk.capture()
    read: list[bytes] = []
    find = TextMatcher.find
    monkeypatch.setattr(TextMatcher, "find", lambda self, data: read.append(data) or find(self, data))
    assert desk.forget(targets=("gone",)).is_done
    assert sorted(desk.texts()) == [f"{at} eats at the same place as before" for at in range(4)]
    assert all(b"quokka" in data for data in read)


def test_words_are_kept_before_vectors_and_summaries_which_take_long(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    due: list[bool] = []
    for step in ("_embed", "_summarize"):
        monkeypatch.setattr(background, step, lambda machine, _: due.append(word_blocks.are_words_due(machine.store)))
    desk.say(SESSION, said("the first says platypus"))
    desk.capture()
    with desk.open() as machine:
        assert due[:2] == [False, False]
        machine.store.execute("DELETE FROM archive_words")
        monkeypatch.setattr(background, "WORDS_SECONDS", -1.0)  # no more than a part of each round
        enrich(machine, budget_seconds=60)
        assert due[-2:] == [True, True]
        assert not word_blocks.are_words_due(machine.store)


def test_of_forgotten_lines_no_filter_stays(desk: Desk) -> None:
    desk.say(SESSION, said("the first says platypus"), said("and the second stays"))
    desk.say(OTHER, said("another one stays"))
    desk.capture()
    sought = [archive_words.hashes_of(Terms.of("platypus"))]

    def filters() -> list[bool]:
        with desk.open() as machine:
            return [archive_words.may_have(block.words, sought) for block in word_blocks.all_blocks(machine.store)]

    assert filters() == [True, False]
    assert desk.forget(query="platypus").is_done
    assert filters() == [False]
    with desk.open() as machine:
        enrich(machine, budget_seconds=60)
        assert filters() == [False, False]
        with machine.store.transaction():
            machine.store.execute("UPDATE archive_words SET words = x'00'")
        assert all(archive_words.may_have(block.words, sought) for block in word_blocks.all_blocks(machine.store))
        archive_words.bring_up_to_date(machine.store, desk.ldm, lambda: False)
    assert filters() == [False, False]
