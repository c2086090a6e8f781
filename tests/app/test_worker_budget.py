"""What a worker may load: imports are most of what a turn costs, and each looks cheap where it is added."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from crystal.hook import event as hook
from tests.support.capture_machine import line
from tests.support.whole_memory import Memory

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the worker is untested on Windows")

NOTHING_NEW = set(
    """
    crystal.config crystal.hook crystal.model crystal.model.named_tuple crystal.store.capture crystal.store.health crystal.store.health.idle
    crystal crystal.capture crystal.capture.finder crystal.capture.lock crystal.capture.nothing_new crystal.config.harness crystal.config.harnesses crystal.config.json_file crystal.config.stores crystal.capture.safe_open
    crystal.capture.spool crystal.capture.lock crystal.errors crystal.hook.event crystal.config.paths crystal.store crystal.store.connection crystal.store.driver
    crystal.store.health.stats crystal.store.upgrade crystal.store.capture.privacy crystal.store.private_record crystal.store.texts
    crystal.worker
    """.split()
)
"""Modules of ours that are loaded where nothing is new: the whole list."""

NEVER_FOR_NOTHING = {"tomllib", "re2", "hashlib", "datetime", "threading"}
NEVER = {"dataclasses", "inspect", "ast", "orjson", "uuid", "platform"}
NEVER |= {"numpy", "httpx", "openai", "ssl", "subprocess", "secrets", "random", "difflib", "logging", "asyncio", "rich"}
MAX_MODULES = 141
"""Modules of ours for a turn; today 141."""

ROOT = str(Path(__file__).parents[2])
PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
before = set(sys.modules)
from crystal.worker import main
main()
print(*sorted(set(sys.modules) - before))
"""


class Turns(Memory):
    """A memory and one session that goes on."""

    def __init__(self, home: Path) -> None:
        super().__init__(home, {"HOME": str(home), "PATH": ""})
        self.path = home / ".claude" / "projects" / "-p" / "5e551074-0000-4000-8000-000000000000.jsonl"
        self.path.parent.mkdir(parents=True)
        self.path.touch()
        self.crystal("init", "--yes", "--no-import")

    def work(self, said: str | None) -> set[str]:
        """Leave a note, with a line for it or without, and run the worker; gives what it has loaded."""
        if said is not None:
            with self.path.open("ab") as file:
                file.write(line(said, role="assistant", at=time.time_ns() // 1_000_000, sessionId=self.path.stem))
        told = {"session_id": self.path.stem, "transcript_path": str(self.path), "hook_event_name": "Stop"}
        note = hook.make_note(dict(told), self.env, time.time_ns())
        spool = self.path.parents[3] / ".ldm" / "memory" / "spool"
        spool.mkdir(parents=True, exist_ok=True)
        (spool / f"{time.time_ns():020d}-1-x.json").write_text(json.dumps(note))
        command = [sys.executable, "-I", "-c", PROGRAM, ROOT]
        done = subprocess.run(command, env=self.env, check=True, capture_output=True, text=True, timeout=120)
        assert list(spool.glob("*.json")) == []
        return set(done.stdout.split())


@pytest.fixture
def turns(tmp_path: Path) -> Turns:
    turns = Turns(tmp_path / "h")
    turns.work("the first line, which meets the machine")
    return turns


@pytest.mark.slow
def test_nothing_new_loads_what_is_on_the_list(turns: Turns) -> None:
    loaded = turns.work(None)
    assert {name for name in loaded if name.startswith("crystal")} <= NOTHING_NEW
    assert loaded & (NEVER | NEVER_FOR_NOTHING) == set()


@pytest.mark.slow
def test_a_turn_keeps_within_its_budget(turns: Turns) -> None:
    loaded = turns.work("zq1: the answer is in the harbour")
    ours = sorted(name for name in loaded if name.startswith("crystal"))
    assert {"crystal.ingest.ingest", "crystal.embedding.embedded"} <= set(ours)
    assert loaded.isdisjoint(
        NEVER
        | {"crystal.model.recall", "crystal.reflect", "crystal.search.engine", "crystal.cli", "crystal.mcp", "tomllib"}
        | {"crystal.store.search.scope", "crystal.store.sync.relay_peers", "crystal.store.sessions.conversations"}
    )
    assert len(ours) <= MAX_MODULES, ours
