"""The status line: one short line, whatever the client writes and however the memory stands."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from crystal.hook import statusline
from crystal.hook.event import parse_hook_input
from crystal.store import Store
from crystal.store.capture import privacy
from crystal.store.sessions.contexts import Injection, add_injection
from tests.support.capture_machine import CaptureMachine, line
from tests.support.examples import part_of

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the hook is untested on Windows")

SESSION = "1f35fa49-0000-4000-8000-000000000001"
MINUTE = 60_000_000_000


class Kept:
    """A machine with one session, and the line that its client would show."""

    def __init__(self, root: Path, before: bytes = b"") -> None:
        self.machine = CaptureMachine.at(root)
        self.transcript = self.machine.transcript(SESSION)
        if before:
            self.transcript.write_bytes(before)
        self.machine.capture().meet()
        self.data = root / "memory"
        self.env = {"CRYSTAL_DATA_DIR": str(self.data), "CLAUDE_CONFIG_DIR": str(root / ".claude")}
        self.said: dict[str, Any] = {"session_id": SESSION, "transcript_path": str(self.transcript)}

    def line(self, now: int | None = None, **env: str) -> str:
        said = parse_hook_input(json.dumps(self.said).encode())
        return statusline.line_for(said, {**self.env, **env}, now or time.time_ns())

    def add(self, *lines: bytes) -> None:
        with self.transcript.open("ab") as file:
            file.writelines(lines)


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path)


def test_it_says_how_much_is_kept(kept: Kept) -> None:
    assert kept.line() == "on"
    kept.add(line("one"))
    assert kept.line() == "nothing kept yet, 1 line waits"
    kept.machine.capture().sweep()
    assert kept.line() == "kept"
    kept.add(line("two")[:-1])
    assert kept.line() == "kept, 1 line waits", "a last line may lack its newline"
    kept.machine.capture().sweep()
    assert kept.line() == "kept"
    kept.add(b"\n", line("two"), line("three"), b'{"type": "us')
    assert kept.line() == "kept, 2 lines wait"
    kept.add(b"x" * 3_000_000)
    assert kept.line() == "kept, 2 MB wait"
    kept.transcript.write_bytes(b"{}\n")
    assert kept.line() == "kept, 1 line waits", "a file that was replaced is read anew"
    (kept.data / "crystal.db").unlink()
    assert kept.line() == "NOT kept: no database; run: crystal verify --repair"


def test_it_says_what_was_told_and_searched(kept: Kept) -> None:
    call = {
        "type": "tool_use",
        "id": "t1",
        "name": "mcp__plugin_crystal_crystal__crystal_search",
        "input": {"query": "q"},
    }
    message = {"role": "assistant", "content": [call]}
    now = kept.machine.now
    kept.add(line("one"), line("", role="assistant", message=message, at=now))
    kept.machine.capture().sweep()
    assert kept.line(now=now * 1_000_000 + 7 * MINUTE) == "kept, searched 7 min ago"
    for source, ids in (("startup", ("mem-1",)), ("compact", ("mem-1", "mem-2"))):
        add_injection(kept.machine.store, Injection(now, SESSION, source, 9, ids, 0, 100))
    add_injection(kept.machine.store, Injection(now, "another", "startup", 9, ("mem-3",), 0, 100))
    assert kept.line(now=now * 1_000_000) == "kept, told 3 things, searched 0 min ago"
    kept.said = {}
    assert kept.line() == "on"


def test_what_is_private_is_said_so(kept: Kept) -> None:
    private, store = "private: this conversation is not kept", kept.machine.store
    kept.add(line("one"))
    kept.machine.capture().sweep()
    assert kept.line(CRYSTAL_PRIVATE="1") == private
    for session, said in ((None, "paused; resume: crystal --on"), (SESSION, private), ("another", "kept")):
        privacy.open_mark(store, session, "off", kept.machine.now)
        assert kept.line() == said
        privacy.close_mark(store, session, "off", kept.machine.now)
        assert kept.line() == "kept"
    kept.machine.private_sessions = (SESSION,)
    kept.add(line("two", at=kept.machine.now + 1))
    kept.machine.capture().sweep()
    assert kept.line() == private


def test_it_says_why_nothing_is_kept(kept: Kept, tmp_path: Path) -> None:
    (kept.data / "stalled").write_text("capture is not working: the disk is full")
    assert kept.line() == "NOT kept: capture is not working: the disk is full"
    older = Kept(tmp_path / "older", line("one"))
    older.machine.capture().sweep()
    assert older.line() == "NOT kept: older than crystal; run: crystal backfill"
    assert kept.line(CRYSTAL_DATA_DIR=str(tmp_path / "none")) == "NOT kept: no memory yet; run: crystal init"


# --- the process


def run(kept: Kept, stdin: bytes, **env: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "crystal", "statusline"],
        input=stdin,
        env={**os.environ, **kept.env, **env},
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert done.stderr == b""
    text = done.stdout.decode("ascii")
    assert text.endswith("\n")
    assert text.startswith("crystal: ")
    assert text[:-1].isprintable()
    assert len(text) <= statusline.WIDTH + 1
    return text[len("crystal: ") : -1]


def test_hostile_words_get_one_short_line(kept: Kept) -> None:
    secret = "ghp_0123456789abcdefghijABCDEFGHIJ012345"
    hostile = [
        b"", b"[", b"\xff\xfe", b"[" * 100_000, b'{"session_id": 1e999}', b"null",
        json.dumps({"session_id": [secret], "transcript_path": {"a": secret}, "cwd": None}).encode(),
        json.dumps({"session_id": "'; DROP TABLE turns; --", "transcript_path": "/etc/passwd"}).encode(),
        json.dumps({"session_id": secret, "transcript_path": "/dev/zero"}).encode(),
        json.dumps({"session_id": SESSION, "transcript_path": str(kept.transcript) + "\0"}).encode(),
        json.dumps({"session_id": SESSION, "transcript_path": "~nobody/" + "x" * 9000}).encode(),
    ]  # fmt: skip
    assert {run(kept, stdin) for stdin in part_of(hostile, 4)} == {"on"}


def test_a_memory_that_cannot_be_read_is_no_traceback(kept: Kept, tmp_path: Path) -> None:
    db = kept.data / "crystal.db"
    (kept.data / "stalled").write_text("\x1b[31m漢字 " + "x" * 100)
    assert run(kept, b"{}") == "NOT kept: ?[31m?? " + "x" * 30 + "..."
    kept.machine.store.close()
    with closing(sqlite3.connect(db, isolation_level=None)) as writer:
        writer.execute("PRAGMA journal_mode = DELETE")
        writer.execute("BEGIN EXCLUSIVE")
        assert run(kept, b"{}") == "cannot tell; run: crystal status"
        writer.execute("ROLLBACK")
    db.write_bytes(b"no database " * 1000)
    assert run(kept, b"{}") == "cannot tell; run: crystal status"
    odd = tmp_path / "a #odd?%20 folder"
    Store.open(odd / "crystal.db").close()
    assert run(kept, b"{}", CRYSTAL_DATA_DIR=str(odd)) == "on"
