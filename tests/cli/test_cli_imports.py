"""Claims of ``crystal import``: archives and newer exports are taken, other files are named, nothing is doubled."""

from __future__ import annotations

import json
import random
import zipfile
from pathlib import Path
from typing import Any

import pytest

from crystal.api import Crystal
from crystal.app import import_exports
from tests.support import agent_samples as samples
from tests.support.capture_machine import keep_transcript, line
from tests.support.command import crystal
from tests.support.table import each_row

pytestmark = pytest.mark.usefixtures("ready")

EXPORT = samples.AGENTS / "chatgpt" / "home" / "Downloads" / "conversations.json"


def captured_turns() -> int:
    return len(samples.captured()[1])


def test_an_archive_is_imported_as_it_was_downloaded(home: Path) -> None:
    archive = home / "export.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        packed.write(EXPORT, "data/conversations-000.json")
        packed.writestr("conversations-001.json", '[{"mapping": {}, "current_node": null}]')
        packed.writestr("chat.html", "<html>")
    done = crystal("import", str(archive))
    assert (done.code, "captured" in done.out) == (0, True), done.err
    problem = f"{archive}: conversations-001.json: a conversation has no id or no messages"
    assert problem in " ".join(done.err.split())
    assert captured_turns() == len(samples.expected("chatgpt")[1])
    assert list((home / ".ldm/memory/imports").iterdir()) == [], "the unpacked files are deleted"


@pytest.mark.slow
def test_of_a_newer_export_only_what_is_new_is_added(home: Path) -> None:
    talks = json.loads(EXPORT.read_text("utf-8"))
    path = home / "conversations.json"
    path.write_text(json.dumps(talks), "utf-8")
    assert crystal("import", str(path)).code == 0
    before = captured_turns()
    last = talks[0]["current_node"]
    node = {"id": "new", "parent": last, "children": [], "message": None}
    said = {**talks[0]["mapping"][last]["message"], "content": {"content_type": "text", "parts": ["Thanks"]}}
    talks[0]["mapping"]["new"] = {**node, "message": said}
    talks[0]["current_node"] = "new"
    path.write_text(json.dumps(talks), "utf-8")
    done = crystal("import", str(path), "--json")
    assert (json.loads(done.out)["turns"], captured_turns()) == (1, before + 1)
    assert "nothing new" in crystal("import", str(path)).out


def test_a_list_of_sessions_names_each_agent_but_claude_code(home: Path) -> None:
    samples.lay_out("pi", home)
    keep_transcript(home, "s", line("quartz"))
    assert crystal("backfill").code == 0
    found = json.loads(crystal("sessions", "--json").out)["sessions"]
    for one, row in zip(found, crystal("sessions").out.splitlines(), strict=True):
        assert ("  Pi  " in row) == (one["harness"] == "pi")


def test_an_export_with_a_name_of_its_own_is_proved_whole(home: Path) -> None:
    [path] = (samples.AGENTS / "specstory" / "home").rglob("*.md")
    (home / "a.md").write_bytes(path.read_bytes())
    assert crystal("import", str(home / "a.md")).code == 0
    assert crystal("verify").code == 0


@each_row("content", [b"", b"{}", b"[1, 2]", b"PK\x03\x04 torn", b"\xff\xfe\x00"])
def test_a_file_that_is_no_export_is_named(content: bytes, home: Path) -> None:
    path = home / "notes.json"
    path.write_bytes(content)
    done = crystal("import", str(path))
    assert (done.code, f"does not know this export: {path}" in done.err) == (2, True), done.err


def test_an_archive_without_conversations_is_named(home: Path) -> None:
    archive = home / "photos.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr("a.png", "x")
    done = crystal("import", str(archive))
    assert (done.code, "has no conversations" in done.err) == (2, True)


def test_an_archive_that_would_unpack_to_too_much_is_refused(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_exports, "MAX_DOCUMENT_BYTES", 100)
    archive = home / "export.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        packed.write(EXPORT, "conversations.json")
    done = crystal("import", str(archive))
    assert (done.code, "larger than" in done.err) == (2, True)


def test_a_damaged_archive_is_named(home: Path) -> None:
    archive = home / "export.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        packed.write(EXPORT, "conversations.json")
    data = bytearray(archive.read_bytes())
    data[200:260] = bytes(60)
    archive.write_bytes(data)
    done = crystal("import", str(archive))
    assert (done.code, "is damaged" in done.err) == (2, True), done.err


def test_what_crystal_exported_is_imported_again(home: Path) -> None:
    assert crystal("import", str(EXPORT)).code == 0
    before = samples.captured()
    assert crystal("export", "--all", "--to", str(home / "out"), "--as", "jsonl").code == 0
    (home / ".ldm").rename(home / "old")
    assert crystal("init", "--yes", "--no-import").code == 0
    for _ in range(2):
        done = crystal("import", str(home / "out"))
        assert done.code == 0, done.err
        assert samples.captured()[1] == before[1]


@pytest.mark.slow
def test_an_import_of_what_still_lies_here_is_proved_whole(home: Path) -> None:
    samples.lay_out("aider", home / "shop")
    assert crystal("backfill", str(home / "shop" / ".aider.chat.history.md")).code == 0
    assert crystal("export", "--all", "--to", str(home / "out"), "--as", "jsonl").code == 0
    (home / ".ldm").rename(home / "old")
    assert crystal("init", "--yes", "--no-import").code == 0
    assert crystal("import", str(home / "out")).code == 0
    assert crystal("verify").code == 0


