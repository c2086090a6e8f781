"""Claims about verify while other processes capture and embed: what they are in the middle of is no fault."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from crystal.app.forget import execute_plan, plan_forget
from crystal.app.integrity import memory_faults
from crystal.app.memories import remember
from crystal.forgetting.execute import delete_rows
from crystal.forgetting.request import ForgetRequest
from crystal.ingest import archive
from crystal.store import Store
from crystal.store.capture import ledger
from crystal.store.health import checks
from crystal.store.search import vectors
from tests.integrity.test_verify import archive_of, mend
from tests.support.capture_machine import NOW, CaptureMachine, line
from tests.support.capture_steps import prove
from tests.support.embedding_store import Dice
from tests.support.pairing_boxes import Box


@pytest.mark.slow
def test_capture_that_goes_on_meanwhile_is_no_fault(machine: CaptureMachine) -> None:
    def capture_more(_: int) -> None:
        with machine.transcript("b").open("ab") as file:
            file.write(line("more"))
        machine.transcript("new").write_bytes(line("born meanwhile"))
        machine.capture().sweep()

    proof = prove(machine, capture_more)
    assert not proof.damaged


def test_lines_that_were_archived_and_not_committed_yet_are_no_fault(
    machine: CaptureMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    archived = threading.Event()

    def capture_more() -> None:
        other = CaptureMachine.at(machine.home)
        make_durable = archive.make_durable

        def slowly(written: archive.Written) -> None:
            archived.set()
            time.sleep(0.5)
            make_durable(written)

        monkeypatch.setattr(archive, "make_durable", slowly)
        other.capture().sweep()
        other.store.close()

    with machine.transcript("b").open("ab") as file:
        file.write(line("more"))
    worker = threading.Thread(target=capture_more)
    worker.start()
    assert archived.wait(10)
    assert [fault for fault in prove(machine).faults if fault.kind != "behind"] == []
    worker.join()


def test_vectors_that_are_written_meanwhile_are_no_fault(
    machine: CaptureMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = Dice("a")
    generation = vectors.ensure_generation(machine.store, "dice", "a", 8, NOW)
    plain, written = Store.rows, []

    def rows(store: Store, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        found = plain(store, sql, values)
        if store is machine.store and "chunks_vec" in sql:
            with Store.open(store.path) as worker:
                for ident, _, text in vectors.pending_chunks(worker, generation, 1):
                    written.append(vectors.put_vectors(worker, generation, [(ident, dice.embed_query(text))]))
        return found

    monkeypatch.setattr(Store, "rows", rows)
    assert prove(machine).faults == []
    assert sum(written) > 1


def test_a_memory_that_is_forgotten_right_now_is_no_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    box, blocked = Box(tmp_path, "desk", "cc-desk"), threading.Event()
    with box.open() as machine:
        kept = remember(machine, "The quartz service keeps invoices.")
    delete_here = delete_rows.delete_here

    def slowly(*given: Any) -> None:
        blocked.set()
        time.sleep(0.5)
        delete_here(*given)

    def forget() -> None:
        with box.open() as machine:
            execute_plan(machine, plan_forget(machine, ForgetRequest((kept.id,))))

    monkeypatch.setattr(delete_rows, "delete_here", slowly)
    forgetting = threading.Thread(target=forget)
    forgetting.start()
    assert blocked.wait(10)
    with box.open() as machine:
        assert memory_faults(machine) == []
    forgetting.join()


def test_a_repair_that_was_killed_leaves_no_second_copy_in_the_archive(
    machine: CaptureMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = archive_of(machine, "a")
    frame = archive.Frame(*ledger.frames_of(machine.store, 1)[1])
    data = bytearray(path.read_bytes())
    data[frame.offset + 8 : frame.offset + frame.length] = bytes(frame.length - 8)
    path.write_bytes(data)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    proof = prove(machine)
    with monkeypatch.context() as patched:
        patched.setattr(checks, "place_frame", killed)
        with pytest.raises(KeyboardInterrupt):
            mend(machine, proof)
    mend(machine, prove(machine))
    assert prove(machine).faults == []
    kept = [text for _, text in archive.placed_frames(path, 0) if text]
    assert len(kept) == len(set(kept)) == 3
