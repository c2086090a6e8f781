"""Claims about the table of vectors: generations, the queue, and the nearest neighbours."""

from __future__ import annotations

import math
import sys
from array import array
from unittest.mock import Mock, patch

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from crystal.embedding.remote import sendable, unit_vector
from crystal.errors import WrongAnswerError
from crystal.store import Store
from crystal.store.search import vectors
from tests.support.embedding_store import (
    NOW,
    Dice,
    VectorCounts,
    add_chunk,
    open_store,
    stored,
    unit,
    vector_counts,
    vectors_by_chunk,
)
from tests.support.examples import examples


def floats_of(held: bytes) -> list[float]:
    return list(array("f", held))


def fill(store: Store, generation: int, dice: Dice) -> None:
    waiting = vectors.pending_chunks(store, generation, 10_000)
    vectors.put_vectors(store, generation, [(ident, dice.embed_query(text)) for ident, _, text in waiting])


def test_the_first_generation_serves_at_once_and_is_found_again(store: Store):
    assert vectors.serving_generation(store) is None
    first = vectors.ensure_generation(store, "dice", "a", 4, NOW)
    assert vectors.ensure_generation(store, "dice", "a", 4, NOW + 1) == first
    assert vectors.serving_generation(store) == vectors.Generation(first, "dice", "a", 4, True)


def test_a_new_model_serves_only_when_nothing_waits_for_it_and_then_the_old_one_is_gone(store: Store):
    ids = [add_chunk(store, f"text {n}") for n in range(5)]
    old = vectors.ensure_generation(store, "dice", "a", 8, NOW)
    fill(store, old, Dice("a"))
    new = vectors.ensure_generation(store, "dice", "b", 8, NOW)
    assert [ident for ident, _, _ in vectors.pending_chunks(store, new, 10)] == ids[::-1]
    fill(store, new, Dice("b"))
    late = add_chunk(store, "said while the switch goes on")
    assert not vectors.promote(store, new)
    assert vectors.serving_generation(store).id == old
    assert len(vectors.nearest(store, old, Dice("a").embed_query("text 1"), 10)) == 5
    fill(store, new, Dice("b"))
    assert vectors.promote(store, new)
    assert vectors.generations(store) == [vectors.Generation(new, "dice", "b", 8, True)]
    assert set(vectors_by_chunk(store, new)) == {*ids, late}
    assert store.value("SELECT count(*) FROM sqlite_schema WHERE name LIKE ?", (f"chunks_vec_{old}%",)) == 0
    assert store.value(f"SELECT count(*) FROM chunks_vec_{new}") == 6


def test_going_back_to_the_old_model_asks_again_for_what_only_the_new_one_had(store: Store):
    ids = [add_chunk(store, f"text {n}") for n in range(4)]
    old = vectors.ensure_generation(store, "dice", "a", 8, NOW)
    fill(store, old, Dice("a"))
    new = vectors.ensure_generation(store, "dice", "b", 8, NOW)
    late = add_chunk(store, "late")
    fill(store, new, Dice("b"))
    assert vectors.ensure_generation(store, "dice", "a", 8, NOW) == old
    assert [g.id for g in vectors.generations(store)] == [old]
    assert [ident for ident, _, _ in vectors.pending_chunks(store, old, 10)] == [late]
    assert set(vectors_by_chunk(store, old)) == set(ids)
    assert vectors.put_vectors(store, new, [(late, Dice("b").embed_query("late"))]) == 0
    assert not vectors.exists(store, new)


def test_a_generation_that_a_killed_switch_left_is_made_anew_when_it_is_asked_for(store: Store, monkeypatch):
    add_chunk(store, "early")
    old = vectors.ensure_generation(store, "dice", "a", 8, NOW)
    fill(store, old, Dice("a"))
    new = vectors.ensure_generation(store, "dice", "b", 8, NOW)
    fill(store, new, Dice("b"))
    with monkeypatch.context() as killed:
        killed.setattr(vectors, "drop_generation", lambda *_: None)
        assert vectors.promote(store, new)
    late = add_chunk(store, "late")
    fill(store, new, Dice("b"))
    again = vectors.ensure_generation(store, "dice", "a", 8, NOW)
    assert again > new
    assert late in [ident for ident, _, _ in vectors.pending_chunks(store, again, 10)]
    assert [g.id for g in vectors.generations(store)] == [new, again]
    assert vectors.serving_generation(store).id == new


