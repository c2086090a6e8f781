"""``crystal files``: what is written into AGENTS.md, what is read back, and what is never touched."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from crystal.app import memory_files as app
from crystal.app.context import open_machine
from crystal.app.memories import remember
from crystal.app.memory_files import BlockDecisions, file_list
from crystal.errors import CrystalError
from crystal.install import file_change
from crystal.store.isolation import source_via
from tests.support.command import Done, crystal
from tests.support.kept_home import KeptHome
from tests.support.killed import killed_at_call
from tests.support.table import each_row

HEAD, TAIL = "# Rules\r\nno newline at the end", "\nmine"


def make_files(home: Path) -> None:
    shop = home / "shop"
    for folder in (shop, home / "other"):
        folder.mkdir()
        subprocess.run(["git", "-C", str(folder), "init", "--quiet"], check=True)
    crystal("remember", "we deploy on Fridays", "--project", str(shop))
    crystal("remember", "okapis drink tea", "--key", "drink")
    crystal("remember", "the other project is secret", "--project", str(home / "other"))
    path = shop / "AGENTS.md"
    path.write_bytes(HEAD.encode())
    path.chmod(0o640)
    assert sync(str(path), "--yes").code == 0


@pytest.fixture(scope="module")
def kept_home(tmp_path_factory: pytest.TempPathFactory) -> KeptHome:
    return KeptHome(tmp_path_factory.mktemp("kept"), make_files)


@pytest.fixture
def home(kept_home: KeptHome, monkeypatch: pytest.MonkeyPatch) -> Path:
    return kept_home.put_back(monkeypatch)


@pytest.fixture
def agents(home: Path) -> Path:
    return home / "shop" / "AGENTS.md"


def sync(*words: str) -> Done:
    return crystal("files", "sync", *words)


def texts() -> list[str]:
    return sorted(one["text"] for one in json.loads(crystal("memories", "--json").out)["memories"])


def ident_of(word: str) -> str:
    every = json.loads(crystal("memories", "--json").out)["memories"]
    return str(next(one["id"] for one in every if word in one["text"]))


def change(path: Path, old: str, new: str) -> None:
    data = path.read_bytes()
    assert old.encode() in data
    path.write_bytes(data.replace(old.encode(), new.encode(), 1))


def test_the_confirmed_memories_of_the_project_are_written_and_nothing_else_changes(agents: Path) -> None:
    data = agents.read_bytes()
    assert data.startswith(HEAD.encode())
    assert b"- we deploy on Fridays <!-- mem-" in data
    assert b"okapis drink tea" in data
    assert b"secret" not in data
    assert b"\n" not in data.replace(b"\r\n", b""), "the line ends of the file"
    assert agents.stat().st_mode & 0o777 == 0o640
    assert sync().out == f"{agents}: nothing new\n"
    assert agents.read_bytes() == data
    assert crystal("files", "remove", str(agents), "--yes").code == 0
    assert agents.read_bytes() == HEAD.encode()
    assert sync().code == 1, "the list is empty"


@each_row(
    "data", (None, b"", b"\n", b"\r\n", b"a", b"a\n", b"a\r\n\r\n", b"\xef\xbb\xbf", b"\xef\xbb\xbfa\n\n\n", b"\n\n")
)
def test_removing_a_block_restores_the_file_byte_for_byte(agents: Path, data: bytes | None) -> None:
    path = agents.with_name("CLAUDE.md")
    for is_written in (False, True):
        path.unlink(missing_ok=True)
        if data is not None:
            path.write_bytes(data)
        if is_written:
            assert sync(str(path), "--yes").code == 0
            assert b"okapis" in path.read_bytes()
            assert sync(str(path)).out.endswith("nothing new\n")
        assert crystal("files", "remove", str(path), "--yes").code == 0
        assert (path.read_bytes() if path.exists() else None) == data


def test_a_change_is_shown_and_nothing_is_done_without_a_yes(agents: Path) -> None:
    crystal("remember", "quaggas", "--project", str(agents.parent))
    change(agents, "- okapis drink tea", "- okapis drink cocoa")
    before = agents.read_bytes()
    done = sync()
    assert done.code == 2
    for words in ("changed by you", "okapis drink cocoa", "quaggas", "--yes"):
        assert words in done.err
    assert agents.read_bytes() == before
    assert "okapis drink tea" in texts()


def test_what_is_shown_without_a_terminal_is_what_a_yes_does(agents: Path) -> None:
    lines = agents.read_bytes().split(b"\r\n")
    agents.write_bytes(b"\r\n".join(one for one in lines if b"okapis" not in one))
    shown = sync().err
    assert "deleted by you, hides the memory" in shown
    assert "+ - okapis" not in shown
    assert "deleted by you, hides the memory" in sync("--yes").err
    assert b"okapis" not in agents.read_bytes()
    change(agents, "## Remembered", "## Remembered\r\n- quaggas eat figs")
    told = sync("--yes").err
    assert "added by you, becomes a memory\n  the file:  quaggas eat figs" in told
    assert "nothing to change" not in told


def test_lines_that_a_person_changes_adds_and_deletes_change_the_memories(agents: Path) -> None:
    change(agents, "okapis drink tea", "okapis drink cocoa")
    change(agents, "- we deploy on Fridays", "- quaggas\r\n\r\n  and zebras\r\n## Mine\r\n- we deploy on Fridays")
    lines = agents.read_bytes().split(b"\r\n")
    agents.write_bytes(b"\r\n".join(one for one in lines if b"Fridays" not in one) + TAIL.encode())
    assert "1 edited, 1 added, 1 deleted" in crystal("files", "status").out
    assert sync("--yes").code == 0
    assert texts() == ["okapis drink cocoa", "quaggas\n\nand zebras", "the other project is secret"]
    assert "okapis drink tea" in crystal("memories", "history", "drink").out
    data = agents.read_bytes()
    assert data.startswith(HEAD.encode())
    assert data.endswith(TAIL.encode())
    assert b"\r\n## Mine\r\n" in data
    assert sync().out.endswith("nothing new\n")


def test_a_person_may_refuse_what_the_block_says(agents: Path) -> None:
    change(agents, "- we deploy", "- quaggas\r\n- we deploy")
    lines = agents.read_bytes().split(b"\r\n")
    agents.write_bytes(b"\r\n".join(one for one in lines if b"okapis" not in one))
    with open_machine() as machine, file_list(machine) as listed:
        listed.compared(agents).run(BlockDecisions())
    assert "quaggas" not in texts()
    assert "okapis drink tea" in texts()
    assert b"\r\n- quaggas\r\n" in agents.read_bytes()
    assert b"okapis drink tea" in agents.read_bytes()


@pytest.mark.parametrize("side", ["file", "crystal"])
def test_a_conflict_is_shown_and_never_merged(agents: Path, side: str) -> None:
    change(agents, "okapis drink tea", "okapis drink cocoa")
    crystal("memories", "edit", "drink", "okapis drink water")
    before = agents.read_bytes()
    done = sync("--yes")
    assert done.code == 1
    assert "conflict" in done.err
    assert (agents.read_bytes(), texts()[0]) == (before, "okapis drink water")
    assert sync("--yes", "--prefer", "both").code == 2
    assert sync("--yes", "--prefer", side).code == 0
    wins, loses = ("cocoa", "water") if side == "file" else ("water", "cocoa")
    assert texts()[0] == f"okapis drink {wins}"
    assert f"okapis drink {loses}" in crystal("memories", "history", "drink").out
    assert f"- okapis drink {wins} <" in agents.read_text()


def test_a_file_in_a_folder_that_is_not_there_yet_has_the_memories_of_its_project(agents: Path) -> None:
    path = agents.parent / "docs" / "agents" / "AGENTS.md"
    assert sync(str(path), "--yes").code == 0
    assert b"- we deploy on Fridays <" in path.read_bytes()
    assert sync(str(path)).out.endswith("nothing new\n")


def test_secrets_stay_in_the_file_and_hidden_and_forgotten_memories_vanish(agents: Path) -> None:
    change(agents, "- we deploy", "- <private>x</private> y\r\n- we deploy")
    assert sync("--yes").code == 1
    assert b"- <private>x</private> y\r\n" in agents.read_bytes()
    crystal("memories", "deprecate", "drink")
    sync("--yes")
    assert b"okapis" not in agents.read_bytes()
    ident = ident_of("deploy")
    assert str(agents) in crystal("forget", ident, "--dry-run").out
    assert str(agents) in crystal("forget", ident, "--yes", "--prove").out
    sync("--yes")
    assert b"Fridays" not in agents.read_bytes()
    assert texts() == ["the other project is secret"]


def test_files_that_cannot_be_written_are_refused_and_stay(agents: Path, home: Path) -> None:
    other = home / "other" / "CLAUDE.md"
    other.symlink_to(agents)
    for name, data in {
        "latin.md": b"caf\xe9",
        "utf16.md": "é".encode("utf-16"),
        "nul.md": b"a\0",
        "torn.md": b"",
    }.items():
        (agents.parent / name).write_bytes(data or agents.read_bytes()[:-20])
    names = [
        str(other),
        str(home / ".ldm" / "x.md"),
        *(str(agents.parent / f"{one}.md") for one in ("latin", "utf16", "nul", "torn")),
    ]
    for name in names:
        before = Path(name).read_bytes() if Path(name).exists() else None
        assert sync(name, "--yes").code == 2, name
        assert before is None or Path(name).read_bytes() == before
    link = agents.with_name("CLAUDE.md")
    link.symlink_to("AGENTS.md")
    change(agents, "tea", "cocoa")
    assert sync(str(link), "--yes").code == 0
    assert link.is_symlink()
    assert "okapis drink cocoa" in texts()
    crystal("config", "set", "private.projects", str(agents.parent))
    refused = sync(str(agents), "--yes")
    assert (refused.code, "crystal config get private.projects" in refused.err) == (2, True)


def test_a_file_that_cannot_be_synced_does_not_stop_the_others(agents: Path) -> None:
    paths = [agents, *(agents.with_name(name) for name in ("B.md", "C.md", "D.md"))]
    assert sync(*map(str, paths), "--yes").code == 0
    whole = paths[1].read_bytes()
    paths[0].write_bytes(b"caf\xe9")
    paths[2].write_bytes(whole[:-20])
    crystal("remember", "zebras")
    shown = sync()
    assert (shown.code, shown.err.count("+ - zebras")) == (2, 2), shown.err
    done = sync("--yes")
    assert (done.code, done.out) == (2, f"{paths[1]}: written\n{paths[3]}: written\n")
    assert (paths[0].read_bytes(), paths[2].read_bytes()) == (b"caf\xe9", whole[:-20])
    assert [f"crystal: error: {path}" in done.err for path in paths] == [True, False, True, False]
    found = json.loads(sync("--yes", "--json").out)["files"]
    assert {one["path"]: "error" in one for one in found} == {str(one): one in paths[::2] for one in paths}


def test_lines_of_another_machine_stay(agents: Path) -> None:
    foreign = "- theirs <!-- mem-ffffffffffff 00000000 -->"
    change(agents, "- we deploy", f"{foreign}\r\n- we deploy")
    crystal("remember", "zebras")
    assert sync("--yes").code == 0
    assert foreign in agents.read_text()
    assert "theirs" not in texts()
    assert " ffffffffffff" in agents.read_text().rpartition("<!-- crystal files end")[2]


@pytest.mark.slow
def test_killed_at_any_write_nothing_is_lost_or_doubled(agents: Path) -> None:
    for after in itertools.count():
        change(agents, "- okapis drink tea", f"- quaggas {after}\r\n- okapis eat {after}")
        lines = agents.read_bytes().split(b"\r\n")
        agents.write_bytes(b"\r\n".join(one for one in lines if f"quaggas {after - 1} ".encode() not in one))
        was_killed = _killed_sync(after)
        assert sync("--yes").code == 0
        found = texts()
        assert found.count(f"quaggas {after}") == 1
        assert found.count(f"okapis eat {after}") == 1
        assert f"quaggas {after - 1}" not in found
        assert sync().out.endswith("nothing new\n")
        assert agents.read_bytes().startswith(HEAD.encode())
        if not was_killed:
            break
        change(agents, f"- okapis eat {after}", "- okapis drink tea")
        assert sync("--yes").code == 0
    assert after > 4


def _killed_sync(after: int) -> bool:
    """Sync, and kill it before or after one of its writes; return whether it was killed."""
    calls = (
        (file_change, "replace_file"), (app, "remember"), (app, "edit"), (app, "deprecate"), (app, "save_files"),
    )  # fmt: skip
    with open_machine() as machine, killed_at_call(calls, after) as run, file_list(machine) as listed:
        listed.compared(listed.paths[0]).run(BlockDecisions(adds=True, hides=True))
    return run.is_killed


@pytest.mark.slow
def test_two_runs_at_once_and_an_editor_lose_nothing(agents: Path) -> None:
    change(agents, "- we deploy", "- quaggas\r\n- we deploy")
    program = "from crystal.cli.app import main; import sys; sys.argv = ['crystal', 'files', 'sync', '--yes']; main()"
    runs = [subprocess.Popen([sys.executable, "-c", program], env=os.environ) for _ in range(2)]
    assert [run.wait(60) for run in runs] == [0, 0]
    assert texts().count("quaggas") == 1
    with open_machine() as machine, file_list(machine) as listed:
        one = listed.compared(agents)
        editor = threading.Thread(target=change, args=(agents, "# Rules", "# My rules"))
        editor.start()
        editor.join()
        with pytest.raises(CrystalError):
            one.run(BlockDecisions())
    assert agents.read_bytes().startswith(b"# My rules")


def test_nothing_of_an_isolated_project_is_written_elsewhere(agents: Path, home: Path) -> None:
    (home / "vault").mkdir()
    assert crystal("config", "set", "isolated.projects", str(home / "other")).code == 0
    elsewhere = home / "vault" / "AGENTS.md"
    own = home / "other" / "AGENTS.md"
    for path in (elsewhere, own, agents):
        assert sync(str(path), "--yes").code == 0
    assert "secret" in own.read_text()
    assert "secret" not in elsewhere.read_text() + agents.read_text()


def test_memories_of_an_isolated_agent_and_of_a_private_clone_are_not_written(agents: Path, home: Path) -> None:
    clone = home / "clone"
    subprocess.run(["git", "init", "--quiet", str(clone)], check=True)
    for folder in (clone, agents.parent):
        subprocess.run(["git", "-C", str(folder), "remote", "add", "origin", "https://git.test/a/shop.git"], check=True)
    crystal("remember", "zebras of the clone", "--project", str(clone))
    with open_machine() as machine:
        remember(machine, "tapirs of codex", source=source_via("mcp", "codex"))
    assert sync("--yes").code == 0
    assert "zebras" in agents.read_text()
    assert "tapirs" in agents.read_text()
    assert crystal("config", "set", "agents.codex.isolated", "true").code == 0
    assert crystal("config", "set", "private.projects", str(clone)).code == 0
    assert sync("--yes").code == 0
    assert "zebras" not in agents.read_text()
    assert "tapirs" not in agents.read_text()
    assert "okapis" in agents.read_text()


def test_what_was_typed_in_a_vault_is_written_once_it_is_kept_in_a_review(agents: Path, home: Path) -> None:
    vault = home / "vault"
    crystal("vault", "sync", "--to", str(vault), "--yes")
    (vault / "memories" / "tea.md").write_text("quokkas drink tea\n", "utf-8")
    crystal("vault", "sync", "--yes")
    sync("--yes")
    assert b"quokkas" not in agents.read_bytes()
    assert crystal("memories", "review", "--keep", ident_of("quokkas")).code == 0
    sync("--yes")
    assert b"- quokkas drink tea <" in agents.read_bytes()
    assert crystal("vault", "sync", "--yes").code == 0
    assert crystal("memories", "review", "--keep", ident_of("okapis")).code == 2


def test_an_edited_line_of_a_forgotten_memory_stays_and_says_so(agents: Path) -> None:
    change(agents, "okapis drink tea", "okapis drink cocoa")
    crystal("forget", ident_of("okapis"), "--yes")
    done = sync("--yes")
    assert done.code == 1
    assert "its memory was forgotten" in done.err
    assert b"- okapis drink cocoa <" in agents.read_bytes()
    assert not any("okapis" in text for text in texts())
    mark = next(line for line in agents.read_text().splitlines() if "cocoa" in line).partition(" <!--")[2]
    change(agents, f" <!--{mark}", "")
    assert sync("--yes").code == 0
    assert "okapis drink cocoa" in texts()


def test_a_write_protected_file_is_refused_and_the_memories_stay(agents: Path) -> None:
    change(agents, "tea", "cocoa")
    before, agents_texts = agents.read_bytes(), texts()
    agents.chmod(0o440)
    for words in (("sync", "--yes"), ("remove", str(agents), "--yes")):
        done = crystal("files", *words)
        assert done.code == 2
        assert f"{agents} is write-protected" in done.err
        assert f"chmod u+w {agents}" in done.err
    assert (agents.read_bytes(), texts()) == (before, agents_texts)
    agents.rename(agents.with_name("kept.md"))
    assert crystal("files", "remove", str(agents), "--yes").code == 0
    agents.with_name("kept.md").rename(agents)
    assert sync(str(agents), "--yes").code == 2
    assert str(agents) not in crystal("files", "status").out, "the next run would fail for the other files, too"
    agents.chmod(0o640)
    assert sync(str(agents), "--yes").code == 0
    assert "okapis drink cocoa" in texts()
