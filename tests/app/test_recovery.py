"""A database that was damaged or lost: every command says so and names one that works, which brings everything back."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from crystal.app.context import open_kept_machine
from crystal.app.doctor import examine
from crystal.app.integrity import prove
from crystal.errors import StoreDamagedError
from crystal.store import Store
from tests.support.capture_machine import NOW, line
from tests.support.command import Done, crystal
from tests.support.damage import HARMS, flip, harm_record, overwrite_header, zero_page
from tests.support.table import each_row
from tests.support.whole_memory import ROOT, Memory

ENOUGH = [f"{session} says {at}" for session in "abc" for at in range(12)]


def talk(home: Path, session: str, *texts: str, at: int = NOW) -> Path:
    folder = home / ".claude" / "projects" / "p"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{session * 8}-1111-4111-8111-111111111111.jsonl"
    with path.open("ab") as file:
        for number, text in enumerate(texts):
            file.write(line(text, at=at + number, sessionId=path.stem))
    return path


@pytest.fixture
def memory(home: Path) -> Memory:
    """A memory with sessions, a memory, words said while capture was off, and a forgotten line; not folded together."""
    assert crystal("init", "--yes", "--no-import").code == 0
    for session in "abc":
        talk(home, session, *(text for text in ENOUGH if text.startswith(session)))
    talk(home, "d", "the forgotten quokka")
    assert crystal("sync").code == 0
    assert crystal("remember", "the build needs java 21").code == 0
    assert crystal("forget", "--query", "quokka", "--yes").code == 0
    assert crystal("--off").code == 0
    talk(home, "a", "off the record", at=int(time.time() * 1000))
    assert crystal("--on").code == 0
    return Memory(home, os.environ)


def fold(memory: Memory) -> bytearray:
    with Store.open(memory.data / "crystal.db") as store:
        store.db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    return bytearray((memory.data / "crystal.db").read_bytes())


def assert_no_traceback(*words: str) -> Done:
    done = crystal(*words)
    assert "Traceback" not in done.out + done.err
    assert done.code in (0, 1, 3, 6), (words, done)
    return done


def assert_all_is_back(memory: Memory, *, off: bool = True) -> Done:
    """One command brings everything back, and the second proof says so."""
    done = crystal("verify", "--repair")
    assert done.code == 0, done.out + done.err
    again = crystal("verify")
    assert again.code == 0, again.out + again.err
    assert "100 %" in again.out
    assert sorted(memory.texts("user")) == sorted(ENOUGH)
    assert crystal("backfill").code == 0
    assert crystal("sync").code == 0
    expected = sorted(ENOUGH) if off else sorted([*ENOUGH, "off the record"])
    assert sorted(memory.texts("user")) == expected
    assert crystal("doctor").code in (0, 1)
    return done


def fuzz(memory: Memory, harm: str, seed: int) -> None:
    dice = random.Random(f"{harm} {seed}")
    data = fold(memory)
    if dice.random() < 0.5:  # transcripts that the client has deleted
        shutil.rmtree(memory.home / ".claude" / "projects")
    HARMS[harm](data, dice)
    (database := memory.data / "crystal.db").write_bytes(data)
    harm_record(next(memory.home.glob(".ldm/agents/*/memory/memories.jsonl")), dice)
    for words in (["search", "says"], ["status"], ["sessions"], ["doctor"], ["search", "quokka"], ["memories"]):
        assert_no_traceback(*words)
    harmed = database.read_bytes()
    done = assert_all_is_back(memory)
    assert "java 21" in crystal("memories").out or "lost: " in done.out
    for kept in memory.data.glob("crystal.db.damaged-*[0-9]"):
        assert kept.read_bytes() == harmed
        assert str(kept) in done.out


@pytest.fixture
def put_back(memory: Memory, tmp_path: Path) -> Callable[[], None]:
    """Give a function that makes the home as it was; transcripts, which crystal never changes, stay the same files."""

    def copy(source: str, target: str) -> None:
        (os.link if "/.claude/projects/" in source else shutil.copy2)(source, target)

    whole = shutil.copytree(memory.home, tmp_path / "whole", symlinks=True, copy_function=copy)

    def put_back() -> None:
        shutil.rmtree(memory.home)
        shutil.copytree(whole, memory.home, symlinks=True, copy_function=copy)

    return put_back


@pytest.mark.slow
@pytest.mark.parametrize("harm", HARMS)
@each_row("seed", (0, *range(100, 110)))
def test_whatever_is_damaged_comes_back(memory: Memory, put_back: Callable[[], None], harm: str, seed: int) -> None:
    put_back()
    fuzz(memory, harm, seed)


@pytest.mark.parametrize(
    "harm",
    [
        "its number alone",
        *(
            pytest.param(one, marks=pytest.mark.slow)
            for one in ("the name of an archive", "what is forgotten", "a connection")
        ),
    ],
)
def test_damage_that_no_page_shows_is_noticed_and_comes_back(memory: Memory, harm: str) -> None:
    if harm == "a connection":
        with contextlib.closing(apsw.Connection(str(memory.data / "crystal.db"))) as db:
            db.execute(
                "INSERT INTO relay_peers (device_id, side, name, generation, accepted_from, up_prefix, down_prefix,"
                " paired_at, serials_in) VALUES (x'00', 'device', 'laptop', 1, 1, x'01', x'02', 1, '{\"a\":')"
            )
    data = fold(memory)
    if harm == "its number alone":
        data[60:64] = b"\0\0\0\x97"
    elif harm != "a connection":
        at = data.index(b".jsonl.zst") - 9 if harm == "the name of an archive" else data.index(b'{"lines": [') + 8
        data[at] ^= 1
    (memory.data / "crystal.db").write_bytes(data)
    for command in ("doctor", "status") if harm == "its number alone" else ("doctor",):
        assert "crystal verify --repair" in assert_no_traceback(command).out
    assert_all_is_back(memory)
    assert "crystal verify --repair" not in crystal("doctor").out


NAMES = """
    SELECT session_id FROM capture_state UNION SELECT transcript FROM capture_state UNION SELECT max(uuid) FROM turns
    UNION SELECT archive FROM capture_state UNION SELECT harness FROM capture_state UNION SELECT cwd FROM projects
    UNION SELECT name FROM projects UNION SELECT uid FROM memories UNION SELECT text FROM memories
    UNION SELECT uid FROM tombstones UNION SELECT value FROM meta WHERE key = 'hash_key'
    UNION SELECT sql FROM sqlite_schema WHERE name GLOB 'chunks_vec_*'
