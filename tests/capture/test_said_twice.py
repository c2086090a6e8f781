"""A conversation that a program keeps in two files is stored once, whichever of them was there first."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from crystal.config.harnesses import HARNESSES
from tests.support import agent_samples as samples
from tests.support.command import crystal
from tests.support.examples import part_of

AN_HOUR = 3_600


def proof() -> tuple[bool, float]:
    found = json.loads(crystal("verify", "--json").out)
    return found["ok"], found["percent"]


def is_copy(harness: str) -> Callable[[str], bool]:
    """Tell whether a file of a sample lies in a place of copies, by its path."""
    copies = [place for place in HARNESSES[harness].places if place.are_copies]
    folders = [str(Path(place.default_home(Path()), place.folder)) for place in copies]
    return lambda name: any(Path(name).is_relative_to(folder) for folder in folders)


def write(home: Path, harness: str, wanted: Callable[[str], bool]) -> None:
    for path, name in samples.sample_files(harness):
        if wanted(name):
            samples.write_sample(home / name, path.read_bytes(), is_sql=path.suffix == samples.DATABASE_SUFFIX)
            past = time.time() - AN_HOUR  # crystal waits before it reads a copy
            os.utime(home / name, (past, past))


def turns() -> list[str]:
    return sorted(map(json.dumps, samples.captured()[1]))


@pytest.mark.parametrize("harness", part_of(["cursor", "kiro"]))
@pytest.mark.parametrize("copies_first", [True, False])
def test_the_better_file_takes_the_place_of_the_copy(harness: str, copies_first: bool, home: Path, ready: None) -> None:
    from_copy = is_copy(harness)
    write(home, harness, from_copy if copies_first else lambda name: not from_copy(name))
    assert crystal("backfill").code == 0
    assert turns()
    write(home, harness, lambda _: True)
    assert crystal("sync").code == 0
    assert turns() == sorted(map(json.dumps, samples.expected(harness)[1]))
    assert crystal("sync").code == 0
    assert turns() == sorted(map(json.dumps, samples.expected(harness)[1]))
    assert proof() == (True, 100.0)


@pytest.mark.slow
@pytest.mark.parametrize("harness", ["cursor", "kiro"])
def test_a_lost_database_is_rebuilt_without_what_was_replaced(harness: str, home: Path, ready: None) -> None:
    write(home, harness, is_copy(harness))
    assert crystal("backfill").code == 0
    write(home, harness, lambda _: True)
    assert crystal("sync").code == 0
    before = turns()
    assert before == sorted(map(json.dumps, samples.expected(harness)[1]))
    for file in (home / ".ldm" / "memory").glob("crystal.db*"):
        file.unlink()
    assert crystal("verify", "--repair").code == 0
    assert crystal("sync").code == 0
    assert turns() == before
    assert proof() == (True, 100.0)


def test_what_only_the_copy_has_stays(home: Path, ready: None) -> None:
    write(home, "cursor", is_copy("cursor"))
    [copy] = list(home.rglob("a4d7e2b9*.jsonl"))
    more = {
        "role": "user",
        "message": {"content": [{"type": "text", "text": "<user_query>\nonly here\n</user_query>"}]},
    }
    with copy.open("a", encoding="utf-8") as file:
        file.write(json.dumps(more) + "\n")
    os.utime(copy, (time.time() - AN_HOUR,) * 2)
    assert crystal("backfill").code == 0
    for path, name in samples.sample_files("cursor"):
        if "chats" in name:
            samples.write_sample(home / name, path.read_bytes(), is_sql=path.suffix == samples.DATABASE_SUFFIX)
    assert crystal("sync").code == 0
    said = [json.loads(turn)["text"] for turn in turns()]
    assert said.count("only here") == 1
    assert said.count("How large is notes.txt?") == 1
    assert said.count("It has 42 bytes.") == 1
    assert said.count("thanks") == 2


def test_a_fork_that_is_still_being_written_takes_nothing_from_its_original(home: Path, ready: None) -> None:
    (path, name) = next(one for one in samples.sample_files("opencode") if one[1].endswith("/opencode.db"))
    statements = path.read_bytes().split(b";\n")
    # All of the fork's messages are there, of its parts only the first prompt's.
    first = next(at for at, one in enumerate(statements) if b"INTO part" in one and b"ses_dfdd524c4" in one)
    for cut in (first + 1, len(statements)):
        samples.write_sample(home / name, b";\n".join(statements[:cut]) + b";\n", is_sql=True)
        assert crystal("sync").code == 0
    write(home, "opencode", lambda _: True)
    assert crystal("sync").code == 0
    assert turns() == sorted(map(json.dumps, samples.expected("opencode")[1]))
    assert proof() == (True, 100.0)
