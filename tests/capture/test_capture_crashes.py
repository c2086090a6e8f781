"""Capture that is killed, raced or refused: nothing is lost, nothing doubled."""

from __future__ import annotations

import os
import shutil
from itertools import accumulate, pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import strategies as st

from crystal.ingest import archive
from crystal.store import Store
from tests.support.capture_machine import CaptureMachine, line
from tests.support.capture_steps import backfill
from tests.support.examples import examples
from tests.support.killed import Killed, killed_at

# -- frames that the ledger does not know -----------------------------------------------------------------------------

LINES = [b"%d %s\n" % (number, b"x" * number) for number in range(14)]


@example(left=[2, 1], coming=[1, 2, 1], torn=0)
@examples(60)
@given(
    left=st.lists(st.integers(1, 3), min_size=1, max_size=4),
    coming=st.lists(st.integers(1, 3), min_size=1, max_size=4),
    torn=st.integers(0, 20),
)
def test_what_a_lost_log_left_in_an_archive_is_neither_lost_nor_doubled(
    tmp_path_factory: pytest.TempPathFactory, left: list[int], coming: list[int], torn: int
) -> None:
    """Frames that the ledger has forgotten, of which the last may be torn, and their lines again in other pieces."""
    path = tmp_path_factory.mktemp("a") / "s.jsonl.zst"
    frames = archive.append(path, 0, LINES[:1], {})
    end = frames[0].length
    for at, stop in pairwise(accumulate([1, *left])):
        frames = archive.append(path, path.stat().st_size, [b"".join(LINES[at:stop])], {})
    is_torn = 0 < torn < frames[-1].length
    if is_torn:
        path.write_bytes(path.read_bytes()[:-torn])
    for at, stop in pairwise(accumulate([1, *coming])):
        (frame,) = archive.append(path, end, [b"".join(LINES[at:stop])], {})
        assert archive.read_frame(path, frame) == b"".join(LINES[at:stop])
        end = frame.offset + frame.length
    said = b"".join(text for _, text in archive.placed_frames(path) if text is not None).splitlines(keepends=True)
    assert said[: 1 + sum(coming)] == LINES[: 1 + sum(coming)] or is_torn
    assert set(said) >= set(LINES[: 1 + sum(coming)])
    assert len(said) == max(1 + sum(coming), 1 + sum(left)) or is_torn


