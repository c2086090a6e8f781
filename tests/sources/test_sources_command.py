"""``crystal sources`` and what it brings: searching, showing, forgetting, verifying and repairing files."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from crystal import Crystal
from crystal.app.context import open_machine
from crystal.app.source_list import list_sources
from crystal.config.paths import SOURCES_FILE
from crystal.mcp.handlers import ClientContext
from crystal.store.sync import mirror, mirror_export
from tests.support.command import crystal
from tests.support.examples import part_of
from tests.support.mcp_client import Tools

TOKEN = "ghp_" + "kJ8sLm2Qw9ZxCv4BnT6yUiOpAsDfGh1JqRtE"


def hit(query: str, *options: str) -> dict:
    return json.loads(crystal("search", query, *options, "--json").out)["hits"][0]


def test_add_says_what_was_read_and_what_was_not(notes: Path) -> None:
    done = crystal("sources", "add", str(notes), "--name", "my notes")
    assert done.code == 0
    assert "my notes: 2 added; 3 of 3 chunks new; 2 files in all" in done.out
    assert "not indexed: 1 file\n    image.png: binary" in done.out
    assert crystal("sources", "add", str(notes)).out.startswith("my notes: nothing new; 2 files in all")


def test_status_counts_what_a_sync_could_not_index_whatever_the_reason(notes: Path) -> None:
    os.mkfifo(notes / "pipe.md")
    (notes / "a (conflicted copy 2026-11-25).md").write_text("okapi")
    (notes / os.fsdecode(b"\xff.md")).write_text("okapi")
    (notes / f"ghp_{'a1B2c3D4e5F6g7H8i9J0' * 2}"[:-4]).write_text("okapi")
    for _ in range(2):
        assert "not indexed: 5 files" in crystal("sources", "add", str(notes)).out
        assert "2 files, 5 not indexed" in crystal("sources", "status").out
    for path in notes.iterdir():
        if path.suffix != ".md" or "conflict" in path.name:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert "not indexed: 2 files" in crystal("sources", "sync").out
    assert "1 file, 2 not indexed" in crystal("sources", "status").out
    (notes / "pipe.md").unlink()
    (notes / "pipe.md").write_text("okapi")
    assert ("1 added" in crystal("sources", "sync").out, hit("okapi")["file"]["path"]) == (True, "pipe.md")


def test_a_search_finds_files_beside_conversations_and_show_opens_them(added: Path) -> None:
    found = hit("zebracorn")
    assert found["file"] == {
        "name": "notes", "folder": str(added), "path": "a.md", "title": "Deploy > Rollback", "first_line": 5, "last_line": 7,
    }  # fmt: skip
    assert found["text"] == "## Rollback\n\nRun the zebracorn script."
    assert (found["source"], found["role"], found["session_id"]) == ("file", "source", None)
    said = crystal("search", "zebracorn").out
    assert "file · notes · a.md:5-7 · Deploy > Rollback" in said
    shown = crystal("show", f"h{found['id']}").out
    assert "a.md:5-7" in shown
    assert "We use blue green" in shown, "the chunk before it is shown around it"


@pytest.mark.slow
def test_the_filter_by_source_takes_names(added: Path, home: Path) -> None:
    other = home / "other"
    other.mkdir()
    (other / "z.md").write_text("another zebracorn")
    crystal("sources", "add", str(other))
    assert hit("zebracorn", "--source", "other")["file"]["name"] == "other"
    assert hit("zebracorn", "--source", "notes")["file"]["name"] == "notes"
    assert len(json.loads(crystal("search", "zebracorn", "--source", "file", "--json").out)["hits"]) == 2
    assert "no source 'nots'; did you mean notes?" in crystal("search", "zebracorn", "--source", "nots").err


def test_names_and_folders_that_cannot_be_used(added: Path, home: Path) -> None:
    (home / "new").mkdir()
    for words, message in (
        ([str(added / "a.md")], "is a file, not a folder"),
        ([str(added / "sub")], "overlap"),
        ([str(home)], "overlap"),
        ([str(home / "new"), "--name", "NOTES"], "there is a source notes already"),
        ([str(home / "new"), "--name", "memory"], "stands for a kind of source"),
        ([str(home / "new"), "--name", "a/b"], "cannot be used"),
        ([str(home / ".ldm")], "which crystal never indexes"),
    ):
        done = crystal("sources", "add", *words)
        assert (done.code, message in done.err) == (2, True), done.err
    gone = crystal("sources", "add", str(home / "gone"))
    assert (gone.code, "gone does not exist" in gone.err) == (1, True)
    assert [one["name"] for one in json.loads(crystal("sources", "--json").out)["sources"]] == ["notes"]


def test_remove_leaves_nothing_behind(added: Path, home: Path) -> None:
    crystal("sync")
    note = (added / "a.md").read_text()
    assert crystal("sources", "remove", "notes").code == 2, "it asks first"
    done = crystal("sources", "remove", "notes", "--yes", "--prove")
    assert "proved: searched every byte" in done.out, done
    for path in (home / ".ldm").rglob("*"):
        if path.is_file():
            assert b"zebracorn" not in path.read_bytes().lower()
            assert b"quagga" not in path.read_bytes().lower()
    assert not json.loads(crystal("search", "zebracorn", "--json").out)["hits"]
    assert (added / "a.md").read_text() == note
    assert crystal("sources", "remove", "notes", "--yes").code == 1


def test_a_killed_removal_is_finished_by_the_next_sync(added: Path, home: Path) -> None:
    path = home / ".ldm" / SOURCES_FILE
    path.write_text('{"schema": 1, "sources": []}')
    assert crystal("sources", "sync").code == 0
    assert not json.loads(crystal("search", "zebracorn", "--json").out)["hits"]
    assert all(b"zebracorn" not in one.read_bytes() for one in (home / ".ldm").rglob("*") if one.is_file())


def test_a_lost_list_is_written_again(added: Path, home: Path) -> None:
    path = home / ".ldm" / SOURCES_FILE
    before = path.read_bytes()
    path.unlink()
    assert crystal("sources", "sync").out.startswith("notes: nothing new")
    assert path.read_bytes() == before
    path.write_text("{")
    assert crystal("sources", "sync").code == 6


def test_a_lost_list_still_says_which_folder_is_a_vault(added: Path, home: Path) -> None:
    crystal("sources", "add", str(added), "--vault")
    (home / ".ldm" / SOURCES_FILE).unlink()
    assert crystal("sources", "sync").out.startswith("notes: nothing new")
    assert json.loads((home / ".ldm" / SOURCES_FILE).read_text())["sources"][0]["is_vault"] is True


def test_what_was_interrupted_is_named_with_the_command_that_ends_it(added: Path) -> None:
    with open_machine() as machine, machine.store.transaction():
        machine.store.execute("UPDATE source_collections SET synced_at = NULL")
    done = crystal("verify")
    assert (done.code, done.err) == (1, "crystal: hint: run: crystal sources sync\n")
    assert crystal("sources", "sync").code == 0
    assert crystal("verify").code == 0


def test_a_hit_in_a_file_fits_into_80_columns(added: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    headline, text = crystal("search", "zebracorn", "-n", "1").out.splitlines()[:2]
    assert headline == "1. file · notes · a.md:5-7 · Deploy > Rollback · just now · fresh"
    assert text.strip() == "Run the zebracorn script."


def test_status_names_the_folders(added: Path) -> None:
    assert "sources      notes 2 files\n" in crystal("status").out
    (source,) = json.loads(crystal("status", "--json").out)["sources"]
    assert (source["folder"], source["files"], source["is_here"]) == (str(added), 2, True)


def test_watching_is_said_only_when_it_works(added: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    for words in (("sources", "watch"), ("watch",)):
        done = crystal(*words)
        assert (done.code, done.err.splitlines()[0]) == (3, "crystal: error: the package watchfiles is not installed")


def test_the_list_survives_the_loss_of_the_database(added: Path, home: Path) -> None:
    for path in (home / ".ldm/memory").glob("crystal.db*"):
        path.unlink()
    assert crystal("verify", "--repair").code == 0
    assert hit("zebracorn")["file"]["path"] == "a.md"


def test_verify_finds_and_repairs_lost_chunks(added: Path) -> None:
    assert crystal("verify").code == 0
    with open_machine() as machine, machine.store.transaction():
        machine.store.execute("DELETE FROM chunks WHERE id = (SELECT min(chunk) FROM sources)")
    assert crystal("verify").code == 6
    assert crystal("verify", "--repair").code == 0
    assert crystal("verify").code == 0
    assert hit("zebracorn")["file"]["path"] == "a.md"


def test_files_are_never_told_unasked_and_stay_on_this_machine(added: Path) -> None:
    assert "zebracorn" not in crystal("context").out
    with open_machine() as machine:
        mirror.begin(machine.store, lambda size: b"r" * size, 1)
        (added / "c.md").write_text("one more file")
        crystal("sources", "sync")
        (added / "a.md").unlink()
        crystal("sources", "sync")
        machine.store.execute("UPDATE chunks SET text_sha256 = substr(text_sha256, 1, 4) WHERE source = 'file'")
        assert not mirror_export.decide(machine.store, lambda size: b"s" * size, 2)


@pytest.mark.parametrize(("folder", "options"), [(f"backup-{TOKEN}", ()), ("plain", ("--name", TOKEN))])
def test_a_secret_in_the_name_or_the_path_of_a_source_is_refused(home: Path, folder: str, options: tuple) -> None:
    (home / folder).mkdir()
    done = crystal("sources", "add", str(home / folder), *options)
    assert done.code == 2
    assert "has a secret" in done.err
    assert TOKEN not in done.err
    assert not any(TOKEN.encode() in path.read_bytes() for path in (home / ".ldm").rglob("*") if path.is_file())


def test_a_file_that_icloud_takes_off_the_disk_is_still_found(added: Path) -> None:
    (added / "a.md").rename(added / ".a.md.icloud")
    (added / ".a.md.icloud").write_bytes(b"bplist00")
    done = crystal("sources", "sync")
    assert "nothing new; 2 files in all" in done.out
    assert "a.md: in iCloud, not downloaded" in done.out
    assert hit("zebracorn")["file"]["path"] == "a.md"


def test_plain_sync_reads_the_sources_too(added: Path) -> None:
    (added / "new.md").write_text("the numbat sings")
    assert crystal("sync").out == "notes: 1 added\n"
    assert hit("numbat")["file"]["path"] == "new.md"
    assert crystal("sync").out == "nothing new\n"
    (added / "new.md").unlink()
    assert json.loads(crystal("sync", "--json").out)["sources"][0]["removed"] == 1
    shutil.move(added, added.with_name("away"))
    assert "source notes: the folder" in crystal("sync").err


def test_a_hit_in_a_file_is_not_forgotten_but_explained(added: Path) -> None:
    done = crystal("forget", f"h{hit('zebracorn')['id']}", "--yes")
    assert done.code == 2
    assert f"this is in your file {added}/a.md" in done.err


@pytest.mark.parametrize("is_said", part_of([True, False]))
def test_forgetting_words_names_the_files_that_have_them(added: Path, *, is_said: bool) -> None:
    (added / "long.md").write_text("# Zebracorn\n\n" + "filler words " * 2_000 + "\n\n# Script\n")
    crystal("sources", "sync")
    if is_said:
        crystal("remember", "the zebracorn script is slow")
    done = crystal("forget", "--query", "script zebracorn", "--dry-run")
    assert done.code == (not is_said)
    assert "and still found: 2 files of your sources with these words:" in done.out
    assert f"  {added}/a.md\n" in done.out
    assert f"  {added}/long.md\n" in done.out, "words in two chunks of a file"
    assert "run: crystal sources sync" in done.out
    shown = json.loads(crystal("forget", "--query", "quagga", "--dry-run", "--json").out)
    assert shown["source_files"] == [str(added / "sub" / "b.py")]
    (added / ".crystalignore").write_text("*.md\n")
    crystal("sources", "sync")
    assert "your sources" not in crystal("forget", "--query", "script zebracorn", "--dry-run").out


def test_forgetting_is_proved_although_a_file_says_the_same(added: Path) -> None:
    ident = crystal("remember", "Run the zebracorn script.").out.split()[-1].rstrip(".")
    memory = json.loads(crystal("memories", "--json").out)["memories"][0]["id"]
    done = crystal("forget", memory, "--yes", "--prove")
    assert done.code == 0, ident
    assert "nothing of it is left" in done.out
    assert hit("zebracorn")["file"]["path"] == "a.md"


def test_a_git_project_is_searched_with_its_files(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = home / "shop"
    (project / ".git").mkdir(parents=True)
    (project / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (project / "README.md").write_text("the okapi service")
    crystal("sources", "add", str(project))
    assert hit("okapi")["project"] == "shop"
    assert hit("okapi", "--project", "shop")["file"]["path"] == "README.md"


def test_the_python_interface(notes: Path) -> None:
    with Crystal(create=True) as memory:
        assert memory.sources_add(notes, "n").added == 2
        (notes / "sub" / "b.py").unlink()
        assert memory.sources_sync("n")[0].removed == 1
        state = memory.sources_status()[0]
        assert (state.name, state.files, state.skipped, state.chunks, state.waiting) == ("n", 1, 1, 2, 0)
        assert memory.sources_remove("n").chunks == 2
        assert not memory.sources_status()


def test_tools_of_the_mcp_server(notes: Path, home: Path) -> None:
    Crystal(create=True).close()
    tools = Tools(ClientContext(folder=str(home)))
    assert tools.data("crystal_sources_status")["number"] == 0
    data = tools.data("crystal_sources_add", path="notes", name="n")
    assert (data["sources"][0]["added"], data["sources"][0]["first_not_indexed"], data["is_done"]) == (
        2,
        ["image.png: binary"],
        True,
    )
    found = tools.data("crystal_search", query="zebracorn", source="n")["hits"][0]
    assert found["file"] == {"source": "n", "path": f"{notes}/a.md", "title": "Deploy > Rollback", "lines": "5-7"}
    assert found["origin"] == "file"
    assert "n: a.md:5-7" in tools.text("crystal_get", id=found["id"])
    assert tools.data("crystal_sources_sync")["sources"][0]["unchanged"] == 2
    for path in ("/etc", "..", "notes/../.."):
        assert "crystal sources add" in str(tools.call("crystal_sources_add", path=path))


def test_a_folder_that_is_away_does_not_stop_the_others(added: Path, home: Path) -> None:
    other = home / "other"
    other.mkdir()
    (other / "z.md").write_text("words")
    crystal("sources", "add", str(other))
    added.rename(home / "away")
    (other / "y.md").write_text("more words")
    done = crystal("sources", "sync")
    assert done.code == 0
    assert "other: 1 added" in done.out
    assert "source notes: the folder" in done.err
    assert "NOT THERE" in crystal("sources").out
    assert crystal("sources", "sync", "notes").code == 4
    with open_machine() as machine:
        assert {one.name: one.files for one in list_sources(machine)} == {"notes": 2, "other": 2}