def test_what_a_killed_import_unpacked_is_deleted_by_the_next_forgetting(home: Path) -> None:
    assert crystal("import", str(EXPORT)).code == 0
    left = home / ".ldm" / "memory" / "imports" / "tmpkilled" / "conversations.json"
    left.parent.mkdir(parents=True)
    left.write_bytes(EXPORT.read_bytes())
    session = samples.expected("chatgpt")[0][0]["session"]
    assert crystal("forget", "--session", session, "--yes").code == 0
    assert not left.exists()


def talk_of(form: str, tree: list[int], shown: int) -> dict[str, Any]:
    """Return a conversation as its export has it: message ``n`` answers ``tree[n]``, the branch up to ``shown`` shows."""
    names = [f"00000000-0000-4000-8000-{number:012}" for number in range(len(tree))]
    parents = [None if number == 0 else names[tree[number]] for number in range(len(tree))]
    if form == "claude-ai":
        messages = [
            {"uuid": name, "sender": ("human", "assistant")[number % 2], "index": number, "text": f"said {number}",
             "parent_message_uuid": parent or "00000000-0000-4000-8000-000000000000",
             "content": [{"type": "text", "text": f"said {number}"}], "created_at": "2026-11-20T10:00:00Z"}
            for number, (name, parent) in enumerate(zip(names, parents, strict=True))
        ]  # fmt: skip
        return {"uuid": "talk", "name": "Stones", "created_at": "2026-11-20T10:00:00Z",
                "current_leaf_message_uuid": names[shown], "chat_messages": messages}  # fmt: skip
    mapping = {
        name: {"id": name, "parent": parent, "children": [names[at] for at, up in enumerate(tree) if at and names[up] == name],
               "message": {"id": name, "author": {"role": ("user", "assistant")[number % 2]}, "create_time": 1_795_000_000 + number,
                           "content": {"content_type": "text", "parts": [f"said {number}"]}, "metadata": {}}}
        for number, (name, parent) in enumerate(zip(names, parents, strict=True))
    }  # fmt: skip
    return {"id": "talk", "title": "Stones", "create_time": 1_795_000_000, "update_time": 1_795_000_000,
            "current_node": names[shown], "mapping": mapping}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("form", ["chatgpt", "claude-ai"])
@pytest.mark.parametrize("seed", range(2))
def test_branches_that_grow_from_export_to_export_are_kept_once_and_whole(form: str, seed: int, home: Path) -> None:
    rng = random.Random(seed)
    tree, kept = [0, 0], 0
    for _ in range(5):
        tree += [rng.randrange(len(tree)) for _ in range(rng.randint(0, 3))]
        leaves = [number for number in range(len(tree)) if number not in tree[1:]]
        path = home / "conversations.json"
        path.write_text(json.dumps([talk_of(form, tree, rng.choice(leaves))]))
        new = json.loads(crystal("import", str(path), "--json").out)["turns"]
        assert (kept := kept + new) == len(tree), "each message is new once"
        with Crystal.reader() as memory:
            shown = {tuple(turn.text for turn in memory.show(one.id).turns) for one in memory.sessions(limit=99)}
        for leaf in leaves:
            branch = [leaf]
            while branch[0]:
                branch.insert(0, tree[branch[0]])
            words = [f"said {number}" for number in branch]
            assert any([text for text in texts if text in words] == words for texts in shown), (tree, leaf, shown)
    assert "nothing new" in crystal("import", str(path)).out
    assert crystal("verify").code == 0


def test_the_branch_that_the_page_shows_is_the_conversation_and_stays_it(home: Path) -> None:
    path, tree = home / "conversations.json", [0, 0, 0, 2]  # 1 and 2 answer 0, 3 answers 2
    for shown in (3, 1):
        path.write_text(json.dumps([talk_of("chatgpt", tree, shown)]))
        assert crystal("import", str(path)).code == 0
        with Crystal.reader() as memory:
            turns = memory.show("talk").turns
            assert [turn.text for turn in turns] == ["said 0", "said 2", "said 3"], shown
            assert not any(turn.copied for turn in turns)
            assert len(list(memory.sessions(limit=9))) == 2


def test_a_branch_that_is_shown_since_goes_on_in_the_session_of_the_conversation(home: Path) -> None:
    path = home / "conversations.json"
    for tree, shown in (([0, 0], 1), ([0, 0, 0, 2], 3), ([0, 0, 0, 2], 1), ([0, 0, 0, 2, 1], 4)):
        path.write_text(json.dumps([talk_of("chatgpt", tree, shown)]))
        assert crystal("import", str(path)).code == 0
        with Crystal.reader() as memory:
            [session] = memory.sessions(limit=9)
            turns = memory.show(session.id).turns
            assert session.id == "talk"
            assert [turn.text for turn in turns] == [f"said {number}" for number in range(len(tree))]
            assert not any(turn.copied for turn in turns)
    assert "nothing new" in crystal("import", str(path)).out
    assert crystal("verify").code == 0
