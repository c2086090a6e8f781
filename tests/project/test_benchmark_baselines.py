"""The searches that the retrieval benchmark compares crystal with, on a few invented messages."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.append(str(Path(__file__).parent.parent.parent / "benchmarks"))

import retrieval_baselines as baselines
from retrieval_data import Message, Question

from tests.support.table import each_row

DAY = 86_400_000


def message(number: int, text: str, day: int = 0, session: str = "s", conv: str = "c") -> Message:
    return Message(f"m{number}", conv, session, day * DAY, "user", "user", text)


def question(text: str, now: int = 0) -> Question:
    return Question("q", "c", text, "all", now * DAY, frozenset(), frozenset())


def index(messages: list[Message], vectors: list[list[float]], chunks: Any = None) -> Any:
    rows = chunks or baselines.one_chunk_a_turn(messages)
    return baselines.Index(rows, messages, np.array(vectors, np.float32))


def test_memory_crystal_as_it_is_takes_the_oldest_of_the_nearest_for_the_nearest():
    messages = [message(0, "nothing"), message(1, "much"), message(2, "the tulip blooms")]
    turns = index(messages, [[0.6, 0.8], [0.8, 0.6], [1, 0]])
    one = baselines.Asked(question("what blooms"), np.array([1, 0], np.float32), "c", 50)
    systems = baselines.memory_crystal_systems(turns)
    assert systems["memory-crystal"](one) == [0, 1, 2]
    assert systems["memory-crystal, repaired"](one) == [2, 1, 0]


def test_memory_crystal_asks_for_words_that_begin_with_every_word():
    messages = [message(0, "tulips bloom"), message(1, "tulip alone"), message(2, "bloom alone")]
    turns = index(messages, [[0, 1]] * 3)
    one = baselines.Asked(question("tul blo"), np.array([1, 0], np.float32), "c", 50)
    assert turns.keywords(one, one.every_beginning(), 9) == [0]


def test_no_baseline_knows_what_was_said_after_the_question():
    messages = [message(0, "tulip rose", 0), message(1, "tulip", 2)]
    turns = index(messages, [[0.6, 0.8], [1, 0]])
    pieces = index(messages, [[1, 0]] * 2, [baselines.Chunk("tulip", (0,)), baselines.Chunk("tulip", (0, 1))])
    vector = np.array([1, 0], np.float32)
    later, now = (baselines.Asked(question("tulip", 1), vector, "c", 50, until) for until in (3 * DAY, DAY))
    for name, (system, used) in baselines.all_systems(turns, pieces).items():
        assert sorted(system(later)) == [0, 1], name
        assert system(now) == [0], name
        assert "m1" not in baselines.answered(system, used, now)[0]


def test_age_halves_what_is_fifty_days_old_in_memory_crystal_and_no_more():
    texts = ["tulip", "tulip", "tulip tulip tulip tulip"]
    messages = [message(place, text, day) for place, (text, day) in enumerate(zip(texts, (100, 40, 0), strict=True))]
    turns = index(messages, [[1, 0], [1, 0], [1, 0]])
    one = baselines.Asked(question("tulip", 100), np.array([1, 0], np.float32), "c", 50)
    assert baselines.memory_crystal_systems(turns)["memory-crystal, repaired"](one)[0] == 0
    assert baselines.memory_crystal_systems(turns)["memory-crystal, repaired, later"](one)[0] in (0, 2)


def test_the_blend_counts_cosine_seven_tenths_and_the_place_among_keywords_three():
    messages = [message(0, "tulip"), message(1, "rose"), message(2, "rose tulip rose rose")]
    turns = index(messages, [[0.1, 0.995], [0.6, 0.8], [0.5, 0.866]])
    pieces = index(messages, [[1, 0]], baselines.windows(messages))
    one = baselines.Asked(question("what is a tulip"), np.array([1, 0], np.float32), "c", 50)
    systems = baselines.openclaw_systems(turns, pieces)
    # 0.7 * 0.1 + 0.3, 0.7 * 0.6, 0.7 * 0.5 + 0.3 / 2
    assert systems["OpenClaw blend, any word, turns"](one) == [2, 1, 0]
    assert baselines.answered(systems["OpenClaw blend"], pieces, one) == (["m0", "m1", "m2"], ["s", "s", "s"])


def test_a_question_of_common_words_alone_keeps_them_and_a_filter_lets_only_its_conversation_through():
    messages = [message(0, "what was it", conv="a"), message(1, "what was it")]
    turns = index(messages, [[1, 0], [1, 0]])
    one = baselines.Asked(question("What was it?"), np.array([1, 0], np.float32), "c", 50)
    for system in (baselines.plain_systems(turns) | baselines.memory_crystal_systems(turns)).values():
        assert system(one) == [1]


@each_row("text", ["", "?!", '"', "a OR b NOT (", "NEAR(x y)", "foo_bar.baz()", "日本語", "x" * 9999])
def test_no_question_breaks_a_baseline(text):
    messages = [message(0, "tulip rose"), message(1, "foo_bar.baz() failed")]
    turns = index(messages, [[1, 0], [0, 1]])
    pieces = index(messages, [[1, 0]], baselines.windows(messages))
    one = baselines.Asked(question(text), np.array([1, 0], np.float32), "c", 50)
    for system, _ in baselines.all_systems(turns, pieces).values():
        assert len(system(one)) <= 2


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 4000)), max_size=30))
def test_windows_hold_every_message_once_or_overlapping_and_never_two_sessions(shape):
    messages = [
        message(place, "x" * size, session=f"s{session}") for place, (session, size) in enumerate(sorted(shape))
    ]
    chunks = baselines.windows(messages)
    assert all(len(chunk.text) <= baselines.WINDOW for chunk in chunks)
    assert all(len({messages[place].session for place in chunk.messages}) == 1 for chunk in chunks)
    assert {place for chunk in chunks for place in chunk.messages} == {
        place for place, (_, size) in enumerate(sorted(shape)) if size
    }
