"""Claims of capture/snapshots.py: of a file that is rewritten every record comes once, its newest state is found."""

from __future__ import annotations

import json
import sys
import time
import types
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from crystal.capture import source
from crystal.config import harnesses
from crystal.config.harness import Harness, Place
from crystal.transcript.line import parse_line
from crystal.transcript.line_context import Context
from crystal.transcript.messages import Record, SessionStamp, SnapshotReader
from crystal.transcript.parts import Part
from crystal.transcript.reader import reader_of
from crystal.transcript.snapshot import Snapshot, SourceError
from tests.support import agent_samples as samples
from tests.support.command import crystal

Message = dict[str, str]


class DiaryReader(SnapshotReader):
    """Reads ``{"session", "folder", "messages": [{"id", "who", "text"}]}``, and the same in a table."""

    def conversations(self, source: Snapshot) -> Iterable[SessionStamp]:
        if source.path.suffix == ".db":
            for session, count in source.rows("SELECT session, sum(length(text)) FROM messages GROUP BY session"):
                yield SessionStamp(session, str(count))
            return
        yield SessionStamp(self._document(source)["session"], str(hash(source.data)))

    def messages(self, source: Snapshot, conversation: SessionStamp) -> Iterator[Record]:
        if source.path.suffix == ".db":
            sql = "SELECT id, who, text FROM messages WHERE session = ? ORDER BY id"
            messages = [
                {"id": ident, "who": who, "text": text}
                for ident, who, text in source.rows(sql, (conversation.session,))
            ]
            folder = "/home/me/shop"
            if any(message["who"] == "nobody" for message in messages):
                raise SourceError(f"{source.path}: {conversation.session} is damaged")
        else:
            document = self._document(source)
            messages, folder = document["messages"], document["folder"]
        for message in messages:
            yield Record(message["id"], json.dumps(message).encode(), Context(cwd=folder))

    def _document(self, source: Snapshot) -> dict[str, Any]:
        document = parse_line(source.data)
        if document is None or "messages" not in document:
            raise SourceError(f"{source.path} is no diary")
        return document

    def parts(self, fields: dict[str, Any]) -> Iterator[Part]:
        if "who" in fields:
            yield Part("user" if fields["who"] == "me" else "assistant", fields["text"])


