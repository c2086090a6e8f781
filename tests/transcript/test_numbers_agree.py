"""Claims about every reader: after any damage ``agents``, ``status``, ``doctor`` and ``verify`` tell the same."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path, PurePath
from typing import Any

import apsw
import pytest

from crystal.config.harnesses import HARNESSES, places_of_all
from tests.support import agent_samples as samples
from tests.support.command import crystal
from tests.support.examples import part_of
from tests.transcript.test_other_forms import NEEDED, NOTED, change

SQLITE = b"SQLite format 3\0"
AGENTS = [name for name in samples.sampled() if not HARNESSES[name].is_export]


def bytes_of_damage(data: bytes) -> Iterator[bytes]:
    """Yield what a crash, a full disk, another program or a newer version may leave of a file."""
    half, head = len(data) // 2, data.partition(b"\n")[0]
    yield data[: len(data) * 3 // 5]
    yield data[:half] + b"\xff\0{[\xfe" * 8 + data[half + 40 :]
    yield head[: len(head) // 2] + data[len(head) :]
    yield random.Random(1).randbytes(len(data) + 1)
    yield b'{"type":"newer/kind","payload":{"x":1}}\n' * 9
    yield b""


def damages(harness: str, path: Path) -> Iterator[Callable[[], object]]:
    """Yield ways to damage a file: its bytes, what it is, and the names in its tables."""
    data = path.read_bytes()
    for left in bytes_of_damage(data):
        yield lambda left=left: path.write_bytes(left)  # type: ignore[misc]
    yield lambda: (path.unlink(), os.mkfifo(path))
    for name in f"{NEEDED[harness]} {NOTED[harness]}".split() if data.startswith(SQLITE) else ():
        table, _, column = name.partition(".")
        with apsw.Connection(str(path)) as database:
            has = database.execute("SELECT 1 FROM pragma_table_info(?) WHERE name LIKE ?", (table, column or "%"))
            if has.fetchall():
                yield lambda name=name: renamed(path, name)  # type: ignore[misc]


def renamed(path: Path, name: str) -> None:
    with apsw.Connection(str(path)) as database:
        change(database, name)


def owned_files(harness: str) -> list[str]:
    """Return the largest file of each form that an agent keeps conversations in."""
    found: dict[tuple[str, str], str] = {}
    for _, name in sorted(samples.sample_files(harness), key=lambda one: one[0].stat().st_size):
        form = next(
            (place.form for owner, _, place in places_of_all() if owner == harness and place.owns(PurePath(name))), None
        )
        if form is not None:
            found[form, PurePath(name).suffix] = name
    return list(found.values())


def told_by(*command: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(crystal(*command, "--json").out)
    return found


def assert_all_agree(harness: str, path: Path) -> bool:
    """Compare what the commands tell; return whether there is a gap."""
    [agent] = [one for one in told_by("agents")["agents"] if one["name"] == harness]
    status, proof, doctor = told_by("status"), told_by("verify"), told_by("doctor")
    sizes = proof["bytes"]
    missing = sizes.get("behind", 0) + sizes.get("unreadable", 0)
    assert (agent["waiting"], status["transcripts"]["lag"]) == (missing, missing), proof["faults"]
    assert agent["captured"] == sizes.get("captured", 0) + sizes.get("superseded", 0)
    has_gap = bool(proof["faults"])
    assert [agent["percent"] == 100, proof["percent"] == 100] == [not has_gap] * 2, (agent, proof)
    unreadable = [one for one in proof["faults"] if one["kind"] == "unreadable"]
    assert agent["unreadable"] == len(unreadable) == len({one["what"] for one in unreadable})
    words = " ".join(one["message"] for one in doctor["checks"])
    for one in unreadable:
        assert one["what"] == str(path)
        assert f"{path}: {one['message']}" in words
        assert f"{path}: {one['message']}" in " ".join(one["message"] for one in status["problems"])
    return has_gap


def write_anew(path: Path, data: bytes, at: int) -> None:
    """Write a file as if it was written at a time: long ago, so that its program seems to write no more of it."""
    path.unlink(missing_ok=True)
    path.write_bytes(data)
    os.utime(path, (at, at))


def read_damaged(harness: str, home: Path) -> None:
    samples.lay_out(harness, home)
    assert crystal("init", "--yes", "--no-import").code == 0
    assert crystal("backfill").code == 0
    assert not assert_all_agree(harness, home)
    for name in owned_files(harness):
        path, whole = home / name, (home / name).read_bytes()
        for number, damage in enumerate(list(damages(harness, path))):
            write_anew(path, whole, 1_700_000_000)
            damage()
            if path.is_file():
                os.utime(path, (1_700_000_001 + number,) * 2)
            crystal("sync")
            assert_all_agree(harness, path)
        write_anew(path, whole, 1_700_000_000)
        assert crystal("sync").code == 0
        assert not assert_all_agree(harness, path)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such pipes")
@pytest.mark.parametrize(
    "harness",
    [pytest.param(one, marks=[] if one in part_of(samples.ONE_OF_EACH) else pytest.mark.slow) for one in AGENTS],
)
def test_after_any_damage_every_command_tells_the_same(harness: str, home: Path) -> None:
    read_damaged(harness, home)


def test_a_large_document_that_changed_counts_with_its_size(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    samples.lay_out("cline", home)
    assert crystal("backfill").code == 0
    [path] = [home / name for name in owned_files("cline")][:1]
    write_anew(path, path.read_bytes() + b"\n", 1_700_000_000)
    monkeypatch.setattr("crystal.app.agents.MAX_LOOK_BYTES", 10)
    monkeypatch.setattr("crystal.app.agents.unread_in", None)
    [agent] = [one for one in told_by("agents")["agents"] if one["name"] == "cline"]
    assert agent["waiting"] == path.stat().st_size
