"""The second look: what a text and its neighbours meet of a question, and what counts for which kind of model."""

from itertools import groupby

import numpy as np
import pytest

from crystal.embedding.late import READ_CHARACTERS, Likeness, TokenComparer
from crystal.embedding.static import static_model
from crystal.search.ranking.late import BY_CONTEXT, BY_TABLE, late_scores, looked_at, weights_of
from crystal.search.ranking.shown_list import mixed


class Axes:
    """A transformer for which each word is a direction of its own; it counts what it reads."""

    def __init__(self):
        self.words, self.read = [], 0

    def token_vectors(self, texts):
        self.read += sum(map(len, texts))
        return [self._rows(text.lower().split()) for text in texts]

    def _rows(self, words):
        self.words += [word for word in dict.fromkeys(words) if word not in self.words]
        ids = [self.words.index(word) for word in words]
        return ids, np.eye(50, dtype=np.float32)[ids].reshape(-1, 50)


def compared(texts, beside, question="red kite over hills"):
    return TokenComparer(static_model(), Axes()).late(question, texts, lambda _word: 1.0, beside)


def test_a_text_and_its_neighbour_meet_the_question_together():
    alone = compared(["the red kite", "over the hills", "nothing"], [[], [], []])
    assert [both for _, _, both in alone] == pytest.approx([0.5, 0.5, 0.0])
    beside = compared(["the red kite", "over the hills", "nothing"], [[1], [0, 2], [1]])
    assert [both for _, _, both in beside] == pytest.approx([1.0, 1.0, 0.5])
    assert [like for like, _, _ in beside] == [like for like, _, _ in alone]


def test_what_was_not_read_is_like_the_least_and_beside_nobody():
    long = "hills " * (READ_CHARACTERS // 6)
    texts = [*[f"kite {long}"] * 20, "the red kite over hills"]
    found = compared(texts, [[20], *([[]] * 19), [0]])
    assert found[0][2] == pytest.approx(0.5), "its neighbour was not read"
    assert found[-1][2] == pytest.approx(min(both for _, _, both in found))


def test_the_table_knows_no_context_and_counts_as_it_did():
    table, transformer = TokenComparer(static_model()), TokenComparer(static_model(), Axes())
    assert weights_of(table) is weights_of(None) is BY_TABLE
    assert weights_of(transformer) is BY_CONTEXT
    like = table.late("the garden", ["a garden gnome", "tea"], lambda _word: 1.0, [[1], [0]])
    assert [one.together for one in like] == [0.0, 0.0]
    scores = late_scores([1.0, 0.5], [1.0, 0.0], like, [[1], [0]], [], ["a garden gnome", "tea"], BY_TABLE)
    for score, base, one, other in zip(scores, (1.0, 0.5), like, like[::-1], strict=True):
        assert score == pytest.approx(
            base + 0.8 * (one.similarity + 0.25 * other.similarity - 0.03 * np.log(len(one.tokens)))
        )


def test_with_context_the_session_and_the_neighbours_count_for_more():
    like = [Likeness(0.5, [1], 0.5), Likeness(0.5, [1], 1.0)]
    near, nearer = late_scores([1.0, 1.0], [1.0, 1.0], like, [[], []], [], ["a", "b"], BY_CONTEXT)
    assert nearer - near == pytest.approx(BY_CONTEXT.meaning * BY_CONTEXT.together * 0.5)
    poor, rich = late_scores([1.0, 1.0], [0.0, 1.0], [like[0]] * 2, [[], []], [], ["a", "b"], BY_CONTEXT)
    assert rich - poor == pytest.approx(BY_CONTEXT.session)


def test_only_so_many_are_looked_at():
    assert looked_at([10] * 100, BY_TABLE.most) == BY_TABLE.most
    assert looked_at([10] * 100, BY_CONTEXT.most) == BY_CONTEXT.most
    assert looked_at([4_000] * 100, BY_CONTEXT.most) == 6


def test_the_first_stand_as_they_are_and_then_other_sessions_come_between():
    items = [*["busy"] * 9, "quiet", "still", "mute"]
    shown = mixed(items, str, first=5)
    assert shown[:5] == ["busy"] * 5
    assert shown[5] == "quiet"
    assert max(len(list(same)) for _, same in groupby(shown[5:9])) <= 1
    assert sorted(shown) == sorted(items)
    assert mixed(items, str)[:4] == ["busy", "busy", "busy", "quiet"]


def test_mixing_looks_at_no_hit_again_and_again():
    compared = looked = 0

    class Session:
        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return self is other

        __hash__ = object.__hash__

    def session_of(one: Session) -> Session:
        nonlocal looked
        looked += 1
        return one

    sessions = [Session() for _ in range(300)]
    for hits in (sessions * 5, [sessions[0]] * 1_499 + [sessions[1]]):
        assert sorted(map(id, mixed(hits, session_of))) == sorted(map(id, hits))
    assert compared < 10 * 3_000
    assert looked < 10 * 3_000
