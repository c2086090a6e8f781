"""Capture: nothing is lost, nothing is doubled, whatever happens to files, processes and clocks."""

from __future__ import annotations

import os
import time
import uuid
from pathlib import Path

import pytest

from crystal.capture.drain import _says, drain, fingerprint
from crystal.capture.spool import Note
from crystal.config.harnesses import Root
from crystal.store.capture import ledger, ledger_rebuild
from crystal.transcript.claude_code import turns
from tests.support.capture_machine import NOW, CaptureMachine, line
from tests.support.capture_steps import backfill


def test_a_transcript_born_after_the_meeting_is_captured_from_its_first_byte(machine: CaptureMachine) -> None:
    machine.transcript("s").write_bytes(line("first words"))
    machine.capture().sweep()
    assert machine.texts() == ["first words"]


def test_what_was_said_in_a_home_folder_after_it_was_moved_is_captured(machine: CaptureMachine) -> None:
    for name in ("a", "b"):
        machine.transcript(name).write_bytes(line(f"said in {name}"))
    machine.capture().sweep()
    machine.transcript("new").write_bytes(line("said before crystal ran at the new place"))
    with machine.transcript("a").open("ab") as file:
        file.write(line("said there in a"))
    machine.root.rename(machine.home / "moved")
    moved = Root(machine.home / "moved")
    machine.capture()._replace(roots=(moved,)).sweep()
    said = ["said before crystal ran at the new place", "said in a", "said in b", "said there in a"]
    assert machine.texts() == said
    stranger = machine.home / "stranger"
    (stranger / "p").mkdir(parents=True)
    (stranger / "p" / "x.jsonl").write_bytes(line("never asked for"))
    machine.capture()._replace(roots=(moved, Root(stranger))).sweep()
    assert machine.texts() == said


@pytest.mark.parametrize("cut", [0, 1], ids=["whole", "without its newline"])
def test_what_was_there_at_the_meeting_is_not_replayed_but_what_follows_is(tmp_path: Path, cut: int) -> None:
    machine = CaptureMachine.at(tmp_path / "m")
    path, old = machine.transcript("s"), line("old")
    path.write_bytes(old[: len(old) - cut])
    machine.capture().sweep()
    assert machine.texts() == []
    with path.open("ab") as file:
        file.write(old[len(old) - cut :] + line("new"))
    machine.capture().sweep()
    assert machine.texts() == ["new"]
    backfill(machine)
    assert machine.texts() == ["new", "old"]
    machine.assert_sound()


def test_a_sweep_opens_no_file_of_which_only_the_newline_is_missing(machine: CaptureMachine) -> None:
    path = machine.transcript("s")
    path.write_bytes(line("one") + line("two")[:-1])
    assert machine.capture().sweep().files == 1
    assert machine.capture().sweep().files == 0
    with path.open("ab") as file:
        file.write(b"\n" + line("three")[:-1])
    assert machine.capture().sweep().files == 1
    assert machine.texts() == ["one", "three", "two"]
    machine.assert_sound()


def test_an_awaited_answer_is_found_in_a_line_that_lacks_its_newline(machine: CaptureMachine) -> None:
    path, said = machine.transcript("s"), line("the answer", role="assistant")
    note = Note(path, NOW, awaited=fingerprint("the answer"))
    for cut in range(1, len(said) + 1):
        path.write_bytes(line("asked") + said[:cut])
        assert _says(machine.capture(), path, note) is (cut >= len(said) - 1)


def test_the_session_that_the_first_hook_tells_of_keeps_its_first_turn(tmp_path: Path) -> None:
    from crystal.capture.drain import drain

    machine = CaptureMachine.at(tmp_path / "m")
    machine.transcript("old").write_bytes(line("old"))
    machine.transcript("living").write_bytes(line("hello"))
    machine.note("living", transcript_path=str(machine.transcript("living")))
    drain(machine.capture(), machine.spool)
    assert machine.texts() == ["hello"]


@pytest.mark.slow
def test_a_torn_last_line_waits_for_its_end(machine: CaptureMachine) -> None:
    path, whole = machine.transcript("s"), line("one") + line("two")
    for cut in range(len(whole) + 1):
        path.write_bytes(whole[:cut])
        machine.capture().sweep()
        machine.assert_sound()
    assert machine.texts() == ["one", "two"]