# -- crashes and races ------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_crash_at_any_statement_loses_and_doubles_nothing(tmp_path: Path) -> None:
    source = Path(__file__).parent.with_name("data") / "transcripts"
    files = sorted(source.glob("*.jsonl"))[:3]
    whole = CaptureMachine.at(tmp_path / "whole")
    whole.capture().meet()
    for file in files:
        shutil.copy(file, whole.transcript(file.stem))
    with killed_at(whole.store) as run:
        whole.capture().sweep()
    expected = whole.texts()
    for crash_at in range(1, run.statements + 1, max(1, run.statements // 40)):
        machine = CaptureMachine.at(tmp_path / f"m{crash_at}")
        machine.capture().meet()
        for file in files:
            shutil.copy(file, machine.transcript(file.stem))
        with killed_at(machine.store, crash_at) as run_killed:
            machine.capture().sweep()
        assert run_killed.is_killed
        machine.store.close()
        machine.store = Store.open(machine.store.path)
        machine.capture().sweep()
        assert machine.texts() == expected
        machine.assert_sound()
        machine.store.close()


@pytest.mark.slow
@pytest.mark.parametrize("torn", [0.0, 0.3, 0.999, 1.0])
def test_a_frame_left_by_a_crash_is_written_over(machine: CaptureMachine, torn: float) -> None:
    path = machine.transcript("s")
    path.write_bytes(line("one"))
    machine.capture().sweep()
    archived = next((machine.home / "agents").rglob("*.zst"))
    before = archived.read_bytes()
    with path.open("ab") as file:
        file.write(line("two"))
    machine.store.db.exec_trace = lambda cursor, sql, values: (_ for _ in ()).throw(Killed) if "COMMIT" in sql else True
    with pytest.raises(Killed):
        machine.capture().sweep()
    machine.store.db.exec_trace = None
    left = archived.read_bytes()[len(before) :]
    archived.write_bytes(before + left[: int(len(left) * torn)])
    machine.capture().sweep()
    assert len(archived.read_bytes()) == len(before) + len(left)
    assert machine.texts() == ["one", "two"]


@pytest.mark.slow
def test_an_archive_that_the_store_does_not_know_is_never_cut(machine: CaptureMachine) -> None:
    path = machine.transcript("s")
    path.write_bytes(line("one"))
    machine.capture().sweep()
    archived = next((machine.home / "agents").rglob("*.zst"))
    precious = archived.read_bytes()
    machine.store.close()
    machine.store.path.unlink()
    machine.store = Store.open(machine.store.path)
    path.unlink()
    machine.transcript("s").write_bytes(line("another beginning"))
    machine.capture().meet()
    backfill(machine)
    assert archived.read_bytes().startswith(precious)


def test_a_full_disk_writes_nothing_and_the_next_run_goes_on(machine: CaptureMachine) -> None:
    from crystal.errors import StoreFullError

    machine.transcript("s").write_bytes(line("one"))
    real = os.fsync

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    os.fsync = full
    try:
        with pytest.raises(StoreFullError):
            machine.capture().sweep()
    finally:
        os.fsync = real
    assert machine.texts() == []
    machine.capture().sweep()
    assert machine.texts() == ["one"]


operations = st.lists(
    st.tuples(
        st.sampled_from(["say", "say", "tear", "move", "fork", "cut", "replace", "sweep", "backfill"]),
        st.integers(0, 2),
        st.text(max_size=12),
    ),
    max_size=25,
)


@pytest.mark.slow
@examples(40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(operations)
def test_any_life_of_files_is_captured_once(tmp_path: Path, steps: list[tuple[str, int, str]]) -> None:
    home = tmp_path / os.urandom(6).hex()
    machine = CaptureMachine.at(home)
    machine.capture().meet()
    said: dict[str, str] = {}
    torn: dict[int, bytes] = {}

    def path_of(which: int) -> Path:
        found = list(machine.root.glob(f"*/s{which}.jsonl"))
        return found[0] if found else machine.transcript(f"s{which}")

    def say(which: int, text: str) -> None:
        ident = f"u{len(said)}"
        said[ident] = text
        rest = torn.pop(which, b"")
        with path_of(which).open("ab") as file:
            file.write(rest + line(f"{ident}: {text}", ident=ident))

    for what, which, text in steps:
        path = path_of(which)
        if what == "say":
            say(which, text)
        elif what == "tear":
            say(which, text)
            data = path.read_bytes()
            keep = len(data) - 5
            torn[which] = data[keep:]
            path.write_bytes(data[:keep])
        elif what == "move" and path.exists():
            (machine.root / "moved").mkdir(exist_ok=True)
            path.rename(machine.root / "moved" / path.name)
        elif what == "fork" and path.exists() and not torn.get(which):
            shutil.copy(path, machine.transcript(f"fork{len(said)}"))
        elif what in ("cut", "replace") and path.exists() and not torn.get(which):
            machine.capture().sweep()
            lines = path.read_bytes().splitlines(keepends=True)
            staged = path.with_suffix(".tmp")
            staged.write_bytes(b"".join(lines[len(lines) // 2 :]))
            staged.replace(path)
        elif what == "sweep":
            machine.capture().sweep()
            machine.assert_sound()
        elif what == "backfill":
            backfill(machine)
    for which, rest in torn.items():
        with path_of(which).open("ab") as file:
            file.write(rest)
    machine.capture().sweep()
    machine.assert_sound()
    stored = machine.store.rows("SELECT uuid FROM turns ORDER BY uuid")
    assert [uuid for (uuid,) in stored] == sorted(said)
    machine.store.close()


def test_lines_that_a_compaction_replaced_at_once_are_read_from_the_kept_file(machine: CaptureMachine) -> None:
    from crystal.capture.drain import drain

    path, kept_line = machine.transcript("s"), line("kept")
    path.write_bytes(line("captured") + kept_line)
    machine.capture().sweep()
    with path.open("ab") as file:
        file.write(line("said just before the compaction"))
    note = machine.note("s", "PreCompact", transcript_path=str(path))
    os.link(path, note.with_suffix(".kept"))
    staged = path.with_suffix(".new")
    staged.write_bytes(kept_line + line("after"))
    staged.replace(path)
    drain(machine.capture(), machine.spool)
    assert machine.texts() == ["after", "captured", "kept", "said just before the compaction"]
    assert list(machine.spool.iterdir()) == []


def test_an_archive_that_became_a_link_is_copied_and_never_written_through(
    machine: CaptureMachine, tmp_path: Path
) -> None:
    path = machine.transcript("s")
    path.write_bytes(line("the first"))
    machine.capture().sweep()
    archived = next((machine.home / "agents").rglob("*.zst"))
    elsewhere = tmp_path / "elsewhere"
    archived.rename(elsewhere)
    archived.symlink_to(elsewhere)
    before = elsewhere.read_bytes()
    path.write_bytes(path.read_bytes() + line("the second"))
    machine.capture().sweep()
    assert elsewhere.read_bytes() == before
    assert not archived.is_symlink()
    assert archived.read_bytes().startswith(before)
    assert len(archived.read_bytes()) > len(before)
