"""Claims about the queue: chunks get their vectors, whatever fails, and nothing is lost or made twice."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from crystal.embedding.pending import PART, PART_REFUSED, EmbeddingClock, embed_pending
from crystal.errors import (
    DeniedError,
    ModelUnavailableError,
    ServerFaultError,
    TextRefusedError,
    UnavailableError,
    WrongAnswerError,
)
from crystal.store import Store
from crystal.store.problems import find_problem, list_problems
from crystal.store.search import vectors
from tests.support.embedding_store import (
    NOW,
    Dice,
    VectorCounts,
    add_chunk,
    open_store,
    stored,
    vector_counts,
    vectors_by_chunk,
)
from tests.support.killed import killed_at
from tests.support.threads import at_once

HOUR = 3_600_000


class Clock:
    """A watch that moves only when somebody sleeps."""

    def __init__(self) -> None:
        self.at, self.slept = 0.0, []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.at += seconds

    @property
    def watch(self) -> EmbeddingClock:
        return EmbeddingClock(lambda: self.at, self.sleep)


def run(store: Store, dice: Dice, *, now: int = NOW, clock: Clock | None = None, **more):
    return embed_pending(store, dice, now=now, watch=(clock or Clock()).watch, **more)


def test_every_waiting_chunk_gets_the_vector_of_its_text(store: Store):
    ids = {add_chunk(store, f"text {n}"): f"text {n}" for n in range(7)}
    dice = Dice()
    report = run(store, dice, batch=3)
    assert (report.embedded, report.reused, report.left, report.problem) == (7, 0, 0, None)
    assert vectors_by_chunk(store, 1) == {ident: stored(dice.embed_query(text)) for ident, text in ids.items()}
    assert [len(batch) for batch in dice.asked] == [3, 3, 1]


def test_the_same_text_is_embedded_once_within_a_batch_and_across_runs(store: Store):
    ids = [add_chunk(store, text) for text in ("ok", "ok", "other", "ok")]
    dice = Dice()
    report = run(store, dice, batch=2)
    assert (report.embedded, report.reused) == (2, 2)
    ids += [add_chunk(store, "ok")]
    report = run(store, dice)
    assert (report.embedded, report.reused) == (0, 1)
    assert sorted(dice.texts) == ["ok", "other"]
    assert set(vectors_by_chunk(store, 1)) == set(ids)


class NeverLoaded(Dice):
    def embed_documents(self, texts):
        raise AssertionError("the embedder was asked")


def test_nothing_new_asks_nobody_and_writes_nothing(store: Store):
    assert run(store, NeverLoaded()).left == 0
    assert vectors.generations(store) == []
    add_chunk(store, "x")
    run(store, Dice())
    before = store.value("PRAGMA data_version"), store.db.total_changes()
    assert run(store, NeverLoaded()).problem is None
    assert (store.value("PRAGMA data_version"), store.db.total_changes()) == before


def test_no_transaction_is_open_while_the_provider_is_asked(store: Store):
    add_chunk(store, "x")

    def write_elsewhere(texts):
        assert not store.db.in_transaction
        with Store.open(store.path) as other:
            other.db.set_busy_timeout(0)
            add_chunk(other, "written while a provider thinks")

    assert run(store, Dice(fail=write_elsewhere), batch=1, should_stop=iter([False, True]).__next__).embedded == 1


def test_should_stop_and_the_budget_end_a_run_and_the_next_goes_on(store: Store):
    for n in range(6):
        add_chunk(store, str(n))
    clock, dice = Clock(), Dice()
    dice.fail = lambda _: clock.sleep(10)
    assert run(store, dice, clock=clock, batch=2, budget_seconds=15).left == 2
    assert run(store, dice, batch=2, should_stop=lambda: True).left == 2
    assert run(store, dice, batch=2).left == 0


class Script:
    """Fails as told, one entry a call; None lets the call pass."""

    def __init__(self, *failures) -> None:
        self.failures = list(failures)

    def __call__(self, texts) -> None:
        failure = self.failures.pop(0) if self.failures else None
        if failure:
            raise failure


def test_a_short_outage_is_ridden_out_within_the_run(store: Store):
    add_chunk(store, "x")
    clock = Clock()
    report = run(
        store, Dice(fail=Script(UnavailableError("refused"), ModelUnavailableError("429", seconds=7))), clock=clock
    )
    assert (report.embedded, report.problem) == (1, None)
    assert clock.slept == [0.5, 7]
    assert list_problems(store) == []


def test_a_wait_that_does_not_fit_into_the_budget_is_left_to_the_next_run(store: Store):
    add_chunk(store, "x")
    clock = Clock()
    dice = Dice(fail=Script(ModelUnavailableError("429", seconds=600)))
    report = run(store, dice, clock=clock, budget_seconds=30)
    assert (report.left, report.problem, clock.slept) == (1, "429", [])
    assert find_problem(store, PART).retry_at == NOW + 600_000


def test_an_outage_rests_longer_each_time_costs_nothing_meanwhile_and_heals_by_itself(store: Store):
    add_chunk(store, "x")
    down = Dice(fail=Script(*[UnavailableError("connection refused", hint="start it")] * 100))
    now, waits = NOW, []
    for tries in range(1, 10):
        assert run(store, down, now=now).left == 1
        problem = find_problem(store, PART)
        assert (problem.tries, problem.since, problem.at) == (tries, NOW, now)
        assert problem.message == "connection refused; start it"
        waits.append((problem.retry_at - now) // 1000)
        asked = len(down.asked)
        report = run(store, down, now=problem.retry_at - 1)
        assert (report.problem, len(down.asked)) == (problem.message, asked)
        now = problem.retry_at
    assert waits == [30, 60, 120, 240, 480, 900, 900, 900, 900]
    assert run(store, Dice(), now=now).left == 0
    assert list_problems(store) == []


@pytest.mark.parametrize("error", [DeniedError("401"), WrongAnswerError("3 numbers instead of 8")])
def test_what_waiting_does_not_mend_is_asked_once_and_rests_until_the_settings_change(store: Store, error):
    add_chunk(store, "x")
    dice = Dice(fail=Script(error, error))
    assert run(store, dice).problem == error.message
    assert len(dice.asked) == 1
    assert find_problem(store, PART).retry_at == NOW + HOUR
    assert run(store, dice, now=NOW + HOUR - 1).left == 1
    assert len(dice.asked) == 1
    mended = Dice()
    mended.identity = "dice with another key"
    assert run(store, mended, now=NOW + HOUR - 1).left == 0
    assert list_problems(store) == []


@pytest.mark.parametrize("spoil", [lambda made: made[:-1], lambda made: [v[:-4] for v in made], lambda made: made * 2])
def test_other_vectors_than_asked_for_are_never_stored(store: Store, spoil):
    add_chunk(store, "x")
    dice = Dice()
    honest = dice.embed_documents
    dice.embed_documents = lambda texts: spoil(honest(texts))
    report = run(store, dice)
    assert report.left == 1
    assert "8 numbers" in report.problem
    assert vectors_by_chunk(store, 1) == {}


def refuses(*poison: str, error: type[Exception] = TextRefusedError):
    def fail(texts) -> None:
        if any(bad in text for bad in poison for text in texts):
            raise error("400")

    return fail


def test_one_refused_text_is_set_aside_with_a_record_and_holds_nobody_up(store: Store):
    ids = [add_chunk(store, "poison" * 3 if n == 11 else f"text {n}") for n in range(20)]
    dice = Dice(fail=refuses("p", "o", "i"))
    report = run(store, dice)
    assert (report.embedded, report.refused, report.left, report.problem) == (19, 1, 0, None)
    assert set(vectors_by_chunk(store, 1)) == set(ids) - {ids[11]}
    assert "takes 1 of the texts" in find_problem(store, PART_REFUSED).message
    asked = len(dice.asked)
    add_chunk(store, "new")
    assert run(store, dice).embedded == 1
    assert len(dice.asked) == asked + 1
    assert run(store, Dice("another")).embedded == 21
    assert list_problems(store) == []


def test_a_text_that_is_too_long_is_embedded_by_its_beginning(store: Store):
    ident = add_chunk(store, "long " * 100)

    def fail(texts) -> None:
        if any(len(text) > 130 for text in texts):
            raise TextRefusedError("too long")

    dice = Dice(fail=fail)
    assert run(store, dice).embedded == 1
    assert vectors_by_chunk(store, 1)[ident] == stored(dice.embed_query("long " * 25))


def test_a_provider_that_refuses_everything_is_a_problem_and_no_text_is_blamed(store: Store):
    for n in range(8):
        add_chunk(store, f"text {n}")
    report = run(store, Dice(fail=refuses("")))
    assert (report.left, report.refused, report.problem) == (8, 0, "400")


def test_a_text_that_breaks_the_server_is_found_after_some_runs(store: Store):
    for n in range(9):
        add_chunk(store, "poison" if n == 4 else f"text {n}")
    dice, now = Dice(fail=refuses("p", error=ServerFaultError)), NOW
    for _ in range(3):
        assert run(store, dice, now=now).left == 9
        now = find_problem(store, PART).retry_at
    report = run(store, dice, now=now)
    assert (report.embedded, report.refused, report.left, report.problem) == (8, 1, 0, None)


def test_a_server_that_is_down_for_days_never_costs_a_text_its_turn(store: Store):
    add_chunk(store, "x")
    down, now = Dice(fail=refuses("", error=ServerFaultError)), NOW
    for _ in range(8):
        assert run(store, down, now=now).refused == 0
        now = find_problem(store, PART).retry_at
    assert run(store, Dice(), now=now).embedded == 1


def test_paid_tokens_are_booked_even_when_the_vectors_do_not_arrive(store: Store):
    add_chunk(store, "x")
    dice = Dice(fail=Script(DeniedError("403")))
    dice.provider, dice.model, dice.tokens = "openai", "text-embedding-3-small", 1_000_000
    run(store, dice)
    assert store.rows("SELECT purpose, provider, input_tokens, usd FROM costs") == [
        ("embedding", "openai", 1_000_000, 0.02)
    ]


def test_a_new_model_fills_beside_the_old_one_and_takes_over_when_complete(store: Store):
    for n in range(4):
        add_chunk(store, str(n))
    run(store, Dice("old"))
    report = run(store, Dice("new"), batch=2, should_stop=iter([False, True]).__next__)
    assert report.left == 2
    assert vectors.serving_generation(store).model == "old"
    run(store, Dice("new"), batch=2)
    assert [g.model for g in vectors.generations(store)] == ["new"]


def test_a_new_model_takes_over_an_emptied_store_without_being_asked_anything(store: Store):
    ident = add_chunk(store, "x")
    run(store, Dice("old"))
    with store.transaction():
        vectors.delete_vectors(store, [ident])
        store.execute("DELETE FROM chunks")
    run(store, NeverLoaded("new"))
    assert [g.model for g in vectors.generations(store)] == ["new"]


def test_another_process_that_changes_the_model_meanwhile_ends_the_run(store: Store):
    add_chunk(store, "x")
    run(store, Dice("old"))

    def change_back(texts) -> None:
        with Store.open(store.path) as other:
            vectors.ensure_generation(other, "dice", "old", 8, NOW)

    dice = Dice("new", fail=change_back)
    assert "another process" in run(store, dice).problem
    assert len(dice.asked) == 1


@pytest.mark.slow
def test_two_at_once_make_every_vector_once(store: Store):
    for n in range(300):
        add_chunk(store, str(n))

    def work() -> None:
        with Store.open(store.path) as mine:
            embed_pending(mine, Dice(), now=NOW, batch=7)

    at_once(*[work] * 4)
    assert len(vectors_by_chunk(store, 1)) == 300
    assert vector_counts(store, 1) == VectorCounts(stored=300, pending=0, refused=0)


@pytest.mark.slow
def test_killed_at_any_statement_and_run_again_nothing_is_lost_or_doubled(tmp_path: Path):
    template, is_killed, statement = tmp_path / "template", True, 0
    with open_store(template) as store:
        for n in range(3):
            add_chunk(store, f"{n % 2}")
        run(store, Dice("old"))
        add_chunk(store, "poison")
    while is_killed:
        statement += 1
        folder = tmp_path / str(statement)
        shutil.copytree(template, folder)
        with open_store(folder) as store:
            new = Dice("new", fail=refuses("p"))
            with killed_at(store, statement) as killed:
                run(store, new, batch=2)
            is_killed = killed.is_killed
        with open_store(folder) as store:
            run(store, Dice("new", fail=refuses("p")), batch=2)
            serving = vectors.serving_generation(store)
            assert [g.id for g in vectors.generations(store)] == [serving.id]
            assert vectors_by_chunk(store, serving.id) == {
                ident: stored(new.embed_query(text))
                for ident, text in store.rows("SELECT id, text FROM chunks WHERE id < 4")
            }
            assert vector_counts(store, serving.id) == VectorCounts(stored=3, pending=0, refused=1)
            assert store.value("SELECT count(*) FROM sqlite_schema WHERE name GLOB 'chunks_vec_*_rowids'") == 1
    assert statement > 30


@pytest.mark.slow
def test_a_hook_with_nothing_new_loads_no_model_and_no_numpy(tmp_path: Path):
    code = (
        "import sys; from pathlib import Path; from crystal.store import Store\n"
        "from crystal.embedding.chosen_embedder import make_embedder\n"
        "from crystal.embedding.pending import embed_pending\n"
        "store = Store.open(Path(sys.argv[1]) / 'crystal.db')\n"
        "for provider in ('embedded', 'openai', 'ollama', 'google', 'voyage'):\n"
        "    embed_pending(store, make_embedder(provider, key='k'), now=1)\n"
        "print([name for name in ('numpy', 'httpx', 'openai', 'ssl') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
