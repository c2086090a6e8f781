"""The worker that the hook starts, and where it looks for the memory."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal.config.paths import resolve_places
from crystal.hook import event as hook
from tests.support.data_dir_cases import DATA_DIR_CASES, DataDirCase
from tests.support.examples import examples
from tests.support.hook_machine import ALLOWED_MODULES, STOP, Machine, feed, finish

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the hook is untested on Windows")

# Built into the interpreter or cheap; ``json``, ``re``, ``signal``, ``typing`` and ``subprocess`` are not. The last is
# the hook's own other half.


# --- the worker


def test_the_worker_is_alone_in_the_world(machine: Machine) -> None:
    reading, writing = os.pipe()
    machine.run(STOP, pass_fds=(reading, writing))
    os.close(reading)
    os.close(writing)
    (worker,) = machine.workers()
    assert worker["cwd"] == "/"
    assert worker["isolated"] == 1
    assert worker["sid"] not in (os.getsid(0), worker["pid"])  # a session of its own, without a way to a terminal
    assert worker["pgid"] == worker["sid"]
    if sys.platform == "linux":
        waited_on = worker["fds"].pop("3")
        assert waited_on.startswith("pipe:")
        assert {worker["fds"].pop(number) for number in "012"} == {"/dev/null"}
        assert [name for name in worker["fds"].values() if "/proc/" not in name] == []


def test_the_worker_runs_the_package_beside_the_hook_and_cannot_shadow_the_standard_library(machine: Machine) -> None:
    (machine.package / "json.py").write_text("raise SystemExit('shadowed')")
    machine.run(STOP, cwd=str(machine.package))
    (worker,) = machine.workers()
    assert worker["path"][-1] == str(machine.package)


def test_the_worker_outlives_the_death_of_everything_that_started_it(machine: Machine) -> None:
    os.mkfifo(machine.ldm / "gate")
    os.mkfifo(machine.ldm / "up")
    process = machine.start(start_new_session=True)
    feed(process)
    (machine.ldm / "up").read_bytes()  # the worker runs, and the hook waits for it
    for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
    finish(process)
    (machine.ldm / "gate").write_bytes(b"")
    wait_until(lambda: len(machine.workers()) == 1)
    (worker,) = machine.workers()
    assert process.pid not in (worker["pid"], worker["ppid"], worker["sid"], worker["pgid"])


def test_without_being_told_to_the_hook_does_not_wait(machine: Machine) -> None:
    os.mkfifo(machine.ldm / "gate")
    os.mkfifo(machine.ldm / "up")
    machine.env.pop("CRYSTAL_HOOK_WAIT")
    machine.run(STOP)  # returns, and its streams are at their end, while the worker stands at the gate
    assert machine.workers() == []
    (machine.ldm / "up").read_bytes()
    (machine.ldm / "gate").write_bytes(b"")
    wait_until(lambda: len(machine.workers()) == 1)


def test_a_worker_that_fails_is_not_heard(machine: Machine) -> None:
    (machine.package / "crystal" / "worker.py").write_text("print('x'); raise SystemExit('broken')")
    assert machine.run(STOP) == b""
    assert len(machine.notes()) == 1


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


# --- places


def test_baked_locations_serve_where_the_environment_has_none(machine: Machine, tmp_path: Path) -> None:
    baked = ("--env", f"LDM_HOME={tmp_path / 'a=b c'}", "--env", "PATH=/evil", "--env", "CLAUDE_CONFIG_DIR=/claude")
    (tmp_path / "a=b c").mkdir()
    machine.run(STOP, *baked, env={"LDM_HOME": None, "PATH": None, "CLAUDE_CONFIG_DIR": " "}, cwd="/")
    assert len(list((tmp_path / "a=b c" / "memory" / "spool").glob("*.json"))) == 1
    (told,) = (tmp_path / "a=b c").glob("worker-*.json")
    env = json.loads(told.read_text())["env"]
    assert (env.get("PATH"), env["CLAUDE_CONFIG_DIR"]) == (None, "/claude")
    machine.run(STOP, *baked)
    assert len(machine.notes()) == 1
    assert machine.workers()[0]["env"]["LDM_HOME"] == str(machine.ldm)


def test_a_relative_place_means_the_same_to_the_worker(machine: Machine) -> None:
    machine.run(STOP, env={"LDM_HOME": "ldm"}, cwd=str(machine.ldm.parent))
    assert len(machine.notes()) == 1
    assert machine.workers()[0]["env"]["LDM_HOME"] == str(machine.ldm)


@pytest.mark.parametrize("arguments", [["--env"], ["--env", "LDM_HOME"], ["LDM_HOME=/x"], ["--env", "=", "--unknown"]])
def test_odd_arguments_do_not_matter(machine: Machine, arguments: list[str]) -> None:
    assert machine.run(STOP, *arguments) == b""
    assert len(machine.notes()) == 1


VALUES = st.sampled_from([None, "", " ", "/abs/x", "rel/x", "~", "~/x", "/abs//y/../z/"])


@pytest.mark.slow
@examples(150)
@given(st.fixed_dictionaries({"LDM_HOME": VALUES, "CRYSTAL_DATA_DIR": VALUES, "OPENCLAW_HOME": VALUES}))
@pytest.mark.parametrize("made", [[], ["legacy"], ["legacy", "db"], ["db"]])
def test_the_hook_and_the_rest_of_crystal_agree_where_the_memory_is(made, given):
    home = Path.home()
    for folder, name in ((home / ".openclaw" / "memory-crystal", "legacy"), (home / ".ldm" / "memory", "db")):
        if name in made:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "crystal.db").touch()
    env = {name: value for name, value in given.items() if value is not None}
    assert hook.find_data_dir(dict(env)) == str(resolve_places(env, home).data_dir)


@pytest.mark.parametrize("case", DATA_DIR_CASES, ids=lambda case: case.name)
def test_the_note_is_where_the_memory_is(case: DataDirCase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, cwd = tmp_path / "user", tmp_path / "work"
    home.mkdir()
    cwd.mkdir()
    env, expected = case.build(home, cwd)
    monkeypatch.chdir(cwd)
    monkeypatch.setenv("HOME", str(home))
    assert Path(hook.find_data_dir(env)) == expected


# --- what the user may hear, and what is measured


def test_a_waiting_note_is_told_at_session_start_only(machine: Machine) -> None:
    machine.spool.mkdir(parents=True)
    old = time.time_ns() - 16 * 60 * 10**9
    (machine.spool / f"{old:020d}-1-aa.json").write_text("{}")
    assert machine.run(STOP) == b""
    said = json.loads(machine.run({**STOP, "hook_event_name": "SessionStart", "source": "startup"}))
    message = "crystal: capture is stalled, the oldest note is 16 minutes old; run: crystal doctor"
    assert said == {"systemMessage": message}


def test_young_notes_and_odd_names_are_no_stall(machine: Machine) -> None:
    machine.spool.mkdir(parents=True)
    now = time.time_ns()
    for name in (
        f"{now - 60 * 10**9:020d}-1-aa.json",
        f"{now + 10**15:020d}-1-bb.json",
        ".x.json.tmp",
        "x.json",
        "1.json",
    ):
        (machine.spool / name).write_text("{}")
    assert machine.run({**STOP, "hook_event_name": "SessionStart"}) == b""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("the disk is full\nsecond line", "crystal: the disk is full"),
        ("", "crystal: capture is stalled; run: crystal doctor"),
        ("\x1b[31mred\x07 \udcff" + "x" * 500, "crystal: [31mred ��" + "x" * 500),
    ],
)
def test_what_the_worker_left_for_the_user_is_told_in_one_line(machine: Machine, content: str, told: str) -> None:
    (machine.ldm / "memory").mkdir()
    (machine.ldm / "memory" / "stalled").write_bytes(content.encode("utf-8", "surrogatepass"))
    assert machine.run(STOP) == b""
    stdout = machine.run({**STOP, "hook_event_name": "SessionStart"})
    assert stdout.count(b"\n") == 1
    message = json.loads(stdout)["systemMessage"]
    assert message[:12] == told[:12]
    assert len(message) <= len("crystal: ") + 200
    assert message.isprintable()


@pytest.mark.slow
def test_the_time_it_took_is_logged_and_the_log_stops_growing(machine: Machine) -> None:
    machine.run(STOP)
    machine.run(b"garbage")
    log = machine.spool / "latency.log"
    (at, event, ms), (_, unknown, _) = (line.split(" ") for line in log.read_text().splitlines())
    assert (int(at), event, unknown) == (machine.notes()[0]["at"], "Stop", "-")
    assert 0 < float(ms) < 60_000
    log.write_bytes(b"x" * hook.LOG_LIMIT)
    machine.run(STOP)
    assert log.stat().st_size == hook.LOG_LIMIT


def test_it_imports_a_handful_of_cheap_modules(machine: Machine) -> None:
    listing = f"""
import sys
before = set(sys.modules)
source = open({str(machine.hook.with_name("event.py"))!r}).read()
def leave(_):
    sys.stdout.write(" ".join(sorted(set(sys.modules) - before)))
    sys.stdout.flush()
    import posix
    posix._exit(0)
space = {{"__name__": "hook", "__file__": {str(machine.hook)!r}}}
exec(compile(source, "event.py", "exec"), space)
space["main"](["--env", "CRYSTAL_CONFIG=/x"])
leave(0)
"""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", listing],
        input=json.dumps({**STOP, "hook_event_name": "SessionStart"}).encode(),
        env=machine.env,
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert set(done.stdout.decode().split()) <= ALLOWED_MODULES
