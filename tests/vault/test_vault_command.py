"""``crystal vault sync``: what is written, what is read back, and what is never touched."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from crystal.app.context import open_machine
from crystal.app.vault import vault_sync
from tests.support.command import Done, crystal
from tests.support.homes import live_in
from tests.support.kept_home import KeptHome


def make_vault(home: Path) -> None:
    crystal("remember", "we deploy on Fridays", "--project", "shop")
    crystal("remember", "okapis drink tea", "--key", "drink")
    assert crystal("vault", "sync", "--to", str(home / "Vault")).code == 0


@pytest.fixture(scope="module")
def kept_home(tmp_path_factory: pytest.TempPathFactory) -> KeptHome:
    return KeptHome(tmp_path_factory.mktemp("kept"), make_vault)


@pytest.fixture
def home(kept_home: KeptHome, monkeypatch: pytest.MonkeyPatch) -> Path:
    return kept_home.put_back(monkeypatch)


@pytest.fixture
def vault(home: Path) -> Path:
    return home / "Vault"


def note(vault: Path, beginning: str) -> Path:
    return next((vault / "memories").glob(f"{beginning}*.md"))


def sync(*words: str) -> Done:
    return crystal("vault", "sync", *words)


def texts() -> list[str]:
    return sorted(one["text"] for one in json.loads(crystal("memories", "--json").out)["memories"])


def tree(vault: Path) -> dict[str, bytes]:
    return {str(path.relative_to(vault)): path.read_bytes() for path in sorted(vault.rglob("*")) if path.is_file()}


def test_memories_logs_and_summaries_become_files_and_stay_as_they_are(vault: Path, home: Path) -> None:
    agent = home / ".ldm" / "agents" / "cc-mini" / "memory"
    for name in ("daily/2026-11-25.md", "daily/notes.md", "sessions/2026-11-25--abc.md"):
        (agent / name).parent.mkdir(parents=True, exist_ok=True)
        (agent / name).write_text(f"# {name}\n")
    (vault / "soul.md").write_text("mine")
    assert crystal("vault", "export").code == 0
    assert tree(vault).keys() == {
        "MEMORY.md", "memory/2026-11-25.md", "sessions/2026-11-25--abc.md", "soul.md",
        str(note(vault, "drink").relative_to(vault)), str(note(vault, "we-deploy").relative_to(vault)),
    }  # fmt: skip
    assert note(vault, "drink").read_text().endswith("\nokapis drink tea\n")
    assert 'project: "shop"' in note(vault, "we-deploy").read_text()
    assert f"](<memories/{note(vault, 'drink').name}>) · fact · drink" in (vault / "MEMORY.md").read_text()
    before = tree(vault)
    assert sync().out == f"{vault}: nothing new\n"
    assert tree(vault) == before
    (agent / "sessions/2026-11-25--abc.md").unlink()
    assert "1 file deleted" in sync().out
    assert not (vault / "sessions/2026-11-25--abc.md").exists()


def test_an_edited_file_changes_its_memory_and_keeps_what_is_the_persons(vault: Path) -> None:
    path = note(vault, "drink")
    text = (
        path.read_text()
        .replace("tea", "cocoa <private>at noon</private>")
        .replace("kind: fact", "kind: preference\ntags: [x]")
    )
    path.write_text(text)
    assert "1 changed in crystal" in sync().out
    assert texts() == ["okapis drink cocoa [private]", "we deploy on Fridays"]
    assert "tea" in crystal("memories", "history", "drink").out
    after = path.read_text()
    assert "<private>at noon</private>" in after, "the file is the person's"
    assert "\ntags: [x]\n" in after
    assert sync().out.endswith("nothing new\n")
    crystal("memories", "edit", "drink", "water")
    assert "private parts or secrets: left as it is" in sync().out
    assert "at noon" in path.read_text()


def test_a_new_file_becomes_a_memory_once_and_may_be_renamed(vault: Path) -> None:
    new = vault / "memories" / "My quaggas.md"
    new.write_text("---\ntags: [x]\nkey: animal\n---\nquaggas\n")
    assert "1 remembered" in sync().out
    assert texts() == ["okapis drink tea", "quaggas", "we deploy on Fridays"]
    assert "id: mem-" in new.read_text()
    (vault / "memories" / "sub").mkdir()
    moved = new.rename(vault / "memories" / "sub" / "Else.md")
    assert "forgotten" not in sync().out
    crystal("memories", "edit", "animal", "zebras")
    sync()
    assert moved.read_text().endswith("zebras\n")
    assert len(list((vault / "memories").rglob("*.md"))) == 3


def test_a_new_file_under_the_name_of_a_renamed_one_is_new(vault: Path) -> None:
    drink = note(vault, "drink")
    drink.rename(vault / "memories" / "moved.md")
    drink.write_text("quaggas")
    assert "1 remembered" in sync().out
    assert texts() == ["okapis drink tea", "quaggas", "we deploy on Fridays"]
    assert sync().out.endswith("nothing new\n")


def test_a_file_that_cannot_be_remembered_is_named_and_the_others_are_read(vault: Path) -> None:
    for name, text in {
        "empty": "", "secret": "<private>all</private>", "kind": "---\nkind: nonsense\n---\nx", "same": "okapis drink tea",
        "key": "---\nkey: drink\n---\nbeer", "good": "good",
    }.items():  # fmt: skip
        (vault / "memories" / f"{name}.md").write_text(text)
    (vault / "memories" / "binary.md").write_bytes(b"\0")
    before = tree(vault)
    done = sync()
    assert done.code == 1
    for name in ("empty", "secret", "kind", "same", "key"):
        assert f"memories/{name}.md: " in done.err
        assert tree(vault)[f"memories/{name}.md"] == before[f"memories/{name}.md"]
    assert "memories/binary.md: not read: binary" in done.out
    assert "good" in texts()
    assert len(texts()) == 3


def test_a_deleted_file_forgets_after_asking(vault: Path, home: Path) -> None:
    path = note(vault, "drink")
    before = path.read_bytes()
    path.unlink()
    done = sync()
    assert (done.code, "--yes" in done.err, "okapis drink tea" in done.err, "--restore" in done.err) == (
        2,
        True,
        True,
        True,
    )
    assert len(texts()) == 2
    assert sync("--restore").code == 0
    assert path.read_bytes() == before
    path.unlink()
    assert "1 forgotten" in sync("--yes").out
    assert texts() == ["we deploy on Fridays"]
    assert b"okapis" not in b"".join(tree(vault).values())
    for one in (home / ".ldm").rglob("*"):
        assert not one.is_file() or b"okapis" not in one.read_bytes()


def test_what_changes_while_a_person_is_asked_is_not_lost(vault: Path) -> None:
    drink, deploy, new = note(vault, "drink"), note(vault, "we-deploy"), vault / "memories" / "new.md"
    new.write_text("quaggas")
    sync()
    before = drink.read_bytes()
    new.write_text(new.read_text().replace("quaggas", "zebras"))
    drink.unlink()
    deploy.unlink()
    with open_machine() as machine, vault_sync(machine, vault) as asked:
        assert len(asked.changes.deleted) == 2
        drink.write_bytes(before)
        crystal("memories", "edit", ident_of("we deploy"), "we deploy on Mondays")
        crystal("memories", "edit", ident_of("quaggas"), "numbats")
        report = asked.run()
    assert (report.forgotten, report.edited, drink.read_bytes()) == (0, 0, before)
    assert texts() == ["numbats", "okapis drink tea", "we deploy on Mondays"]
    assert note(vault, "we-deploy").read_text().endswith("we deploy on Mondays\n")
    assert new.read_text().endswith("zebras"), "a conflict, which the next sync shows"
    assert "conflict: memories/new.md" in sync().err


def ident_of(beginning: str) -> str:
    every = json.loads(crystal("memories", "--json").out)["memories"]
    return str(next(one["id"] for one in every if one["text"].startswith(beginning)))


def test_a_vault_that_is_gone_deletes_nothing(vault: Path) -> None:
    away = vault.rename(vault.with_name("away"))
    done = sync("--yes")
    assert (done.code, "is not there" in done.err) == (4, True)
    vault.mkdir()
    done = sync("--yes")
    assert (done.code, "all memory files are gone" in done.err) == (4, True)
    (vault / "memories").mkdir()
    (vault / "memories" / "other.md").write_text("a file that came before the others")
    assert sync("--yes").code == 4
    assert len(texts()) == 2
    shutil.rmtree(vault)
    away.rename(vault)
    assert sync().out.endswith("nothing new\n")
    shutil.rmtree(vault / "memories")
    assert sync("--yes").code == 4
    assert sync("--restore").code == 0
    assert len(list((vault / "memories").glob("*.md"))) == 2


@pytest.mark.parametrize(("side", "kept", "other"), [("file", "cocoa", "water"), ("crystal", "water", "cocoa")])
def test_a_conflict_is_shown_and_either_side_can_win(
    vault: Path, side: str, kept: str, other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = note(vault, "drink")
    path.write_text(path.read_text().replace("okapis drink tea", "cocoa"))
    crystal("memories", "edit", "drink", "water")
    for _ in range(2):
        done = sync()
        assert done.code == 1
        assert f"conflict: memories/{path.name}" in done.err
        assert "cocoa" in done.err
        assert "water" in done.err
        assert "cocoa" in path.read_text()
    monkeypatch.setenv("CLAUDECODE", "1")
    assert "water" in sync("--json").out
    assert json.loads(sync("--json").out)["fence"]
    monkeypatch.delenv("CLAUDECODE")
    assert sync("--prefer", side).code == 0
    assert kept in texts()
    assert path.read_text().endswith(f"{kept}\n")
    assert other in crystal("memories", "history", "drink").out
    assert sync().out.endswith("nothing new\n")


def test_files_that_a_person_changed_or_made_are_left_and_named(vault: Path) -> None:
    (vault / "MEMORY.md").write_text("my own index")
    crystal("remember", "new words")
    done = sync()
    assert "MEMORY.md: changed by you" in done.out
    assert (vault / "MEMORY.md").read_text() == "my own index"
    (vault / "MEMORY.md").unlink()
    sync()
    assert "new words" in (vault / "MEMORY.md").read_text()


def test_conflict_copies_are_named_and_never_merged(vault: Path) -> None:
    path = note(vault, "drink")
    names = [
        f"{path.stem}.sync-conflict-20261125-101112-ABCDEFG.md", f"{path.stem} (Anna's conflicted copy 2026-11-25).md",
        f"{path.stem} (conflicted copy 2026-11-25 101112).md", f"{path.stem} (Conflicted copy box 202611251011).md",
        f"{path.stem} 2.md", f"{path.stem} (1).md", f"{path.stem} (Ann's Mac (2)'s conflicted copy 2026-11-25).md",
        f"{path.stem} (SFConflict ann@x.org 2026-11-25-10-11-12).md", f"{path.stem}_conflict-20261125-101112.md",
        f"{path.stem} (In Konflikt stehende Kopie von Ann 2026-11-25).md", f"{path.stem} (Case Conflict 1).md",
        *(f"{path.stem} (Ann {word} 2026-11-25).md" for word in ("競合コピー", "的冲突副本", "конфликтующая копия")),
    ]  # fmt: skip
    for name in names:
        (vault / "memories" / name).write_text("other words")
    (vault / "memories" / "Copied.md").write_bytes(path.read_bytes())
    (vault / "MEMORY.sync-conflict-20261125-101112-ABCDEFG.md").write_text("x")
    (vault / "mine.sync-conflict-20261125-101112-ABCDEFG.md").write_text("x")
    said = sync()
    assert (said.code, said.out.count("nothing new")) == (1, 0)
    assert f"{len(names) + 2} conflict copies to look at" in said.out
    left = {one["path"]: one["why"] for one in json.loads(sync("--json").out)["left"]}
    assert all(left[f"memories/{name}"].startswith(f"a conflict copy of {path.name}") for name in names)
    assert left["memories/Copied.md"].startswith(f"has the id of memories/{path.name}")
    assert "MEMORY.sync-conflict-20261125-101112-ABCDEFG.md" in left
    assert len(left) == len(names) + 2
    for name in (path.name, *names[4:6]):
        (vault / "memories" / name).unlink()
    (vault / "memories" / "Copied.md").unlink()
    sync("--yes")
    assert len(texts()) == 2


def test_a_file_in_the_middle_of_an_edit_or_a_merge_changes_nothing(vault: Path) -> None:
    path = note(vault, "drink")
    whole = path.read_text()
    for broken, why in (
        (whole.replace("\n---\n", "\n", 1), "its front matter does not end"),
        (f"<<<<<<< HEAD\n{whole}=======\n{whole}>>>>>>> laptop\n", "a merge is not finished"),
        (whole.replace("updated:", "<<<<<<< HEAD\nx: y\n=======\n>>>>>>> laptop\nupdated:"), "a merge is not finished"),
    ):
        path.write_text(broken)
        done = sync("--yes")
        assert (done.code, f"memories/{path.name}: not read: {why}" in done.out) == (0, True)
        assert path.read_text() == broken
        assert "okapis drink tea" in texts()


def test_the_ends_of_lines_stay_as_they_are(vault: Path) -> None:
    path = note(vault, "drink")
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    before = path.read_bytes()
    assert sync().out.endswith("nothing new\n")
    assert path.read_bytes() == before
    path.write_bytes(before.replace(b"tea", b"coffee"))
    assert sync().code == 0
    assert b"coffee\r\n" in path.read_bytes()
    assert b"\n" not in path.read_bytes().replace(b"\r\n", b"")


def test_forgetting_cleans_the_vault_at_once_and_its_proof_names_what_a_person_changed(vault: Path) -> None:
    path = note(vault, "drink")
    assert "proved" in crystal("forget", "--key", "drink", "--yes", "--prove").out
    assert b"okapis" not in b"".join(tree(vault).values())
    path = note(vault, "we-deploy")
    path.write_text(f"{path.read_text()}\nnever on zebracorn days\n")
    sync()
    path.write_text(path.read_text() + "unread")
    ident = json.loads(crystal("memories", "--json").out)["memories"][0]["id"]
    done = crystal("forget", ident, "--yes", "--prove")
    assert f"not deleted, because crystal does not change this file: {path}" in done.out
    assert "its memory was forgotten" in sync().out
    assert not texts()
    assert path.exists()


def test_another_folder_names_the_files_in_the_former_one(vault: Path, home: Path) -> None:
    before = tree(vault)
    done = sync("--to", str(home / "New"))
    assert tree(vault) == before
    assert f"in the former folder {len(before)} files stay" in done.err
    assert all(f"  {vault / path}\n" in done.err for path in before)
    assert sync().err == ""
    note(vault, "drink").unlink()
    assert json.loads(sync("--to", str(vault), "--json").out)["left_behind"] == [
        str(home / "New" / path) for path in sorted(tree(home / "New"))
    ]


def test_a_proof_without_the_vault_is_none(vault: Path) -> None:
    vault.rename(vault.with_name("away"))
    done = crystal("forget", "--key", "drink", "--yes", "--prove")
    assert (done.code, "is not there" in done.out) == (6, True)
    vault.with_name("away").rename(vault)
    sync()
    assert b"okapis" not in b"".join(tree(vault).values())


def test_what_crystal_wrote_is_not_indexed_again(vault: Path) -> None:
    (vault / "Other.md").write_text("okapis are striped")
    crystal("sources", "add", str(vault), "--vault")
    hits = json.loads(crystal("search", "okapis", "--json").out)["hits"]
    assert sorted(one["source"] for one in hits) == ["file", "memory"]
    assert hits[[one["source"] for one in hits].index("file")]["file"]["path"] == "Other.md"


def test_folders_that_cannot_be_a_vault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "bare"
    home.mkdir()
    live_in(home, monkeypatch)
    assert "there is no vault yet" in sync().err
    for folder in (home / ".ldm" / "x", home):
        assert (sync("--to", str(folder)).code, (home / "MEMORY.md").exists()) == (2, False)
    assert sync("--prefer", "me").code == 2
    vault = home / "V"
    (vault / "elsewhere").mkdir(parents=True)
    (vault / "memories").symlink_to(vault / "elsewhere")
    assert "is a link" in sync("--to", str(vault)).err


def test_the_one_vault_among_the_sources_is_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    for name in ("Vault", "Work"):
        (home / name).mkdir(parents=True)
    live_in(home, monkeypatch)
    crystal("remember", "okapis are striped")
    crystal("sources", "add", str(home / "Vault"), "--vault")
    crystal("sources", "add", str(home / "Work"), "--vault")
    both = sync()
    assert (both.code, f"{home / 'Vault'}, {home / 'Work'}" in both.err) == (2, True)
    crystal("sources", "remove", "Work", "--yes")
    assert (sync().code, (home / "Vault" / "MEMORY.md").exists()) == (0, True)
    crystal("sources", "remove", "Vault", "--yes")
    assert str(home / "Vault") in sync().out, "it is remembered"
