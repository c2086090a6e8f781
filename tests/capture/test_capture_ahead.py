"""Cleaning ahead changes how soon the past is imported, never what is kept of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import Executor, Future
from pathlib import Path

import pytest

from crystal.capture import ahead
from crystal.capture.ahead import ReadAhead, clean, start_cleaners, stretches
from crystal.capture.backfill import import_past, plan_past
from crystal.capture.engine import Tally
from crystal.redact import Redactor
from tests.support.capture_machine import CaptureMachine, line

KEY = b"k" * 32
SECRET = "ghp_" + "a1B2c3D4" * 4 + "e5F6"


def shout(line: bytes) -> tuple[bytes, dict[str, int]]:
    return (line.replace(b"a", b"AAA"), {"a": line.count(b"a")}) if b"a" in line else (line, {})


@pytest.mark.slow
def test_a_cleaning_process_gives_what_the_redactor_gives():
    raw = line(f"export GITHUB_TOKEN={SECRET}") + line("nothing to hide") + b"\n" + line("<private>x</private> y")
    with start_cleaners(1, KEY, secrets=True) as cleaners:
        cleaned = cleaners.submit(clean, raw).result()
    redactor = Redactor(KEY)
    assert cleaned == [redactor.clean_line(one) for one in raw[:-1].split(b"\n")]
    assert SECRET.encode() not in b"".join(clean for clean, _ in cleaned)


@pytest.mark.slow
def test_a_cleaning_process_never_sees_an_interruption_from_its_first_moment_on():
    with start_cleaners(1, KEY, secrets=True) as cleaners:
        ReadAhead(cleaners, iter([(0, b"{}\n")])).reach(0)
        assert signal.SIGINT in cleaners.submit(signal.pthread_sigmask, signal.SIG_BLOCK, ()).result()
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


@pytest.mark.slow
def test_cleaning_processes_end_when_the_import_is_killed():
    program = (
        "import sys; from crystal.capture.ahead import start_cleaners; pool = start_cleaners(1, b'k' * 32, secrets=True);"
        "import os, time; print(pool.submit(os.getpid).result(), flush=True); time.sleep(60)"
    )
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", program], text=True, **pipes) as importing:
        pid = int(importing.stdout.readline())
        importing.kill()
        assert importing.stderr.read() == ""  # until every process that has it has ended
    deadline = time.monotonic() + 20
    while Path(f"/proc/{pid}").exists() and "zombie" not in Path(f"/proc/{pid}/status").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.02)


class CleansHere(Executor):
    """Cleans at once, in this process."""

    def __init__(self):
        self.seen, self.closed = [], False

    def submit(self, _, raw):
        self.seen.append(raw)
        future = Future()
        future.set_result([shout(one) for one in raw[:-1].split(b"\n")])
        return future

    def shutdown(self, **_):
        self.closed = True


def test_only_exactly_the_bytes_that_come_next_have_a_result():
    cleaners = CleansHere()
    with ReadAhead(cleaners, iter([(0, b"a\n"), (0, b"b\n")])) as coming:
        coming.reach(0)
        assert coming.result_for(b"other\n") is None
        assert coming.result_for(b"a\n") == [(b"AAA", {"a": 1})]
        assert coming.result_for(b"a\n") is None
        assert coming.result_for(b"b\n") == [(b"b", {})]
        assert coming.result_for(b"b\n") is None
    assert cleaners.closed


def test_what_is_left_of_one_transcript_does_not_hold_up_the_next(monkeypatch):
    monkeypatch.setattr(ahead, "MAX_AHEAD", 4)
    cleaners = CleansHere()
    with ReadAhead(cleaners, iter([(0, b"a\n"), (0, b"b\n"), (0, b"c\n"), (1, b"d\n"), (2, b"e\n")])) as coming:
        coming.reach(0)
        coming.reach(1)
        assert coming.result_for(b"d\n") == [(b"d", {})]
        coming.reach(2)
        assert coming.result_for(b"e\n") == [(b"e", {})]
    assert b"c\n" not in cleaners.seen


def test_a_huge_stretch_is_left_to_the_caller(monkeypatch):
    monkeypatch.setattr(ahead, "MAX_SIZE", 3)
    with ReadAhead(CleansHere(), iter([(0, b"abcdef\n"), (0, b"a\n")])) as coming:
        coming.reach(0)
        assert coming.result_for(b"abcdef\n") is None
        assert coming.result_for(b"a\n") is not None


def past_of(home: Path) -> list[Path]:
    """Five transcripts, some of several segments, with secrets in them."""
    paths = []
    for number in range(5):
        path = home / ".claude" / "projects" / "-p" / f"{number:08d}-0000-4000-8000-000000000000.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(
            b"".join(
                line(f"{at} token={SECRET if at % 7 == 0 else 'x'} " + "word " * 400, ident=f"{number}-{at}")
                for at in range(3 + number * 40)
            )
        )
        paths.append(path)
    return paths


def imported(machine: CaptureMachine, paths: list[Path], cleaners: Executor | None) -> tuple[Tally, int]:
    """Import with these processes; gives how many stretches were cleaned by the caller himself."""
    capture, tally, alone = machine.capture(), Tally(), []
    plan = plan_past(capture, paths, None)
    with ReadAhead(cleaners, stretches(capture, plan)) as coming:

        def asked(raw):
            result = coming.result_for(raw)
            alone.extend([raw] if result is None else [])
            return result

        capture = capture._replace(cleaner=capture.cleaner._replace(cleaned_before=asked))
        for place, past in enumerate(plan):
            coming.reach(place)
            import_past(capture, past, tally, lambda _: None)
    return tally, len(alone)


def everything(machine: CaptureMachine) -> list:
    store = machine.store
    return [
        store.rows("SELECT uuid, part, role, full_length FROM turns ORDER BY uuid, part"),
        store.rows("SELECT text FROM chunks ORDER BY text"),
        store.rows("SELECT kind, count FROM redactions ORDER BY kind"),
        store.rows("SELECT start, stop, state, clean_hash FROM segments ORDER BY clean_hash, start"),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("seen_before", [False, True])
@pytest.mark.parametrize("count", [1, 2])
def test_an_import_with_cleaning_processes_keeps_the_same_and_cleans_nothing_itself(
    tmp_path, monkeypatch, seen_before, count
):
    monkeypatch.setattr("crystal.capture.tail.SEGMENT_BYTES", 60_000)
    monkeypatch.setattr(ahead, "SEGMENT_BYTES", 60_000)
    stored = []
    for name in ("alone", "helped"):
        machine = CaptureMachine.at(tmp_path / name)
        paths = past_of(tmp_path / name)
        if seen_before:
            machine.capture().meet()
        cleaners = start_cleaners(count, b"r" * 32, secrets=True) if name == "helped" else None
        tally, alone = imported(machine, paths, cleaners)
        assert not tally.problems
        assert alone == 0 or name == "alone"
        stored.append(everything(machine))
    assert stored[0] == stored[1]
    assert SECRET not in json.dumps(stored[1][1])


@pytest.mark.slow
def test_an_import_goes_on_when_its_cleaning_process_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr("crystal.capture.tail.SEGMENT_BYTES", 60_000)
    monkeypatch.setattr(ahead, "SEGMENT_BYTES", 60_000)
    machine = CaptureMachine.at(tmp_path)
    paths = past_of(tmp_path)
    cleaners = start_cleaners(1, b"r" * 32, secrets=True)
    submit, calls = cleaners.submit, []

    def die_at_the_third(*step):
        calls.append(step)
        return submit(os._exit, 1) if len(calls) == 3 else submit(*step)

    monkeypatch.setattr(cleaners, "submit", die_at_the_third)
    tally, alone = imported(machine, paths, cleaners)
    assert alone > 0
    assert tally.bytes_captured == sum(path.stat().st_size for path in paths)