"""


@pytest.mark.slow
def test_doctor_notices_a_flipped_bit_in_any_name_that_verify_calls_damage(memory: Memory) -> None:
    sound, dice, database = fold(memory), random.Random(7), memory.data / "crystal.db"
    with Store.open(database) as store:
        names = [name for (name,) in store.rows(NAMES) if name]
    noticed = 0
    for name in names:
        for found in re.finditer(re.escape(name.encode()), sound):
            (data := bytearray(sound))[dice.randrange(*found.span())] ^= 1 << dice.randrange(5)
            database.write_bytes(data)
            try:
                with open_kept_machine() as machine:
                    is_damage = prove(machine, lambda _: None).damaged
            except (StoreDamagedError, apsw.Error, ValueError):
                is_damage = True
            if is_damage:
                database.write_bytes(data)  # a proof may have finished what it found pending
                fixes = [check.fix for check in examine() if check.verdict == "failure"]
                assert any("crystal verify --repair" in fix for fix in fixes), (name, found.start())
                noticed += 1
    assert noticed > len(names)


# ------------------------------------------------------------------------------------------------ lost, or another's


def delete_all(memory: Memory) -> None:
    for path in memory.data.glob("crystal.db*"):
        path.unlink()


def _throw_log_away(memory: Memory) -> None:
    """The log holds what was said last; a copy without it is an older database."""
    database = memory.data / "crystal.db"
    old = fold(memory)
    with Store.open(database):  # keeps the log beside the file until it is closed
        talk(memory.home, "b", "b says something in the log")
        ENOUGH.append("b says something in the log")
        assert crystal("--off").code == 0
        talk(memory.home, "c", "off the record", at=int(time.time() * 1000))
        assert crystal("--on").code == 0
    delete_all(memory)
    database.write_bytes(old)


def _another_programs(memory: Memory) -> None:
    delete_all(memory)
    with apsw.Connection(str(memory.data / "crystal.db")) as db:
        db.execute("CREATE TABLE theirs (x); INSERT INTO theirs VALUES (1)")


def _folder(memory: Memory) -> None:
    delete_all(memory)
    (memory.data / "crystal.db").mkdir()
    (memory.data / "crystal.db" / "theirs").write_text("x")


def _empty(memory: Memory) -> None:
    delete_all(memory)
    (memory.data / "crystal.db").touch()


def _link_to_itself(memory: Memory) -> None:
    delete_all(memory)
    (memory.data / "crystal.db").symlink_to("crystal.db")


def _pipe(memory: Memory) -> None:
    delete_all(memory)
    os.mkfifo(memory.data / "crystal.db")


def _log_is_a_folder(memory: Memory) -> None:
    fold(memory)
    (memory.data / "crystal.db-wal").unlink(missing_ok=True)
    (memory.data / "crystal.db-wal").mkdir()


def _changed(sql: str) -> Callable[[Memory], None]:
    """Change rows by SQL: damage that no check of pages sees."""

    def change(memory: Memory) -> None:
        with apsw.Connection(str(memory.data / "crystal.db")) as db:
            db.execute(sql)

    return change


AMISS: dict[str, Callable[[Memory], None]] = {
    "a link to itself": _link_to_itself,
    "a pipe": _pipe,
    "a folder as its log": _log_is_a_folder,
    "the name of an archive": _changed("UPDATE capture_state SET archive = 'b' || archive WHERE id = 2"),
    "the name and the key of an archive": _changed(
        "UPDATE capture_state SET archive = 'b' || archive, transcript = 'z' || transcript WHERE id = 2"
    ),
    "the name of an agent": _changed("UPDATE capture_state SET harness = 'claudE-code' WHERE id = 2"),
    "the block of a vector": _changed("UPDATE chunks_vec_1_rowids SET chunk_id = 77 WHERE rowid % 9 = 0"),
    "the place of a vector": _changed("UPDATE chunks_vec_1_rowids SET chunk_offset = chunk_offset + 1"),
    "the blocks of vectors": _changed("DELETE FROM chunks_vec_1_vector_chunks00"),
}


@pytest.mark.slow
@pytest.mark.parametrize("transcripts", ["here", "gone"])
@each_row("name", AMISS)
def test_what_stands_amiss_comes_back(
    memory: Memory, put_back: Callable[[], None], name: str, transcripts: str
) -> None:
    put_back()
    if transcripts == "gone":
        shutil.rmtree(memory.home / ".claude" / "projects")
    AMISS[name](memory)
    for words in (["search", "says"], ["status"], ["doctor"], ["verify"]):
        assert_no_traceback(*words)
    assert_all_is_back(memory)
    assert not (memory.ldm / "bagents").exists()


LOSSES: dict[str, Callable[[Memory], None]] = {
    "deleted": delete_all,
    "another program's": _another_programs,
    "a folder": _folder,
    "empty": _empty,
}
RARE = dict.fromkeys(("empty", "a folder", "another program's"), pytest.mark.slow)


@pytest.mark.parametrize("transcripts", ["here", pytest.param("gone", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", [pytest.param(one, marks=RARE.get(one, ())) for one in LOSSES])
def test_a_lost_database_is_named_with_one_command_and_comes_back(memory: Memory, name: str, transcripts: str) -> None:
    if transcripts == "gone":
        shutil.rmtree(memory.home / ".claude" / "projects")
    LOSSES[name](memory)
    others = (["status"], ["backfill"], ["sync"], ["remember", "x"], ["sessions"])
    for words in (["search", "x"], ["init", "--yes"], *(others if name == "deleted" else ())):
        done = crystal(*words)
        assert done.code == 6, (words, done)
        assert "the archive of 4 sessions is here" in done.out + done.err
        assert "crystal verify --repair" in done.out + done.err
    found = json.loads(crystal("doctor", "--json").out)
    assert any(check["fix"] and "crystal verify --repair" in check["fix"] for check in found["checks"]), found
    done = assert_all_is_back(memory)
    assert "3 sessions, 36 turns" in done.out
    assert transcripts == "gone" or "crystal has 100 % of them" in crystal("doctor").out
    assert "memories that were only in the old database" not in done.out  # their record is beside the archive
    assert crystal("search", "quokka").out.count("quokka says") == 0
    assert not memory.files_with("off the record")


@pytest.mark.slow
def test_a_log_that_was_thrown_away_takes_nothing_with_it_and_brings_nothing_private(memory: Memory) -> None:
    _throw_log_away(memory)
    try:
        assert_all_is_back(memory)
        delete_all(memory)
        shutil.rmtree(memory.home / ".claude" / "projects")
        assert_all_is_back(memory)
    finally:
        ENOUGH.remove("b says something in the log")


def test_without_the_record_nothing_that_may_have_been_private_is_imported_unasked(memory: Memory) -> None:
    delete_all(memory)
    (memory.ldm / "private.jsonl").unlink()
    talk(memory.home, "e", "never seen")
    done = assert_all_is_back(memory)
    assert "crystal backfill --privacy-lost" in done.out
    assert "never seen" not in memory.texts("user")
    assert crystal("backfill", "--privacy-lost").code == 0
    assert "never seen" in memory.texts("user")


@pytest.mark.slow
def test_damage_in_a_home_that_was_copied_to_another_machine_takes_one_command(memory: Memory) -> None:
    with Store.open(memory.data / "crystal.db") as store:
        store.execute("UPDATE segments SET raw_hash = zeroblob(32) WHERE raw_hash IS NOT NULL")
        store.execute("UPDATE capture_state SET path = '/moved' || path, inode = 0")
    assert_all_is_back(memory)


@pytest.mark.slow
def test_the_damaged_file_goes_when_something_is_forgotten(memory: Memory) -> None:
    data = fold(memory)
    zero_page(data, random.Random(1))
    overwrite_header(data, random.Random(1))
    (memory.data / "crystal.db").write_bytes(data)
    assert_all_is_back(memory)
    assert list(memory.data.glob("crystal.db.damaged-*"))
    assert crystal("forget", "--query", "b says 3", "--yes").code == 0
    assert not list(memory.data.glob("crystal.db.damaged-*"))


# ------------------------------------------------------------------------------------------------------- interrupted


@pytest.mark.parametrize("seed", [pytest.param(seed, marks=pytest.mark.slow) for seed in range(6)])
def test_a_repair_that_is_killed_is_taken_up_again(memory: Memory, seed: int) -> None:
    data = fold(memory)
    overwrite_header(data, random.Random(seed))
    flip(data, random.Random(seed))
    (memory.data / "crystal.db").write_bytes(data)
    command = [sys.executable, "-m", "crystal", "verify", "--repair"]
    for attempt in range(3):
        process = subprocess.Popen(command, cwd=ROOT, env=memory.env, stdout=subprocess.DEVNULL)
        time.sleep(0.35 + 0.1 * attempt + 0.13 * seed)
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert_all_is_back(memory)
    assert list(memory.data.glob("crystal.db.damaged-*"))


@pytest.mark.slow
def test_a_kill_between_the_last_two_steps_costs_nothing(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    data = fold(memory)
    overwrite_header(data, random.Random(1))
    (memory.data / "crystal.db").write_bytes(data)
    replace = Path.replace

    def die(self: Path, target: Path) -> Path:
        if Path(target).name == "crystal.db":
            raise KeyboardInterrupt
        return replace(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", die)
        assert crystal("verify", "--repair").code == 130
    assert crystal("search", "x").code == 6
    assert_all_is_back(memory)