@pytest.fixture
def diary(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A machine with crystal and a program that rewrites its files; gives its folder."""
    module = types.ModuleType("crystal.transcript.diary")
    module.READER = DiaryReader()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    places = (
        Place(home=".diary", folder="days", files=("*.json",), form="document"),
        Place(home=".diary", folder="days", files=("*.db",), form="database"),
    )
    row = Harness("diary", "Diary", places)
    monkeypatch.setitem(harnesses.HARNESSES, "diary", row)
    folder = home / ".diary" / "days"
    folder.mkdir(parents=True)
    yield folder
    reader_of.cache_clear()


def write(folder: Path, *texts: str, folder_name: str = "/home/me/shop") -> None:
    messages = [{"id": f"m{at}", "who": "bot" if at % 2 else "me", "text": text} for at, text in enumerate(texts)]
    document = {"session": "d1", "folder": folder_name, "messages": messages}
    folder.joinpath("d1.json").write_text(json.dumps(document), "utf-8")


def shown(*words: str) -> dict[str, Any]:
    done = crystal(*words, "--json")
    assert done.code == 0, done.err
    answer: dict[str, Any] = json.loads(done.out)
    return answer


def said() -> list[tuple[str, str]]:
    return [(turn["role"], turn["text"]) for turn in shown("show", "d1")["turns"]]


def assert_proved() -> dict[str, int]:
    proof = shown("verify")
    assert (proof["ok"], proof["percent"], proof["faults"]) == (True, 100.0, [])
    counts: dict[str, int] = proof["bytes"]
    return counts


def sync() -> None:
    done = crystal("sync")
    assert done.code == 0, done.err


def test_each_message_comes_once_however_often_the_file_is_rewritten(diary: Path, ready: None) -> None:
    for count in (1, 2, 2, 3):
        write(diary, *["Which port?", "4711.", "Thanks"][:count])
        sync()
    assert said() == [("user", "Which port?"), ("assistant", "4711."), ("user", "Thanks")]
    assert_proved()


def test_a_message_that_changed_is_found_in_its_newest_state_and_kept_in_the_older_one(
    diary: Path, ready: None
) -> None:
    write(diary, "Which port?", "47")
    sync()
    write(diary, "Which port?", "4711 for the shop.")
    sync()
    assert said() == [("user", "Which port?"), ("assistant", "4711 for the shop.")]
    assert assert_proved()["superseded"] > 0
    assert next(hit["text"] for hit in shown("search", "4711", "--all")["hits"]).startswith("4711 for")


def test_what_disappears_from_the_file_stays(diary: Path, ready: None) -> None:
    write(diary, "Which port?", "4711.")
    sync()
    write(diary, "Which port?")
    sync()
    assert len(said()) == 2
    diary.joinpath("d1.json").unlink()
    sync()
    assert len(said()) == 2
    assert_proved()


@pytest.mark.slow
def test_a_first_prompt_that_opencode_deletes_stays_and_renames_no_other_message(home: Path, ready: None) -> None:
    samples.lay_out("opencode", home)
    sync()
    before = samples.captured()
    [database], session = home.rglob("opencode.db"), "ses_dfdd57b1effet3cZU0RyKA4O5L"
    owner = apsw.Connection(str(database))
    first = "SELECT id FROM message WHERE session_id = ? ORDER BY time_created LIMIT 1"
    [(prompt,)] = owner.execute(first, (session,))
    owner.execute("DELETE FROM part WHERE message_id = ?; DELETE FROM message WHERE id = ?", (prompt, prompt))
    owner.execute("UPDATE event_sequence SET seq = seq + 1")
    last = "UPDATE part SET data = json_set(data, '$.text', json_extract(data, '$.text') || ' More.') WHERE id = ?"
    newest = "SELECT max(id) FROM part WHERE session_id = ? AND data ->> 'type' = 'text'"
    [(part,)] = owner.execute(newest, (session,))
    owner.execute(last, (part,))
    owner.close()
    sync()
    sessions, turns = samples.captured()
    grown = [now for old, now in zip(before[1], turns, strict=True) if old != now]
    assert (sessions, [turn["text"][-6:] for turn in grown]) == (before[0], [" More."])
    assert_proved()


def test_what_was_there_before_crystal_is_imported_only_when_asked_for(diary: Path) -> None:
    write(diary, "Which port?", "4711.")
    assert crystal("init", "--yes", "--no-import").code == 0
    sync()
    write(diary, "Which port?", "4711.", "Thanks")
    sync()
    assert said() == [("user", "Thanks")]
    assert assert_proved()["before-crystal"] > 0
    assert crystal("backfill").code == 0
    assert {text for _, text in said()} == {"Which port?", "4711.", "Thanks"}
    assert "before-crystal" not in assert_proved()
    assert shown("backfill", "--dry-run")["sessions"] == 0


def test_a_lost_database_is_rebuilt_with_the_newest_states(diary: Path, home: Path, ready: None) -> None:
    write(diary, "Which port?", "47")
    sync()
    write(diary, "Which port?", "4711.")
    sync()
    for file in (home / ".ldm" / "memory").glob("crystal.db*"):
        file.unlink()
    assert crystal("verify", "--repair").code == 0
    assert said() == [("user", "Which port?"), ("assistant", "4711.")]
    write(diary, "Which port?", "4711.", "Thanks")
    sync()
    assert said()[2:] == [("user", "Thanks")]


def test_a_private_folder_stays_private(diary: Path, home: Path, ready: None) -> None:
    assert crystal("config", "set", "private.projects", "/home/me/secret").code == 0
    write(diary, "Which port?", "4711.", folder_name="/home/me/secret")
    sync()
    sync()
    assert crystal("show", "d1").code != 0
    assert not any(b"4711." in path.read_bytes() for path in (home / ".ldm").rglob("*") if path.is_file())


def test_what_is_forgotten_is_gone_and_stays_gone(diary: Path, home: Path, ready: None) -> None:
    write(diary, "Which port?", "4711.")
    sync()
    assert crystal("forget", "--session", "d1", "--yes").code == 0
    write(diary, "Which port?", "4711.", "Thanks")
    sync()
    assert shown("search", "port", "--all")["hits"] == []


def test_a_database_is_read_while_its_owner_writes(diary: Path, ready: None) -> None:
    owner = apsw.Connection(str(diary / "all.db"))
    owner.execute("PRAGMA journal_mode = wal; CREATE TABLE messages (id, session, who, text)").fetchall()
    owner.execute("INSERT INTO messages VALUES ('m1', 'd1', 'me', 'Which port?')")
    sync()
    owner.execute("BEGIN IMMEDIATE; INSERT INTO messages VALUES ('m2', 'd1', 'bot', '4711.')").fetchall()
    sync()
    assert said() == [("user", "Which port?")]
    owner.execute("COMMIT")
    sync()
    assert said() == [("user", "Which port?"), ("assistant", "4711.")]
    assert_proved()


def test_a_database_that_its_owner_is_writing_holds_up_nothing_and_is_read_later(diary: Path, ready: None) -> None:
    owner = apsw.Connection(str(diary / "all.db"))
    owner.execute("PRAGMA cache_size = 1; PRAGMA cache_spill = 1; CREATE TABLE messages (id, session, who, text)")
    owner.execute("BEGIN EXCLUSIVE")
    said_long = [(f"m{number:03}", "d2", "me", "x" * 3_000) for number in range(50)]
    owner.executemany("INSERT INTO messages VALUES (?, ?, ?, ?)", said_long)
    time.sleep(0.1)  # its pages are in the file, and will be undone if it dies now
    write(diary, "Which port?")
    begun = time.monotonic()
    done = crystal("sync")
    assert time.monotonic() - begun < source.QUERY_SECONDS / 10
    assert "all.db: is being written" in done.out + done.err
    assert "all.db" in crystal("status").out
    assert "all.db" in crystal("doctor").out
    assert said() == [("user", "Which port?")]
    owner.execute("COMMIT")
    sync()
    assert len(shown("sessions")["sessions"]) == 2
    assert "all.db" not in crystal("doctor").out
    assert_proved()


def test_a_damaged_conversation_is_named_and_the_others_of_its_file_are_read(diary: Path, ready: None) -> None:
    owner = apsw.Connection(str(diary / "all.db"))
    owner.execute("CREATE TABLE messages (id, session, who, text)").fetchall()
    owner.execute("INSERT INTO messages VALUES ('m0', 'd0', 'nobody', '?'), ('m1', 'd1', 'me', 'Which port?')")
    done = crystal("sync")
    assert "d0 is damaged" in done.out + done.err
    assert said() == [("user", "Which port?")]
    owner.execute("UPDATE messages SET who = 'me'").fetchall()
    sync()
    assert len(shown("sessions")["sessions"]) == 2


def test_a_file_of_another_form_is_named_and_the_others_are_read(diary: Path, ready: None) -> None:
    write(diary, "Which port?")
    diary.joinpath("a.json").write_text("[]")
    diary.joinpath("b.db").write_bytes(b"no database" * 100)
    done = crystal("sync")
    assert "a.json: is no diary" in done.out + done.err
    assert said() == [("user", "Which port?")]
    [first, second] = shown_faults()
    assert first["what"].endswith("a.json")
    assert second["what"].endswith("b.db")


def shown_faults() -> list[dict[str, Any]]:
    faults: list[dict[str, Any]] = json.loads(crystal("verify", "--json").out)["faults"]
    return faults


def test_a_message_whose_text_is_deleted_is_kept_as_a_deleted_message_is(diary: Path, ready: None) -> None:
    write(diary, "Which port?", "4711.")
    sync()
    before = said()
    write(diary, "Which port?", "")
    sync()
    assert said() == before
    assert_proved()
    assert crystal("verify", "--repair").code == 0
    assert said() == before
    write(diary, "Which port?", "4712.")
    sync()
    assert [text for _, text in said()] == ["Which port?", "4712."]
    assert assert_proved()["superseded"] > 0


def test_two_files_with_the_same_conversation_are_not_imported_again_and_again(diary: Path) -> None:
    write(diary, "Which port?", "47")
    diary.joinpath("d1.json").rename(diary / "copy.json")
    write(diary, "Which port?", "4711.")
    assert crystal("init", "--yes", "--no-import").code == 0
    assert crystal("backfill").code == 0
    assert shown("backfill", "--dry-run")["sessions"] == 0
    write(diary, "Which port?", "4711.", "Thanks")
    assert shown("backfill", "--dry-run")["sessions"] == 1
    assert crystal("backfill").code == 0
    assert ("user", "Thanks") in said()
    assert shown("backfill", "--dry-run")["sessions"] == 0


def test_every_file_that_still_has_a_forgotten_conversation_is_named(diary: Path, ready: None) -> None:
    write(diary, "Which port?", "4711.")
    copy = diary / "copy.json"
    copy.write_bytes(diary.joinpath("d1.json").read_bytes())
    sync()
    said_of_it = crystal("forget", "--session", "d1", "--dry-run").out
    assert all(str(path) in said_of_it for path in (copy, diary / "d1.json"))


def test_an_id_with_half_of_a_character_stops_no_file(home: Path) -> None:
    """One such message ended the import of all conversations of the agent."""
    chats = home / ".gemini" / "tmp" / "p" / "chats"
    chats.mkdir(parents=True)
    for number, ident in enumerate((r"first-\ud800", r"first-\ud800\ud801", "second")):
        head = f'{{"sessionId":"2222222{number}-aaaa-4000-8000-000000000001","kind":"main"}}'
        said = f'{{"id":"{ident}","type":"user","content":"what is quartz {number}"}}'
        (chats / f"session-2026-11-20T10-0{number}-2222222{number}.jsonl").write_text(f"{head}\n{said}\n")
    assert crystal("init", "--yes", "--no-import").code == 0
    done = crystal("backfill")
    assert (done.code, "3 turns" in done.out) == (0, True), done
    assert crystal("verify").code == 0
    assert crystal("verify", "--repair").code == 0
    assert "nothing new" in crystal("sync").out
