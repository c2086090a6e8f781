"""Search in a store that changes: every exact word is found that a naive reading finds, in one order, always."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from crystal.model.recall import Filters
from crystal.search import candidates
from crystal.search.index import bring_up_to_date
from crystal.search.request import SearchOptions
from crystal.store import Store
from crystal.store.search.space import delete_chunks
from tests.support.examples import examples
from tests.support.ranked_by import late_model, search
from tests.support.store_factory import NOW, Meaning, add_turn, embed_all, open_store

WORDS = ("zanzibar", "kettle", "lighthouse", "migration", "foo_bar", "数据库", "café", "4711")
ROLES = ("user", "assistant")


class Changing(RuleBasedStateMachine):
    """A store under inserts, deletes, vectors, refreshes and reopening, searched all the while."""

    folder: Path

    def __init__(self):
        super().__init__()
        self.number = 0

    @initialize(folder=st.uuids())
    def begin(self, folder):
        path = self.folder / str(folder)
        path.mkdir(exist_ok=True)
        for old in path.rglob("*.*"):
            old.unlink()
        self.store = open_store(path)

    @rule(words=st.lists(st.sampled_from(WORDS), min_size=1, max_size=3), role=st.sampled_from(ROLES),
          session=st.sampled_from(("s1", "s2")))  # fmt: skip
    def insert(self, words, role, session):
        self.number += 1
        text = f"{' and '.join(words)} in turn number{self.number}"
        add_turn(self.store, text, role=role, session=session, uuid=f"u{self.number}", offset=self.number)

    @rule(data=st.data())
    def delete(self, data):
        ids = [ident for (ident,) in self.store.rows("SELECT id FROM chunks ORDER BY id")]
        if ids:
            with self.store.transaction():
                delete_chunks(self.store, [data.draw(st.sampled_from(ids))])

    @rule()
    def embed(self):
        embed_all(self.store, Meaning())

    @rule()
    def refresh(self):
        bring_up_to_date(self.store, now=NOW, budget_seconds=60)

    @rule()
    def reopen(self):
        path = self.store.path
        self.store.close()
        self.store = Store.open(path)

    @rule(
        word=st.sampled_from(WORDS), role=st.none() | st.sampled_from(ROLES), meaning=st.booleans(), late=st.booleans()
    )
    def look(self, word, role, meaning, late):
        how = SearchOptions(late=late_model) if late else SearchOptions()
        filters, embedder = Filters(role=role), Meaning() if meaning else None

        def ask():
            return search(self.store, embedder, word, filters=filters, limit=200, now=NOW, how=how)

        result = ask()
        rows = self.store.rows("SELECT text, role FROM chunks")
        wanted = [text for text, said_by in rows if word in text and role in (None, said_by)]
        found = [hit for hit in result.hits if word in hit.text]
        if late:  # some stand behind one that is nearly the same
            assert len(found) + sum(hit.similar for hit in result.hits) >= len(wanted)
        else:
            assert sorted(hit.text for hit in found) == sorted(wanted)
        assert all(role in (None, hit.role) for hit in result.hits)
        assert ask() == result
        self.reopen()
        assert ask() == result

    def teardown(self):
        if hasattr(self, "store"):
            self.store.close()


@pytest.mark.slow
def test_every_exact_word_is_found_whatever_happened_before(tmp_path):
    class Here(Changing):
        folder = tmp_path

    Here.TestCase.settings = examples(10, stateful_step_count=15, suppress_health_check=list(HealthCheck))
    Here.TestCase().runTest()


@pytest.mark.slow
def test_a_refresh_that_changes_nothing_keeps_the_order(tmp_path):
    with open_store(tmp_path) as store:
        for number in range(60):
            add_turn(store, f"needle {WORDS[number % 8]} {number}", session=f"s{number % 5}")
        embed_all(store, Meaning())
        bring_up_to_date(store, now=NOW)
        for query in ("needle", "needle kettle", "migration 4711", "car"):
            first = search(store, Meaning(), query, now=NOW, limit=50)
            bring_up_to_date(store, now=NOW)
            assert search(store, Meaning(), query, now=NOW, limit=50) == first
            with Store.open(tmp_path / "crystal.db") as again:
                assert search(again, Meaning(), query, now=NOW, limit=50) == first


WRITER = """
import sys, pathlib
from crystal.search.index import bring_up_to_date
from crystal.store import Store
from tests.support.store_factory import NOW, Meaning, add_turn, embed_all
folder, me = pathlib.Path(sys.argv[1]), int(sys.argv[2])
with Store.open(folder / "crystal.db") as store:
    for number in range(12):
        add_turn(store, f"needle of writer{me} and nail{number} x{me}x{number}", session=f"w{me}",
                 uuid=f"{me}-{number}", offset=number)
        print(f"{me}-{number}", flush=True)
        if number % 4 == me % 4:
            bring_up_to_date(store, now=NOW + number * 1000)
"""


@pytest.mark.slow
def test_search_while_eight_writers_ingest_loses_nothing_and_never_fails(tmp_path):
    with open_store(tmp_path) as store:
        add_turn(store, "a needle from before", uuid="before")
        embed_all(store, Meaning())
        bring_up_to_date(store, now=NOW)
    root = str(Path(__file__).resolve().parent.parent.parent)
    logs = [tmp_path / f"out{number}" for number in range(8)]
    writers = []
    for number, log in enumerate(logs):
        with log.open("w") as out, log.with_suffix(".err").open("w") as err:
            command = [sys.executable, "-c", WRITER, str(tmp_path), str(number)]
            writers.append(subprocess.Popen(command, cwd=root, stdout=out, stderr=err))
    deadline = time.monotonic() + 120
    asked = 0
    with Store.open_existing(tmp_path / "crystal.db") as reader:
        while any(writer.poll() is None for writer in writers) and time.monotonic() < deadline:
            committed = {"before"}.union(*(log.read_text().split() for log in logs))
            result = search(reader, Meaning(), "needle", now=NOW, limit=1000)
            assert committed <= {hit.uuid for hit in result.hits}
            asked += 1
        assert [writer.wait(60) for writer in writers] == [0] * 8, [log.with_suffix(".err").read_text() for log in logs]
        hits = search(reader, None, "needle", now=NOW, limit=1000).hits
        assert len({hit.uuid for hit in hits}) == len(hits) == 97
    assert asked


@pytest.mark.parametrize(("most", "is_named"), [(4, False), (3, True)])
def test_texts_that_are_not_read_without_an_index_are_named(store, monkeypatch, most, is_named):
    monkeypatch.setattr(candidates, "FEW", 1)
    monkeypatch.setattr(candidates, "MAX_READ", most)
    for number, text in enumerate(("the lamp is amber", "rain", "wind", "snow")):
        add_turn(store, text, session=f"s{number}", ts=NOW - number)
    notes = search(store, None, "wind", now=NOW).notes
    assert any(f"only the newest {most} texts were searched for words" in note for note in notes) == is_named