def test_a_third_model_ends_the_filling_of_the_second(store: Store):
    add_chunk(store, "x")
    ids = []
    for model in "abc":
        ids.append(vectors.ensure_generation(store, "dice", model, 8, NOW))
        fill(store, ids[-1], Dice(model))
    assert [g.id for g in vectors.generations(store)] == [ids[0], ids[2]]


def test_a_generation_that_has_served_its_time_goes_in_short_transactions(store: Store, monkeypatch):
    monkeypatch.setattr(vectors, "SLICE", 2)
    for n in range(5):
        add_chunk(store, str(n))
    for model in "ab":
        generation = vectors.ensure_generation(store, "dice", model, 8, NOW)
        fill(store, generation, Dice(model))
    assert vectors.promote(store, generation)
    assert [g.id for g in vectors.generations(store)] == [generation]
    assert vector_counts(store, generation) == VectorCounts(stored=5, pending=0, refused=0)


def test_a_number_of_a_dropped_generation_never_comes_back_with_another_meaning(store: Store):
    add_chunk(store, "x")
    first = vectors.ensure_generation(store, "dice", "a", 8, NOW)
    fill(store, first, Dice("a"))
    vectors.drop_generation(store, first)
    vectors.drop_generation(store, first)
    assert vectors.serving_generation(store) is None
    again = vectors.ensure_generation(store, "dice", "b", 4, NOW)
    assert len(vectors.pending_chunks(store, again, 10)) == 1


def test_dropping_the_serving_generation_lets_the_newest_other_one_serve(store: Store):
    add_chunk(store, "x")
    first = vectors.ensure_generation(store, "dice", "a", 8, NOW)
    second = vectors.ensure_generation(store, "dice", "b", 8, NOW)
    vectors.drop_generation(store, first)
    assert vectors.serving_generation(store).id == second


def test_the_newest_chunks_come_first_whatever_order_they_were_stored_in(store: Store):
    generation = vectors.ensure_generation(store, "dice", "a", 8, NOW)
    old, new, middle = (add_chunk(store, str(ts), ts=ts) for ts in (1, 3, 2))
    assert [ident for ident, _, _ in vectors.pending_chunks(store, generation, 2)] == [new, middle]
    assert vectors.count_pending(store, generation) == 3
    assert old in [ident for ident, _, _ in vectors.pending_chunks(store, generation, 9)]


def test_looking_at_the_queue_reads_an_index_and_sorts_nothing(store: Store):
    used = {}
    for asked in (0, 1, 2):
        if asked:
            vectors.ensure_generation(store, "dice", f"model {asked}", 8, NOW)
        read = Mock(wraps=store.rows)
        with patch.object(store, "rows", read):
            vectors.pending_chunks(store, asked, 1)
        plans = [store.rows(f"EXPLAIN QUERY PLAN {sql}", values) for (sql, values), _ in read.call_args_list[1:]]
        used[asked] = [row[3] for plan in plans for row in plan]
    of_all = "SEARCH chunks USING INDEX chunks_pending (vector_generation=?)"
    assert used[0] == [of_all]
    assert used[1] == [of_all]
    assert used[2] == [of_all, "SCAN chunks USING INDEX waiting_chunks_vec_1"]


def test_only_generations_with_a_successor_have_an_index_of_their_chunks(store: Store):
    queues = "SELECT name FROM sqlite_schema WHERE name GLOB 'waiting_*'"
    first = vectors.ensure_generation(store, "dice", "a", 8, NOW)
    assert store.rows(queues) == []
    second = vectors.ensure_generation(store, "dice", "b", 8, NOW)
    assert store.all(str, queues) == [f"waiting_chunks_vec_{first}"]
    vectors.drop_generation(store, second)
    assert store.rows(queues) == []
    second = vectors.ensure_generation(store, "dice", "c", 8, NOW)
    vectors.promote(store, second)
    assert store.rows(queues) == []