def test_a_moved_file_goes_on_where_it_stood(machine: CaptureMachine) -> None:
    path = machine.transcript("s")
    path.write_bytes(line("one"))
    machine.capture().sweep()
    moved = machine.transcript("s", "other")
    path.rename(moved)
    with moved.open("ab") as file:
        file.write(line("two"))
    machine.capture().sweep()
    assert machine.texts() == ["one", "two"]
    assert [state.path for state in ledger.all_states(machine.store)] == [str(moved)]
    assert machine.store.value("SELECT count(*) FROM segments") == 2


def test_a_replaced_file_is_read_again_and_doubles_nothing(machine: CaptureMachine) -> None:
    path, kept = machine.transcript("s"), line("kept")
    path.write_bytes(line("dropped") + kept)
    machine.capture().sweep()
    staged = path.with_suffix(".new")
    staged.write_bytes(kept + line("after"))
    staged.replace(path)
    machine.capture().sweep()
    assert machine.texts() == ["after", "dropped", "kept"]


@pytest.mark.parametrize("is_dated_back", [False, True], ids=["now", "with its old time"])
@pytest.mark.parametrize("at", [0, 1, 2], ids=["first", "middle", "last"])
def test_a_file_replaced_by_one_of_its_size_is_read(machine: CaptureMachine, at: int, is_dated_back: bool) -> None:
    path, ids = machine.transcript("s"), [str(uuid.uuid4()) for _ in range(3)]
    lines = [line(f"{word} {'x' * 5_000}", ident=ident) for word, ident in zip(("one", "two", "six"), ids, strict=True)]
    path.write_bytes(b"".join(lines))
    machine.capture().sweep()
    before = path.stat()
    lines[at] = line(f"new {'x' * 5_000}", ident=ids[at])
    path.write_bytes(b"".join(lines))
    if is_dated_back:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_ino) == (before.st_size, before.st_ino)
    for _ in range(2):
        machine.capture().sweep()
        assert [text[:3] for text in machine.texts() if text[0] != "x"] == ["new", "one", "six", "two"]


def test_many_lines_with_one_id_are_all_kept_in_linear_time(machine: CaptureMachine) -> None:
    machine.transcript("s").write_bytes(b"".join(line(f"said {number}", ident="the same") for number in range(2_000)))
    begun = time.process_time()
    machine.capture().sweep()
    assert time.process_time() - begun < 10  # 0.5 s
    assert len({*machine.texts()}) == 2_000


