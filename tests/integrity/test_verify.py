"""``verify`` finds every fault that is put in, names it exactly, and ``repair`` mends what can be mended."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from crystal.app.integrity import take_files, take_tails
from crystal.config.harnesses import Root
from crystal.errors import UsageError
from crystal.integrity.proof import Proof
from crystal.integrity.repair import repair
from crystal.integrity.restore import Restored, restore
from crystal.store import Store
from crystal.store.capture import ledger
from crystal.transcript.project import find_project
from tests.support.capture_machine import NOW, CaptureMachine, line
from tests.support.capture_steps import backfill, prove


def mend(machine: CaptureMachine, proof: Proof) -> list[str]:
    done = repair(
        machine.store, proof.faults, ldm_home=machine.home, cleaner=machine.capture().cleaner, find_project=find_project
    )
    unknown = [fault for fault in proof.faults if fault.kind == "archive-unknown"]
    done += take_files(machine.capture(), unknown, machine.home)
    machine.capture().sweep()
    return [*done, *take_tails(machine.capture(), unknown, machine.home)]


def archive_of(machine: CaptureMachine, session: str) -> Path:
    return next((machine.home / "agents").rglob(f"{session}.jsonl.zst"))


def test_a_sound_memory_is_proved_whole(machine: CaptureMachine) -> None:
    proof = prove(machine)
    assert (proof.faults, proof.percent) == ([], 100.0)
    assert proof.bytes_by_state == {"captured": sum(path.stat().st_size for path in machine.root.rglob("*.jsonl"))}


def test_a_torn_last_line_is_no_gap(machine: CaptureMachine) -> None:
    with machine.transcript("a").open("ab") as file:
        file.write(line("torn")[:-4])
    assert prove(machine).faults == []


@pytest.mark.parametrize("end", [b"\n", b""], ids=["its newline comes", "another line is glued to it"])
def test_a_last_line_that_lacks_only_its_newline_is_captured_at_once(machine: CaptureMachine, end: bytes) -> None:
    path, whole = machine.transcript("c"), line("one") + line("two")[:-1]
    path.write_bytes(whole)
    machine.capture().sweep()
    assert machine.texts()[6:] == ["one", "two"]
    machine.assert_sound()
    size = sum(one.stat().st_size for one in machine.root.rglob("*.jsonl"))
    proof = prove(machine)
    assert (proof.faults, proof.bytes_by_state) == ([], {"captured": size + 1})
    path.write_bytes(whole + end + line("three") + line("four"))
    machine.capture().sweep()
    machine.assert_sound()
    assert set(machine.texts()[6:]) ^ {"one", "two", "four"} == {"three"}
    assert prove(machine).faults == []
    state = next(one for one in ledger.all_states(machine.store) if one.path == str(path))
    assert state.mark.generation == (0 if end else 1)


@pytest.mark.slow
def test_bytes_that_were_not_captured_yet_are_named(machine: CaptureMachine) -> None:
    size = machine.transcript("a").stat().st_size
    with machine.transcript("a").open("ab") as file:
        file.write(line("news"))
    machine.transcript("c").write_bytes(line("never seen"))
    proof = prove(machine)
    assert not proof.damaged
    assert [(fault.kind, fault.start) for fault in proof.faults] == [("behind", size), ("behind", 0)]
    mend(machine, proof)
    assert prove(machine).faults == []


@pytest.mark.slow
def test_a_transcript_that_the_client_deleted_is_proved_from_the_archive(machine: CaptureMachine) -> None:
    machine.transcript("a").unlink()
    proof = prove(machine)
    assert (proof.faults, proof.files_gone) == ([], 1)


def test_what_was_there_before_is_skipped_by_a_named_rule(tmp_path: Path) -> None:
    machine = CaptureMachine.at(tmp_path / "m")
    machine.transcript("old").write_bytes(line("old"))
    machine.capture().meet()
    proof = prove(machine)
    assert proof.faults == []
    assert proof.bytes_by_state == {"before-crystal": machine.transcript("old").stat().st_size}


def _flip(machine: CaptureMachine) -> None:
    path = archive_of(machine, "a")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x40
    path.write_bytes(bytes(data))


def _truncate(machine: CaptureMachine) -> None:
    path = archive_of(machine, "a")
    path.write_bytes(path.read_bytes()[:-7])


def _change_transcript(machine: CaptureMachine) -> None:
    # Far enough before the watermark that the file still counts as the same.
    path = machine.transcript("a")
    with path.open("ab") as file:
        file.write(b'{"type":"mode"}\n' * 400)
    machine.capture().sweep()
    path.write_bytes(path.read_bytes().replace(b'{"type":"mode"}', b'{"type":"MODE"}', 1))


def _swap_chunk_text(machine: CaptureMachine) -> None:
    machine.store.execute("UPDATE chunks SET body = 'something else' WHERE text = 'a says 1'")


def _drop_turn(machine: CaptureMachine) -> None:
    with machine.store.transaction():
        row = machine.store.row("SELECT turn, id, text FROM chunks WHERE text = 'a says 1'")
        assert row is not None
        machine.store.execute("DELETE FROM chunks WHERE id = ?", (row[1],))
        machine.store.execute("DELETE FROM turns WHERE id = ?", (row[0],))


def _drop_chunk(machine: CaptureMachine) -> None:
    machine.store.execute("DELETE FROM chunks WHERE text = 'a says 1'")


def _hole_in_ledger(machine: CaptureMachine) -> None:
    machine.store.execute("UPDATE turns SET segment = NULL")
    machine.store.execute("DELETE FROM segments WHERE start = 0")


FAULTS: dict[str, tuple[Callable[[CaptureMachine], None], str]] = {
    "a bit of the archive flipped": (_flip, "archive"),
    "the archive cut off": (_truncate, "archive"),
    "the archive deleted": (lambda machine: archive_of(machine, "a").unlink(), "archive"),
    "a captured byte of the transcript changed": (_change_transcript, "edited"),
    "the text of a chunk changed": (_swap_chunk_text, "chunks"),
    "a turn gone": (_drop_turn, "turns"),
    "a chunk gone": (_drop_chunk, "chunks"),
    "a hole in the ledger": (_hole_in_ledger, "ledger"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_every_fault_is_found_and_mended(machine: CaptureMachine, name: str) -> None:
    spoil, kind = FAULTS[name]
    before = machine.texts()
    spoil(machine)
    proof = prove(machine)
    assert proof.damaged
    assert kind in {fault.kind for fault in proof.faults}
    assert mend(machine, proof)
    after = prove(machine)
    assert [(fault.kind, fault.message) for fault in after.faults] == []
    assert machine.texts() == before


def test_a_lost_archive_whose_transcript_is_gone_stays_reported(machine: CaptureMachine) -> None:
    machine.transcript("a").unlink()
    archive_of(machine, "a").unlink()
    mend(machine, prove(machine))
    assert {fault.kind for fault in prove(machine).faults} == {"archive"}


@pytest.mark.slow
def test_a_lost_database_is_made_again_from_the_archive(machine: CaptureMachine) -> None:
    before = machine.texts()
    machine.store.close()
    for path in machine.root.rglob("*.jsonl"):
        path.unlink()
    machine.store.path.unlink()
    machine.store = Store.open(machine.store.path)
    proof = prove(machine)
    assert {fault.kind for fault in proof.faults} == {"archive-unknown"}
    mend(machine, proof)
    assert machine.texts() == before
    assert prove(machine).faults == []


def test_a_restored_session_has_its_bytes_and_is_no_news(machine: CaptureMachine) -> None:
    path = machine.transcript("a")
    whole = path.read_bytes()
    path.unlink()
    written = put_back(machine, "a")
    assert [one.path for one in written] == [path]
    assert path.read_bytes() == whole
    assert machine.capture().sweep().bytes_captured == 0
    assert prove(machine).faults == []
    with path.open("ab") as file:
        file.write(line("after the restore"))
    machine.capture().sweep()
    assert "after the restore" in machine.texts()


def test_a_session_imported_in_pieces_is_restored_in_order(tmp_path: Path) -> None:
    machine = CaptureMachine.at(tmp_path / "m")
    path = machine.transcript("s")
    path.write_bytes(line("first") + line("second"))
    machine.capture().meet()
    with path.open("ab") as file:
        file.write(line("third"))
    machine.capture().sweep()
    backfill(machine)
    whole = path.read_bytes()
    path.unlink()
    put_back(machine, "s")
    assert path.read_bytes() == whole


def test_a_session_that_is_still_there_is_not_overwritten(machine: CaptureMachine) -> None:
    with pytest.raises(UsageError, match="still there"):
        put_back(machine, "a")


def test_a_compacted_file_is_restored_with_what_the_client_dropped(machine: CaptureMachine) -> None:
    path = machine.transcript("a")
    lines = path.read_bytes().splitlines(keepends=True)
    path.unlink()
    path.write_bytes(lines[2] + line("after compaction"))
    machine.capture().sweep()
    path.unlink()
    put_back(machine, "a")
    assert path.read_bytes().splitlines(keepends=True)[:3] == lines
    assert len(ledger.all_states(machine.store)) == 2


LOST_ROWS = {
    "turn": "DELETE FROM turns WHERE id = 1",
    "session": "DELETE FROM sessions WHERE id = 1",
    "project": "DELETE FROM projects WHERE id = 1",
    "ledger row": "DELETE FROM segments WHERE id = 2",
    "transcript": "DELETE FROM capture_state WHERE id = 1",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LOST_ROWS)
def test_rows_that_lost_what_they_point_at_are_mended_and_nothing_is_doubled(machine, name):
    before = machine.texts()
    machine.store.execute("PRAGMA foreign_keys = 0")
    machine.store.execute(LOST_ROWS[name])
    machine.store.execute("PRAGMA foreign_keys = 1")
    assert prove(machine).damaged
    mend(machine, prove(machine))
    assert prove(machine).faults == []
    assert machine.texts() == before


@pytest.mark.slow
def test_one_lost_chunk_of_a_long_turn_is_found_and_mended(machine: CaptureMachine) -> None:
    with machine.transcript("a").open("ab") as file:
        file.write(line("a long answer. " * 1000))
    machine.capture().sweep()
    before = machine.texts()
    machine.store.execute("DELETE FROM chunks WHERE id = (SELECT max(id) FROM chunks)")
    assert [fault.kind for fault in prove(machine).faults] == ["turns"]
    mend(machine, prove(machine))
    assert prove(machine).faults == []
    assert machine.texts() == before


@pytest.mark.slow
def test_a_transcript_that_was_emptied_has_nothing_to_capture(machine: CaptureMachine) -> None:
    machine.transcript("a").write_bytes(b"")
    proof = prove(machine)
    assert proof.faults == []
    assert set(proof.bytes_by_state) == {"captured"}


@pytest.mark.slow
def test_a_session_that_went_on_after_its_restoration_keeps_every_line(machine: CaptureMachine) -> None:
    path = machine.transcript("a")
    with path.open("ab") as file:
        file.write(b'{"type":"custom-title","customTitle":"of no uuid"}\n')
    machine.capture().sweep()
    for text in ("once", "twice"):
        before = path.read_bytes()
        path.unlink()
        put_back(machine, "a")
        assert path.read_bytes() == before
        with path.open("ab") as file:
            file.write(line(text))
        machine.capture().sweep()
    path.unlink()
    put_back(machine, "a")
    assert b"of no uuid" in path.read_bytes()
    assert prove(machine).faults == []


def put_back(machine: CaptureMachine, session: str) -> list[Restored]:
    return restore(
        machine.store,
        session,
        ldm_home=machine.home,
        roots=(Root(machine.root),),
        project=None,
        cleaner=machine.capture().cleaner,
        now=NOW,
    )


def test_what_was_private_is_said_to_be_missing(machine: CaptureMachine) -> None:
    machine.capture().turn_off()
    private = line("off the record", at=machine.now)
    with machine.transcript("a").open("ab") as file:
        file.write(private)
    machine.capture().sweep()
    machine.transcript("a").unlink()
    assert [one.missing for one in put_back(machine, "a")] == [len(private)]