def test_looking_for_the_same_text_costs_the_same_in_a_store_of_any_size(store: Store):
    plan = store.rows("EXPLAIN QUERY PLAN " + vectors.SAME_TEXT, (b"", 1))
    assert [row[3] for row in plan] == ["SEARCH chunks USING INDEX chunks_sha (text_sha256=?)"]


def test_putting_a_vector_twice_keeps_the_first_and_passes_over_deleted_chunks(store: Store):
    generation = vectors.ensure_generation(store, "dice", "a", 2, NOW)
    ident = add_chunk(store, "x")
    assert vectors.put_vectors(store, generation, [(ident, unit(1, 0)), (ident + 7, unit(1, 0))]) == 1
    assert vectors.put_vectors(store, generation, [(ident, unit(0, 1))]) == 0
    assert vectors_by_chunk(store, generation) == {ident: stored(unit(1, 0))}


def test_a_stray_vector_under_a_waiting_chunk_is_replaced(store: Store):
    generation = vectors.ensure_generation(store, "dice", "a", 2, NOW)
    ident = add_chunk(store, "x")
    store.execute(
        f"INSERT INTO chunks_vec_{generation} (rowid, embedding) VALUES (?, vec_int8(?))", (ident, stored(unit(0, 1)))
    )
    assert vectors.put_vectors(store, generation, [(ident, unit(1, 0))]) == 1
    assert vectors_by_chunk(store, generation) == {ident: stored(unit(1, 0))}


def test_the_vector_of_the_same_text_is_copied_without_numpy(store: Store, monkeypatch: pytest.MonkeyPatch):
    generation = vectors.ensure_generation(store, "dice", "a", 2, NOW)
    first, second, other = add_chunk(store, "same"), add_chunk(store, "same"), add_chunk(store, "other")
    waiting = [(ident, sha) for ident, sha, _ in vectors.pending_chunks(store, generation, 10)]
    assert vectors.copy_vectors(store, generation, waiting) == set()
    vectors.put_vectors(store, generation, [(first, unit(1, 1))])
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "numpy", None)
        assert vectors.copy_vectors(store, generation, [one for one in waiting if one[0] != first]) == {second}
    assert vectors_by_chunk(store, generation) == dict.fromkeys((first, second), stored(unit(1, 1)))
    assert [ident for ident, _, _ in vectors.pending_chunks(store, generation, 10)] == [other]


def test_a_refused_chunk_waits_no_more_until_another_model_comes(store: Store):
    generation = vectors.ensure_generation(store, "dice", "a", 2, NOW)
    ident = add_chunk(store, "poison")
    vectors.refuse_chunks(store, generation, [ident])
    assert vector_counts(store, generation) == VectorCounts(stored=0, pending=0, refused=1)
    other = vectors.ensure_generation(store, "dice", "b", 2, NOW)
    assert vectors.count_pending(store, other) == 1


def test_deleting_takes_the_vectors_out_of_every_generation_and_out_of_the_file(store: Store):
    dice_a, dice_b = Dice("a"), Dice("b")
    ident, kept = add_chunk(store, "to forget"), add_chunk(store, "to keep")
    for dice in (dice_a, dice_b):
        fill(store, vectors.ensure_generation(store, "dice", dice.model, 8, NOW), dice)
    with store.transaction():
        vectors.delete_vectors(store, [ident])
        store.execute("DELETE FROM chunks WHERE id = ?", (ident,))
    store.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    held = b"".join(path.read_bytes() for path in store.path.parent.glob("crystal.db*"))
    for dice in (dice_a, dice_b):
        assert stored(dice.embed_query("to forget")) not in held
        assert stored(dice.embed_query("to keep")) in held
    assert kept in vectors_by_chunk(store, 1)


