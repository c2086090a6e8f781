"""Notes of Obsidian: their names and tags count in every section, and conflict copies are named."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from crystal.sources.obsidian import name_of
from tests.support.command import crystal
from tests.support.source_folder import Folder, quick_store, sync
from tests.support.table import each_row

NOTE = '---\ntitle: "Plan: B"\ntags: [work, deploy/prod]\naliases:\n  - Beta\n---\n# Steps\n\nask [[Alice Okapi|her]] #soon\n'


@each_row(
    ("text", "title", "aliases", "tags"),
    [
        (NOTE, "Plan: B", ("Beta",), ("work", "deploy/prod", "soon")),
        ("no front matter #one, (#two) [#three] a#no #12 ##no", "My Note", (), ("one", "two", "three")),
        ("---\ntags: a, b\nalias: X\n---\n", "My Note", ("X",), ("a", "b")),
        ("---\ntags:\n- '#a'\n- b\n- \n---\n#a", "My Note", (), ("a", "b")),
        ("---\nnever closed\ntags: [a]\n", "My Note", (), ()),
        ("---\n&a [*a, *a]\ntitle:\n---\n", "My Note", (), ()),
        ("text\n---\ntags: [a]\n---\n", "My Note", (), ()),
        ('---\ntags:\n- a\nsee-also:\n- b\n"alias": X\n---\n', "My Note", ("X",), ("a",)),
        ("```c\n#include <a>\n```\n`a #b` %%\n#c %% [x](#d) [[#e]] [[A|#f]] #g\n~~~\n#h", "My Note", (), ("g",)),
    ],
)
def test_what_names_a_note(text: str, title: str, aliases: tuple[str, ...], tags: tuple[str, ...]) -> None:
    assert tuple(name_of("folder/My Note.md", text)) == (title, aliases, tags)


@given(st.text(max_size=300), st.lists(st.sampled_from(["---", "tags:", "- a", "title: x", "#t", ""]), max_size=12))
def test_any_text_has_a_name_of_one_short_line(text: str, lines: list[str]) -> None:
    for one in (text, "\n".join(lines), "---\n" + "\n".join(lines) + "\n---\n" + text):
        name = name_of("a.md", one)
        assert name.title
        assert "\n" not in name.title_of("Head")
        assert len(name.tags) <= 12


def test_tags_links_and_titles_are_found(home: Path) -> None:
    vault = home / "Vault"
    (vault / ".obsidian").mkdir(parents=True)
    (vault / ".obsidian" / "app.json").write_text('{"okapi": 1}')
    (vault / "b.md").write_text(NOTE)
    (vault / "Quagga.md").write_text("![[Picture of stripes.png]]")
    (vault / "b (Anna's conflicted copy 2026-11-25).md").write_text("okapi")
    (vault / "b.sync-conflict-20261125-101112-ABCDEFG.md").write_text("okapi")
    (vault / "Talk (conflict of 2026).md").write_text("no copy")
    done = crystal("sources", "add", str(vault), "--vault")
    assert (done.out.count("a conflict copy of b.md"), done.out.count("a conflict copy")) == (2, 2)
    for words, path in (
        ("okapi", "b.md"), ("prod", "b.md"), ("Beta", "b.md"), ("plan", "b.md"), ("quagga", "Quagga.md"), ("stripes", "Quagga.md")
    ):  # fmt: skip
        hits = json.loads(crystal("search", words, "--json").out)["hits"]
        assert hits[0]["file"]["path"] == path, words
    assert hits[0]["file"]["title"] == "Quagga"
    assert "Plan: B (Beta) > Steps #work #deploy/prod #soon" in crystal("search", "okapi").out


def test_a_numbered_copy_is_known_by_what_it_says(tmp_path: Path) -> None:
    folder, lines = Folder(tmp_path.resolve() / "vault"), [f"line {number} of the note" for number in range(9)]
    said, other = ("\n".join([*lines, word]).encode() for word in ("gnu", "yak"))
    names = ("a/Note", "a/Note 2", "a/Note (1)", "a/Note-LAPTOP-K2", "a/Note-Anns-MacBook-Air", "a/Note-long")
    for name in (*names, "Part", "Part 1", "Part 2", "Part-II", "Alone 2", "Plan"):
        folder.write(f"{name}.md", other if "2" in name else said)
    folder.write("Part-II.md", b"the second part\n" * 9)
    folder.write("Plan 2.md", b"another plan\n" * 9)
    folder.write("Talk.md", b"What was said in the meeting with Anna")
    folder.write("Talk 2.md", b"What was said in the meeting with Bert")
    folder.write("Empty.md", b"")
    folder.write("Empty 2.md", b"")
    with quick_store(tmp_path / "a.db") as store:
        wrong = dict.fromkeys((f"{name}.md" for name in names[1:5]), "nearly the same as a/Note.md: a copy?")
        assert dict(sync(store, folder.root, is_vault=True).skipped) == wrong
        assert dict(sync(store, folder.root, is_vault=True).skipped) == wrong
        folder.delete("a/Note.md")
        report = sync(store, folder.root, is_vault=True)
        assert (report.skipped, report.added, report.renamed, report.removed) == ([], 3, 1, 0)


def test_a_renamed_note_gets_its_new_name_and_keeps_what_has_a_title_of_its_own(tmp_path: Path) -> None:
    folder = Folder(tmp_path.resolve() / "vault")
    folder.write("own.md", NOTE.encode())
    folder.write("old.md", b"words")
    with quick_store(tmp_path / "a.db") as store:
        sync(store, folder.root, is_vault=True)
        before = dict(store.rows("SELECT f.path, x.chunk FROM sources x JOIN source_files f ON f.id = x.file"))
        folder.rename("own.md", "sub/else.md")
        folder.rename("old.md", "new.md")
        report = sync(store, folder.root, is_vault=True)
        assert (report.renamed, report.chunks_new) == (2, 1)
        titles = dict(store.rows("SELECT f.path, x.title FROM sources x JOIN source_files f ON f.id = x.file"))
        assert titles["new.md"] == "new"
        after = dict(store.rows("SELECT f.path, x.chunk FROM sources x JOIN source_files f ON f.id = x.file"))
        assert after["sub/else.md"] == before["own.md"]


def test_a_folder_can_become_a_vault(home: Path) -> None:
    vault = home / "Vault"
    vault.mkdir()
    (vault / "Quagga.md").write_text("words")
    crystal("sources", "add", str(vault))
    assert "1 changed" in crystal("sources", "add", str(vault), "--vault").out
    assert json.loads(crystal("search", "quagga", "--json").out)["hits"][0]["file"]["title"] == "Quagga"
    assert "nothing new" in crystal("sources", "add", str(vault)).out
