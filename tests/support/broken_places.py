"""The real command beside something that is broken, and what doctor says of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from crystal.store import Store
from tests.support.capture_machine import keep_transcript, line
from tests.support.command import crystal
from tests.support.whole_memory import ROOT

Run = Callable[..., subprocess.CompletedProcess[str]]

POWERLESS = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]
"""Root without its powers: modes hold for it as for anybody, and its files are its own."""


def keep_memory(home: Path) -> Path:
    """Make a memory in a home folder, and return that folder."""
    keep_transcript(home, "s", line("the basalt quarry"))
    assert crystal("init", "--yes", "--import", "--wait").code == 0  # no worker writes during a test
    return home


def run(
    *words: str, path: Path | None = None, powerless: bool = False, **more: str
) -> subprocess.CompletedProcess[str]:
    """Run the real command, with a folder before all others in its path of modules; root may be held to modes."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, [*([path] if path else []), ROOT])), **more}
    command = [*(POWERLESS if powerless else []), sys.executable, "-m", "crystal", *words]
    done = subprocess.run(
        command, env=env, cwd="/", capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
    )
    assert "Traceback" not in done.stdout + done.stderr, (words, done)
    return done


def assert_doctor_fails(run: Run, named: str, *, also_json: bool = True, **how: object) -> str:
    """Run doctor in some way; return what it prints, in which a failure names something, and its mend."""
    done = run("doctor", **how)
    assert done.returncode == 1, done
    failures = [each for each in done.stdout.split("\n") if each.startswith("FAIL")]
    assert any(named in failure for failure in failures), done.stdout
    assert "fix: " in done.stdout
    if also_json:
        as_json = run("doctor", "--json", **how)
        assert not json.loads(as_json.stdout)["ok"]
    return done.stdout


def leave_a_log(data: Path) -> None:
    """Leave what was written last in the log, as a process does that was killed."""
    with Store.open(data / "crystal.db") as store:
        store.execute("INSERT INTO meta VALUES ('in the log', '1')")
        files = {path: path.read_bytes() for path in data.glob("crystal.db*")}
    for path, content in files.items():
        if not path.name.endswith("-shm"):
            path.write_bytes(content)