def test_a_line_that_a_newer_crystal_reads_otherwise_is_no_other_line(
    machine: CaptureMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, said = machine.transcript("s"), line("one") + line("two")
    path.write_bytes(said)
    machine.capture().sweep()
    monkeypatch.setattr(turns, "block_text", lambda block: f"it says {block['text']}")
    path.write_bytes(line("zero") + said)
    machine.capture().sweep()
    assert machine.texts() == ["it says zero", "one", "two"]


@pytest.mark.parametrize("is_dated", [True, False], ids=["dated", "without times"])
def test_what_was_there_at_the_meeting_stays_out_when_its_file_is_replaced(tmp_path: Path, is_dated: bool) -> None:
    machine = CaptureMachine.at(tmp_path / "m")
    path, before, after = machine.transcript("s"), *((NOW - 1, NOW + 1) if is_dated else (None, None))
    old = [line("old", at=before), line("older", at=None), line("oldest", at=before)]
    path.write_bytes(b"".join(old))
    machine.capture().sweep()
    new = [line("new", at=after), line("newer", at=after)]
    for at, again in enumerate([old + new[:1], [*old[1:], *new], old[2:] + new]):
        staged = path.with_suffix(".new")
        staged.write_bytes(b"".join(again))
        staged.replace(path)
        machine.now += 10
        machine.capture().sweep()
        machine.assert_sound()
        assert {"old", "older", "oldest"}.isdisjoint(machine.texts()), at
    assert machine.texts() == ["new", "newer"]
    path.write_bytes(b"".join(old + new))
    backfill(machine)
    assert machine.texts() == ["new", "newer", "old", "older", "oldest"]
    machine.assert_sound()


def test_what_may_be_private_is_not_imported_after_its_file_is_replaced(tmp_path: Path) -> None:
    machine = CaptureMachine.at(tmp_path / "m")
    path, old, relayed = machine.transcript("s"), line("old", at=NOW - 1), line("relayed", at=NOW + 1)
    path.write_bytes(old)
    machine.capture().sweep()
    ledger_rebuild.leave_out(machine.store)
    state = ledger.all_states(machine.store)[0]
    with machine.store.transaction():  # as ``forget_relayed`` leaves it
        ledger_rebuild.skip_to(machine.store, state, len(old + relayed), b"", NOW + 2)
    staged = path.with_suffix(".new")
    staged.write_bytes(old + relayed + line("new", at=NOW + 3))
    staged.replace(path)
    machine.capture().sweep()
    backfill(machine)
    assert "old" not in machine.texts()
    assert "new" in machine.texts()


def test_a_shrunk_file_is_read_again_and_doubles_nothing(machine: CaptureMachine) -> None:
    path, one, two = machine.transcript("s"), line("one"), line("two")
    path.write_bytes(one + two)
    machine.capture().sweep()
    path.write_bytes(one)
    machine.capture().sweep()
    with path.open("ab") as file:
        file.write(line("three"))
    machine.capture().sweep()
    assert machine.texts() == ["one", "three", "two"]


def test_forked_lines_are_stored_once_and_seen_in_both_sessions(machine: CaptureMachine) -> None:
    shared = line("said before the fork", ident="u1")
    machine.transcript("a").write_bytes(shared + line("only a"))
    machine.capture().sweep()
    machine.transcript("b").write_bytes(shared + line("only b"))
    machine.capture().sweep()
    assert machine.texts() == ["only a", "only b", "said before the fork"]
    assert machine.store.value("SELECT count(*) FROM turn_copies") == 1


def test_two_files_of_one_name_do_not_wear_out_the_archive(machine: CaptureMachine) -> None:
    first, second = machine.transcript("s", "p"), machine.transcript("s", "q")
    first.write_bytes(line("one", ident="u1") + line("two", ident="u2"))
    second.write_bytes(line("one", ident="u1"))
    for _ in range(3):
        machine.capture().sweep()
    assert machine.texts() == ["one", "two"]
    assert machine.store.value("SELECT count(*) FROM segments") == 2


def test_a_subagents_transcript_belongs_to_its_session(machine: CaptureMachine) -> None:
    side = machine.transcript("s").with_suffix("") / "subagents" / "deeper"
    side.mkdir(parents=True)
    (side / "agent-x1.jsonl").write_bytes(line("look into it", isSidechain=True))
    machine.capture().sweep()
    row = machine.store.row("SELECT s.session_id, t.subagent, t.role FROM turns t JOIN sessions s ON s.id = t.session")
    assert row == ("s", "x1", "subagent")


@pytest.mark.parametrize("text", ["a\u2028b\u2029c\x85d\x0ce", "lone \ud83d end", "nul \x00 end", "", "👍", "y"])
def test_odd_texts_are_captured_as_one_line(machine: CaptureMachine, text: str) -> None:
    machine.transcript("s").write_bytes(line(text) + line("next"))
    machine.capture().sweep()
    assert len(machine.texts()) == (2 if text else 1)


def test_garbage_between_lines_stops_nothing_and_is_archived(machine: CaptureMachine) -> None:
    garbage = b'not json\n\n[]\n{"type":"unheard-of"}\n\xff\xfe\x00\n{"type":"user"}\n'
    machine.transcript("s").write_bytes(line("one") + garbage + line("two"))
    machine.capture().sweep()
    assert machine.texts() == ["one", "two"]


# -- privacy ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_what_is_said_while_off_is_never_captured(machine: CaptureMachine) -> None:
    path = machine.transcript("s")
    path.write_bytes(line("before", at=NOW))
    machine.capture().sweep()
    machine.now = NOW + 1_000
    machine.capture().turn_off()
    with path.open("ab") as file:
        file.write(line("secret", at=NOW + 2_000))
    machine.transcript("born-private").write_bytes(line("also secret", at=NOW + 2_000))
    machine.now = NOW + 3_000
    machine.capture().sweep()
    machine.capture().turn_on()
    with path.open("ab") as file:
        file.write(line("after", at=NOW + 4_000))
    machine.capture().sweep()
    backfill(machine)
    backfill(machine, machine.root)
    assert machine.texts() == ["after", "before"]


def test_a_clock_turned_back_does_not_open_what_was_said_while_off(machine: CaptureMachine) -> None:
    machine.capture().turn_off()
    machine.transcript("s").write_bytes(line("secret", at=NOW - 86_400_000))
    machine.capture().sweep()
    machine.capture().turn_on()
    backfill(machine)
    assert machine.texts() == []


def test_a_copy_of_a_private_line_stays_private(machine: CaptureMachine) -> None:
    machine.private_sessions = ("secret-*",)
    shared = line("hidden", ident="u1")
    machine.transcript("secret-1").write_bytes(shared)
    machine.capture().sweep()
    machine.private_sessions = ()
    machine.transcript("fork").write_bytes(shared + line("open"))
    machine.capture().sweep()
    assert machine.texts() == ["open"]


def test_a_private_folder_hides_also_the_lines_that_name_no_folder(machine: CaptureMachine) -> None:
    machine.private_projects = ("/home/dev/quartz",)
    prompt = b'{"type":"queue-operation","operation":"enqueue","content":"hidden prompt"}\n'
    machine.transcript("s").write_bytes(
        prompt + line("hidden prompt") + b'{"type":"last-prompt","lastPrompt":"hidden"}\n'
    )
    machine.transcript("t").write_bytes(
        line("hidden below", cwd="/home/dev/quartz/src") + line("open", cwd="/home/dev/quartzite")
    )
    machine.capture().sweep()
    with machine.transcript("s").open("ab") as file:
        file.write(prompt)
    machine.capture().sweep()
    assert machine.texts() == ["open"]
    archived = b"".join(p.read_bytes() for p in (machine.home / "agents").rglob("*.zst"))
    assert (
        machine.store.value(
            "SELECT count(*) FROM segments s JOIN capture_state c ON c.id = s.transcript"
            " WHERE c.session_id = 's' AND s.state = 'captured'"
        )
        == 0
    )
    assert b"hidden" not in archived


@pytest.mark.slow
def test_private_spans_never_reach_disk(machine: CaptureMachine) -> None:
    machine.transcript("s").write_bytes(line("open <private>the hidden part</private> end"))
    machine.capture().sweep()
    assert machine.texts() == ["open [private] end"]


def test_an_environment_that_is_private_hides_the_turn_and_a_later_open_one_is_kept(machine: CaptureMachine) -> None:
    from crystal.capture.drain import drain

    path = machine.transcript("s")
    path.write_bytes(line("hidden", at=NOW - 10))
    machine.note("s", transcript_path=str(path), private=True, size=path.stat().st_size)
    drain(machine.capture(), machine.spool)
    machine.now = NOW + 10_000
    with path.open("ab") as file:
        file.write(line("open", at=NOW + 9_000))
    machine.note("s", transcript_path=str(path), size=path.stat().st_size)
    drain(machine.capture(), machine.spool)
    backfill(machine)
    assert machine.texts() == ["open"]


@pytest.mark.parametrize("way", ["sweep", "import", "another session's start"])
def test_a_private_session_whose_notes_still_wait_is_closed_to_every_way(machine: CaptureMachine, way: str) -> None:
    if way == "another session's start":
        machine.note("b", "SessionStart", at=machine.now)
    machine.note("a", "SessionStart", at=machine.now + 1, private=True)
    machine.transcript("a").write_bytes(line("off the record", at=machine.now + 2))
    if way == "sweep":
        machine.capture().sweep()
    elif way == "import":
        backfill(machine)
    else:
        drain(machine.capture(), machine.spool, flush_ms=0)
    assert machine.texts() == []
    assert machine.store.value("SELECT state FROM segments") == "private"


def test_what_was_said_before_a_private_note_that_waits_is_kept(machine: CaptureMachine) -> None:
    machine.transcript("a").write_bytes(
        line("on the record", at=machine.now) + line("off the record", at=machine.now + 20)
    )
    machine.note("a", "Stop", at=machine.now + 5)
    machine.note("a", "SessionStart", at=machine.now + 10, private=True)
    machine.capture().sweep()
    assert machine.texts() == ["on the record"]


@pytest.mark.slow
def test_notes_of_both_kinds_that_wait_together_are_told_apart(machine: CaptureMachine) -> None:
    from crystal.capture.drain import drain

    path = machine.transcript("s")
    sizes = []
    for text, at in (("open 1", 0), ("hidden", 1_000), ("open 2", 2_000)):
        with path.open("ab") as file:
            file.write(line(text, at=NOW + at))
        sizes.append(path.stat().st_size)
    machine.now = NOW + 60_000
    for at, (size, private) in enumerate(zip(sizes, (False, True, False), strict=True)):
        machine.note("s", at=NOW + 500 + 1000 * at, transcript_path=str(path), size=size, private=private)
    drain(machine.capture(), machine.spool)
    assert machine.texts() == ["open 1", "open 2"]