def test_a_filter_acts_inside_the_search_so_that_k_fitting_chunks_are_found(store: Store):
    generation = vectors.ensure_generation(store, "dice", "a", 2, NOW)
    near = [add_chunk(store, f"near {n}") for n in range(50)]
    far = [add_chunk(store, f"far {n}", role="assistant") for n in range(5)]
    vectors.put_vectors(store, generation, [(ident, unit(1, 0.001 * ident)) for ident in near])
    vectors.put_vectors(store, generation, [(ident, unit(-1, 0.001 * ident)) for ident in far])
    hits = vectors.nearest(store, generation, unit(1, 0), 4, "role = ? AND ts >= ?", ("assistant", NOW))
    assert len(hits) == 4
    assert {ident for ident, _ in hits} <= set(far)
    assert vectors.nearest(store, generation, unit(1, 0), 4, "role = 'nobody'") == []


def test_k_may_be_anything(store: Store):
    generation = vectors.ensure_generation(store, "dice", "a", 2, NOW)
    vectors.put_vectors(store, generation, [(add_chunk(store, "x"), unit(1, 0))])
    for k, found in ((-1, 0), (0, 0), (1, 1), (10_000, 1)):
        assert len(vectors.nearest(store, generation, unit(1, 0), k)) == found


def test_equal_vectors_come_in_the_order_of_their_ids(store: Store):
    generation = vectors.ensure_generation(store, "dice", "a", 2, NOW)
    ids = [add_chunk(store, str(n)) for n in range(20)]
    vectors.put_vectors(store, generation, [(ident, unit(1, 0)) for ident in reversed(ids)])
    hits = vectors.nearest(store, generation, unit(1, 0), 20)
    assert [ident for ident, _ in hits] == ids
    assert all(math.isclose(cosine, 1.0, abs_tol=1e-6) for _, cosine in hits)


numbers = st.lists(st.floats(-1, 1, width=32), min_size=3, max_size=3).filter(lambda v: sum(x * x for x in v) > 1e-3)


@pytest.mark.slow
@examples(20)
@given(st.lists(numbers, min_size=1, max_size=12), numbers)
def test_the_score_is_the_cosine_and_the_order_is_that_of_an_exact_search(tmp_path_factory, many, query):
    with open_store(tmp_path_factory.mktemp("s")) as store:
        generation = vectors.ensure_generation(store, "dice", "a", 3, NOW)
        ids = [add_chunk(store, str(n)) for n in range(len(many))]
        vectors.put_vectors(store, generation, [(i, unit(*v)) for i, v in zip(ids, many, strict=True)])
        hits = vectors.nearest(store, generation, unit(*query), 12)

    def cosine(v):
        return sum(a * b for a, b in zip(v, query, strict=True)) / math.hypot(*v) / math.hypot(*query)

    kept = [array("b", stored(unit(*v))).tolist() for v in many]
    exact = {i: cosine(v) for i, v in zip(ids, kept, strict=True)}
    assert {i for i, _ in hits} == set(ids)
    assert all(math.isclose(score, exact[i], abs_tol=1e-4) for i, score in hits)
    assert [s for _, s in hits] == sorted((s for _, s in hits), reverse=True)


# --------------------------------------------------------------------------------------------------------- numbers


@pytest.mark.slow
@example([5e-324, 5e-324])
@given(st.lists(st.floats(allow_nan=True, allow_infinity=True) | st.integers(), min_size=1, max_size=6))
def test_any_numbers_become_a_unit_vector_or_a_wrong_answer(given_numbers):
    try:
        made = floats_of(unit_vector(given_numbers, len(given_numbers), "m"))
    except WrongAnswerError:
        assert any(not math.isfinite(float(min(max(n, -1e308), 1e308))) or abs(n) > 1e290 for n in given_numbers)
    else:
        assert math.isclose(math.hypot(*made), 1, abs_tol=1e-5)


def test_zeros_become_a_unit_vector_that_points_nowhere_in_particular():
    assert unit_vector([0, 0, 0, 0], 4, "m") == unit(1, 1, 1, 1)
    assert floats_of(unit_vector([5e-324, 0], 2, "m")) == [1, 0]


@pytest.mark.slow
@given(st.text(st.characters(exclude_categories=[]), max_size=50))
def test_any_text_can_be_sent(text):
    sent = sendable(text)
    assert sent.strip()
    sent.encode()
