"""Claims of ``crystal import``: archives and newer exports are taken, other files are named, nothing is doubled."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from crystal.app import import_exports
from tests.support import agent_samples as samples
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
        packed.writestr("chat.html", "<html>")
    done = crystal("import", str(archive))
    assert (done.code, "captured" in done.out) == (0, True), done.err
    assert captured_turns() == len(samples.expected("chatgpt")[1])
    assert list((home / ".ldm/memory/imports").iterdir()) == [], "the unpacked files are deleted"


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


def test_a_session_that_its_agent_gave_is_not_imported_again(home: Path) -> None:
    history = samples.AGENTS / "specstory" / "home" / "shop" / ".specstory" / "history"
    [path] = history.iterdir()
    session = samples.expected("gemini-cli")[0][0]["session"]
    copy = home / path.name
    copy.write_text(path.read_text("utf-8").replace("44444444-aaaa-4bbb-8ccc-000000000009", session), "utf-8")
    samples.lay_out("gemini-cli", home)
    assert crystal("backfill").code == 0
    before = captured_turns()
    assert "nothing new" in crystal("import", str(copy)).out
    assert captured_turns() == before


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


def test_what_a_killed_import_unpacked_is_deleted_by_the_next_forgetting(home: Path) -> None:
    assert crystal("import", str(EXPORT)).code == 0
    left = home / ".ldm" / "memory" / "imports" / "tmpkilled" / "conversations.json"
    left.parent.mkdir(parents=True)
    left.write_bytes(EXPORT.read_bytes())
    session = samples.expected("chatgpt")[0][0]["session"]
    assert crystal("forget", "--session", session, "--yes").code == 0
    assert not left.exists()
