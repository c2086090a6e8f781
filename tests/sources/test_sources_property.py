"""Whatever happens to a folder, and wherever a sync is killed: the store ends as a fresh one would."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from crystal.store.health import checks
from crystal.store.search.candidates import chunks_around
from crystal.store.sources import source_queries
from tests.support.examples import examples
from tests.support.killed import killed_at
from tests.support.source_folder import DAY_NS, Folder, held, quick_store, sync

PATHS = ("a.md", "b.md", "c.py", "sub/a.md", "sub/deep/d.txt", "sub", ".gitignore", "sub/.gitignore")
PARAGRAPH = st.sampled_from(
    ["# One", "## Two", "words here", "def f():\n    return 1", "other words", "", "```\n# x\n```"]
)
TEXT = st.lists(PARAGRAPH, max_size=6).map(lambda parts: "\n\n".join(parts).encode())
RULES = st.lists(st.sampled_from(["*.md", "!a.md", "sub/", "/b.md", "*.py", "# x", "deep"]), max_size=3)
CONTENT = st.one_of(TEXT, TEXT, st.sampled_from([b"", b"\0binary", b"\xff\xfe\xff", "ünï\r\n\r\n# Ö".encode()]))
CHANGE = st.one_of(
    st.tuples(st.just("write"), st.sampled_from(PATHS[:6]), CONTENT),
    st.tuples(st.just("write"), st.sampled_from(PATHS[6:]), RULES.map(lambda rules: "\n".join(rules).encode())),
    st.tuples(st.just("rename"), st.integers(0, 9), st.sampled_from(PATHS)),
    st.tuples(st.just("delete"), st.integers(0, 9), st.none()),
    st.tuples(st.just("sync"), st.integers(1, 120), st.booleans()),
)


@examples(40)
@given(st.lists(CHANGE, max_size=14), st.booleans())
def test_after_any_changes_and_killed_syncs_the_store_equals_a_fresh_one(changes, is_vault) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Folder(Path(name).resolve() / "notes")
        with quick_store(Path(name) / "a.db") as store, quick_store(Path(name) / "b.db") as fresh:
            for kind, what, how in changes:
                there = folder.files()
                if kind == "write":
                    folder.write(what, how)
                elif kind == "sync":
                    with killed_at(store, what):
                        sync(store, folder.root, later_ns=DAY_NS if how else 0, is_vault=is_vault)
                elif there and kind == "rename":
                    folder.rename(there[what % len(there)], how)
                elif there:
                    folder.delete(there[what % len(there)])
            assert sync(store, folder.root, is_vault=is_vault).is_whole
            sync(fresh, folder.root, is_vault=is_vault)
            assert held(store) == held(fresh)
            assert not source_queries.damaged_files(store, set())
            assert not source_queries.chunks_without_file(store)
            assert not checks.database_faults(store)
            assert not checks.chunks_with_wrong_hash(store)
            again = sync(store, folder.root, is_vault=is_vault)
            assert (again.added, again.changed, again.renamed, again.removed, again.chunks_new) == (0, 0, 0, 0, 0)


@given(TEXT, TEXT)
@examples(20)
def test_what_stays_in_a_file_keeps_its_chunks(before, after) -> None:
    with tempfile.TemporaryDirectory() as name, quick_store(Path(name) / "a.db") as store:
        folder = Folder(Path(name).resolve() / "notes")
        folder.write("a.md", before)
        sync(store, folder.root)
        old = dict(store.rows("SELECT id, text FROM chunks"))
        folder.write("a.md", after)
        sync(store, folder.root)
        new = dict(store.rows("SELECT id, text FROM chunks"))
        kept = sum(min(list(old.values()).count(text), list(new.values()).count(text)) for text in set(old.values()))
        assert len(old.keys() & new.keys()) == kept
        assert all(old[ident] == new[ident] for ident in old.keys() & new.keys())
        for ident in new:
            assert chunks_around(store, ident, 100) == [
                one for (one,) in store.rows("SELECT chunk FROM sources ORDER BY first_line, last_line, chunk")
            ]
