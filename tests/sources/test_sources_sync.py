"""What a sync does with one file: what is read, embedded, cleaned and named."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from crystal.errors import UnavailableError
from crystal.redact import Redactor
from crystal.sources import sync as sync_module
from crystal.store import Store
from crystal.store.sources.source_files import all_sources
from tests.support.source_folder import DAY_NS, Folder, held, quick_store, sync


@pytest.fixture
def store(tmp_path: Path):
    with quick_store(tmp_path / "crystal.db") as store:
        yield store


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path.resolve() / "notes")


def ids(store: Store) -> list[int]:
    return [ident for (ident,) in store.rows("SELECT id FROM chunks ORDER BY id")]


@pytest.mark.parametrize(
    ("renames", "report"),
    [
        ([("a.md", "deep/b.md")], (1, 0, 0, 0)),
        ([("a.md", "c.md")], (1, 0, 0, 0)),  # over another file, as programs do that save whole
        ([("same", "moved")], (3, 0, 0, 0)),
        ([("a.md", "x"), ("c.md", "a.md"), ("x", "c.md")], (0, 0, 0, 2)),
    ],
    ids=["to a new name", "over another file", "a folder of equal files", "two files for each other"],
)
def test_a_renamed_file_keeps_its_chunks(store: Store, folder: Folder, renames, report) -> None:
    folder.write("a.md", b"# One\n\nwords\n\n# Two\n\nmore")
    folder.write("c.md", b"# Three\n\nothers")
    for name in ("a.md", "b.md", "sub/a.md"):
        folder.write(f"same/{name}", b"the same")
    sync(store, folder.root)
    before = ids(store)
    for old, new in renames:
        (folder.root / new).parent.mkdir(exist_ok=True)
        (folder.root / old).rename(folder.root / new)
    done = sync(store, folder.root)
    assert (done.renamed, done.added, done.removed, done.changed) == report
    assert done.chunks_new == 0
    assert set(ids(store)) <= set(before)
    assert [path for (path,) in store.rows("SELECT path FROM source_files ORDER BY path")] == folder.files()


def test_what_moves_from_one_file_to_another_keeps_its_chunk(store: Store, folder: Folder) -> None:
    folder.write("a.md", b"# One\n\nwords\n\n# Two\n\nmore")
    folder.write("b.md", b"# Three\n\nothers")
    sync(store, folder.root)
    before = ids(store)
    folder.write("a.md", b"# One\n\nwords")
    folder.write("b.md", b"# Two\n\nmore\n\n# Three\n\nothers")
    report = sync(store, folder.root)
    assert (report.changed, report.chunks_new, report.chunks_kept) == (2, 0, 3)
    assert ids(store) == before


def test_an_edit_of_one_paragraph_makes_one_chunk_new(store: Store, folder: Folder) -> None:
    folder.write("a.md", b"# One\n\nwords\n\n# Two\n\nmore\n\n# Three\n\nrest")
    sync(store, folder.root)
    before = ids(store)
    folder.write("a.md", b"preface\n\n# One\n\nwords\n\n# Two\n\nother\n\n# Three\n\nrest")
    report = sync(store, folder.root)
    assert (report.changed, report.chunks_new, report.chunks_kept) == (1, 2, 2)
    assert set(before) - set(ids(store)) == {before[1]}
    lines = "SELECT first_line FROM sources WHERE chunk = ?"
    assert [store.value(lines, (ident,)) for ident in (before[0], before[2])] == [3, 11]


def test_an_unchanged_file_is_not_read_again(store: Store, folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.write("a.md", b"words")
    folder.write("image.png", b"\0")
    sync(store, folder.root, later_ns=DAY_NS)
    monkeypatch.setattr(sync_module, "read_content", lambda *_: pytest.fail("it was read"))
    report = sync(store, folder.root, later_ns=DAY_NS)
    assert report.unchanged == 1
    assert [tuple(one) for one in report.skipped] == [("image.png", "binary")]


def test_an_edit_of_equal_size_within_the_clocks_tick_is_seen(store: Store, folder: Folder) -> None:
    path = folder.root / "a.md"
    path.write_bytes(b"one")
    moment = time.time_ns()
    os.utime(path, ns=(moment, moment))
    sync(store, folder.root)
    path.write_bytes(b"two")
    os.utime(path, ns=(moment, moment))
    assert sync(store, folder.root).changed == 1
    assert store.value("SELECT text FROM chunks") == "two"


def test_touching_a_file_changes_nothing(store: Store, folder: Folder) -> None:
    folder.write("a.md", b"words")
    sync(store, folder.root, later_ns=DAY_NS)
    before = store.rows("SELECT * FROM chunks")
    os.utime(folder.root / "a.md", ns=(1, 1))
    report = sync(store, folder.root, later_ns=DAY_NS)
    assert (report.unchanged, report.changed) == (1, 0)
    assert store.rows("SELECT * FROM chunks") == before


def test_a_folder_that_is_away_keeps_its_rows(store: Store, folder: Folder) -> None:
    folder.write("a.md", b"words")
    sync(store, folder.root)
    before = held(store)
    folder.root.rename(folder.root.with_name("away"))
    with pytest.raises(UnavailableError):
        sync(store, folder.root)
    assert held(store) == before


def test_a_file_that_cannot_be_read_keeps_its_rows(store: Store, folder: Folder, monkeypatch) -> None:
    folder.write("a.md", b"words")
    sync(store, folder.root)
    before = held(store)

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(sync_module, "read_content", refuse)
    folder.write("a.md", b"other")
    report = sync(store, folder.root)
    assert ([tuple(one) for one in report.skipped], report.unchanged) == ([("a.md", "permission denied")], 1)
    assert held(store) == before


def test_secrets_and_private_spans_stay_out_and_lines_keep_their_numbers(store: Store, folder: Folder) -> None:
    key = "-----BEGIN RSA PRIVATE KEY-----\n" + "QUJD" * 16 + "\n" + "REVG" * 16 + "\n-----END RSA PRIVATE KEY-----"
    folder.write("a.md", f"# A\n\n{key}\n\n<private>\nmy\ndiary\n</private>\n\n# B\n\nplain words".encode())
    report = sync(store, folder.root, clean=Redactor(b"k" * 32, keeps_lines=True).clean_text)
    texts = "\n".join(text for (text,) in store.rows("SELECT text FROM chunks"))
    assert "QUJD" not in texts
    assert "diary" not in texts
    assert "plain words" in texts
    assert sum(report.redacted.values()) == 2
    assert store.rows("SELECT title, first_line, last_line FROM sources ORDER BY chunk") == [("A", 1, 8), ("B", 13, 15)]


def test_a_name_with_a_secret_is_left_out(store: Store, folder: Folder) -> None:
    token = "ghp_" + "a1B2c3D4e5F6g7H8i9J0" * 2
    folder.write(f"{token[:40]}.md", b"words")
    report = sync(store, folder.root, clean=Redactor(b"k" * 32).clean_text)
    assert [why for _, why in report.skipped] == ["its name has a secret"]
    assert token[:40] not in f"{report.skipped} {held(store)}"
    assert not store.rows("SELECT id FROM chunks")


def test_another_way_of_reading_reads_all_files_again(store: Store, folder: Folder, monkeypatch) -> None:
    folder.write("a.md", b"words\n\nsecret")
    sync(store, folder.root, later_ns=DAY_NS)
    source = all_sources(store)[0]
    reader = sync_module.SourceReader(
        lambda text: (text.replace("secret", ""), {}),
        b"k" * 32,
        sync_module.Maker("agent", "box"),
        (),
        "2",
        time.time_ns,
    )
    assert sync_module.SourceSync(store, source, reader).run().changed == 1
    assert "secret" not in store.value("SELECT text FROM chunks")


def test_a_stopped_sync_deletes_nothing_and_the_next_one_goes_on(store: Store, folder: Folder) -> None:
    for number in range(5):
        folder.write(f"{number}.md", b"words %d" % number)
    sync(store, folder.root)
    folder.rename("0.md", "z.md")
    source, reader = all_sources(store)[0], sync_module.SourceReader(
        lambda text: (text, {}), b"k" * 32, sync_module.Maker("agent", "box"), (), "1", time.time_ns
    )  # fmt: skip
    before = ids(store)
    assert not sync_module.SourceSync(store, source, reader).run(should_stop=lambda: True).is_whole
    assert ids(store) == before
    assert sync(store, folder.root).renamed == 1
    assert ids(store) == before
