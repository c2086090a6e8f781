"""Whether turns are kept: the judgement on facts, the settings of a real folder, and who says it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal import worker
from crystal.app.context import default_paths, open_machine
from crystal.capture.lock import lock_holder, try_lock
from crystal.capture.state import CaptureFacts, Condition, HookFacts, assess_capture, describe, is_silent
from crystal.capture.tail import Cleaner
from crystal.store import Store
from tests.support.capture_machine import keep_transcript, line
from tests.support.command import crystal
from tests.support.table import each_row

DAY = 86_400_000
NOW = 1_800_000_000_000
HOOKS = HookFacts(Path("/h/.claude/settings.json"), has_hook=True)
WELL = CaptureFacts(NOW, (HOOKS,), Path("/h/.ldm/memory"), last_capture=NOW - 300_000, free_bytes=10**10)
MANAGED = Path("/etc/claude-code/managed-settings.json")


@each_row(("facts", "code", "words"), [
        (replace(WELL, hooks=(replace(HOOKS, has_hook=False),)), "no hook", "no hook in /h/.claude/settings.json"),
        (replace(WELL, hooks=(replace(HOOKS, has_hook=False, is_here=False),)), "no hook", "init --all"),
        (replace(WELL, hooks=(replace(HOOKS, problem="line 3: no value"),)), "settings", "line 3: no value"),
        (replace(WELL, hooks=(replace(HOOKS, disabled_by=Path("/p/x")),)), "hooks disabled", "/p/x switches all hooks off"),
        (replace(WELL, hooks=(replace(HOOKS, managed_only=MANAGED),)), "hooks disabled", "only managed hooks"),
        (replace(WELL, hooks=(replace(HOOKS, gone=(Path("/venv/python"),)),)), "program gone", "/venv/python, which is gone"),
        (replace(WELL, store_problem=("it is damaged", "crystal verify --repair")), "database", "verify --repair"),
        (replace(WELL, free_bytes=0), "disk full", "the disk of /h/.ldm/memory is full"),
        (replace(WELL, not_writable=("/h cannot be written", "chmod it")), "not writable", "chmod it"),
        (replace(WELL, unusable_lock=("a link", "rm x")), "lock", "rm x"),
        (replace(WELL, not_writable=("/h cannot be written", "chmod it"), read_only_disk=True), "not writable", "is read-only"),
        (replace(WELL, free_bytes=0, store_problem=("disk I/O error", "x")), "disk full", "is full"),
        (replace(WELL, stalled="capture is not working: x"), "stalled", "capture is not working: x"),
        (replace(WELL, stalled="x", unusable_lock=("a link", "rm x")), "lock", "rm x"),
        (replace(WELL, notes=3, oldest_note=NOW - 16 * 60_000), "stalled", "3 notes of the hook wait"),
        (replace(WELL, notes=1, oldest_note=NOW - 150_000, lock_holder=77), "locked", "process 77 holds"),
        (replace(WELL, last_turn_hook=NOW - 2 * DAY, newest_transcript=NOW - DAY), "silent", "the hook ran last 2 days ago"),
    ])  # fmt: skip
def test_each_thing_that_stops_capture_is_said_with_its_mend(facts: CaptureFacts, code: str, words: str) -> None:
    state = assess_capture(facts)
    assert (state.condition, state.reasons[0].code) == (Condition.NOT_CAPTURING, code)
    said = describe(state, NOW)
    assert said.startswith("NOT capturing: ")
    assert words in said
    assert "(fix: " in said
    assert all(reason.fix != "crystal doctor" for reason in state.reasons)  # which would lead back to itself


@each_row(
    "facts",
    [
        WELL,
        replace(WELL, notes=1, oldest_note=NOW - 60_000, lock_holder=77),
        replace(WELL, notes=1, oldest_note=NOW - 14 * 60_000),
        replace(WELL, last_turn_hook=NOW - 2 * DAY, newest_transcript=NOW - 2 * DAY + 1000),
        replace(WELL, last_turn_hook=NOW - DAY + 60_000, newest_transcript=NOW),
        replace(WELL, hooks=(replace(HOOKS, has_hook=False, plugins=("crystal@crystal",)),)),
    ],
)
def test_what_is_well_is_not_called_broken(facts: CaptureFacts) -> None:
    assert describe(assess_capture(facts), NOW) == "capturing; last capture 5 minutes ago"


def test_plugin_and_settings_both_are_a_remark() -> None:
    state = assess_capture(replace(WELL, hooks=(replace(HOOKS, plugins=("crystal@crystal",)),)))
    assert state.condition is Condition.CAPTURING
    assert "the hook runs twice" in describe(state, NOW)
    assert "claude plugin uninstall crystal@crystal" in describe(state, NOW)


def test_a_pause_is_the_users_own_choice_and_comes_first() -> None:
    state = assess_capture(replace(WELL, off_since=NOW - 3 * 3_600_000, free_bytes=0))
    assert (state.condition, state.since) == (Condition.PAUSED, NOW - 3 * 3_600_000)
    assert "3 hours ago" in describe(state, NOW)
    assert "crystal --on" in describe(state, NOW)


@pytest.mark.slow
@given(st.integers(0, 10 * DAY), st.integers(0, 10 * DAY))
def test_a_hook_is_silent_only_after_a_day_and_later_growth(hook_age: int, growth_age: int) -> None:
    silent = is_silent(now=NOW, last_turn_hook=NOW - hook_age, newest_transcript=NOW - growth_age)
    assert silent == (hook_age > DAY and growth_age < hook_age - 300_000)


# --- on a real home folder


@pytest.fixture
def claude(home: Path) -> Path:
    """Claude Code's folder on a machine that is set up and has one session."""
    keep_transcript(home, "s", line("quartz"))
    assert crystal("init", "--yes", "--import").code == 0
    return home / ".claude"


def change(file: Path, **values: object) -> None:
    document = json.loads(file.read_text()) if file.exists() else {}
    document.update(values)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({key: value for key, value in document.items() if value is not None}))


def reasons() -> list[str]:
    done = crystal("status", "--json")
    capture = json.loads(done.out)["capture"]
    assert done.code == (1 if capture["state"] == "not capturing" else 0)
    return [one["code"] for one in capture["reasons"]]


@pytest.mark.slow
def test_status_begins_with_how_it_stands_and_ends_with_its_code(claude: Path) -> None:
    done = crystal("status")
    assert (done.code, done.out.splitlines()[0]) == (0, "capturing; last capture just now")
    crystal("--off")
    assert "now: paused since " in crystal("init", "--yes").out
    done = crystal("status")
    assert done.code == 0
    assert done.out.startswith("paused since ")
    crystal("--on")
    change(claude / "settings.json", hooks=None)
    done = crystal("status")
    assert done.code == 1
    assert done.out.startswith(f"NOT capturing: no hook in {claude}/settings.json (fix: crystal init)\n")
    found = crystal("search", "quartz")
    assert (found.code, "quartz" in found.out) == (0, True)
    assert f"crystal: NOT capturing: no hook in {claude}/settings.json" in found.err
    assert "NOT capturing" in crystal("--status").err
    assert crystal("init", "--yes").code == 0
    assert crystal("status").code == 0
    assert "NOT capturing" not in crystal("search", "quartz").err
    assert crystal("--off").code == 0
    assert "crystal: paused since " in crystal("search", "quartz").err


@pytest.mark.slow
def test_the_first_file_that_says_it_decides_over_all_hooks(claude: Path, tmp_path: Path, monkeypatch: Any) -> None:
    project = tmp_path / "project"
    project.mkdir()
    monkeypatch.chdir(project)
    user, shared, local = claude / "settings.json", project / ".claude/settings.json", project / ".claude/settings.local.json"  # fmt: skip
    assert reasons() == []
    change(shared, disableAllHooks=True)
    assert reasons() == ["hooks disabled"]
    (project / "below").mkdir()
    monkeypatch.chdir(project / "below")  # the client looks in the folder it was started in, not above it
    assert reasons() == []
    monkeypatch.chdir(project)
    change(local, disableAllHooks=False)
    assert reasons() == []
    change(shared, disableAllHooks=None)
    change(user, disableAllHooks=True)
    assert reasons() == []
    local.write_text("{broken")  # the client leaves out the file
    assert reasons() == ["hooks disabled"]
    change(user, disableAllHooks="yes")
    assert reasons() == ["settings"]
    change(user, disableAllHooks=None, cleanupPeriodDays=0)
    assert reasons() == ["settings"]


@pytest.mark.slow
def test_an_interpreter_that_is_gone_is_named(claude: Path, tmp_path: Path) -> None:
    file = claude / "settings.json"
    file.write_text(file.read_text().replace(sys.executable, str(tmp_path / "gone" / "python")))
    done = crystal("status")
    assert f"the hook runs {tmp_path}/gone/python, which is gone (fix: crystal init)" in done.out
    assert crystal("init", "--yes").code == 0
    assert reasons() == []


@pytest.mark.slow
def test_the_plugin_alone_is_enough_until_its_folder_is_gone(claude: Path, tmp_path: Path) -> None:
    change(claude / "settings.json", hooks=None, enabledPlugins={"crystal@crystal": True})
    where = [{"scope": "user", "installPath": str(tmp_path / "cache")}]
    change(claude / "plugins" / "installed_plugins.json", version=2, plugins={"crystal@crystal": where})
    (tmp_path / "cache").mkdir()
    assert reasons() == []
    done = crystal("uninstall")
    assert "claude plugin uninstall crystal@crystal" in done.out
    (tmp_path / "cache").rmdir()
    assert reasons() == ["program gone"]
    change(claude / "settings.json", enabledPlugins={"crystal@crystal": False})
    assert reasons() == ["no hook"]
    assert "claude plugin" not in crystal("uninstall").out


@pytest.mark.slow
def test_a_lock_held_while_notes_wait_is_named_with_its_holder(claude: Path) -> None:
    places = default_paths()
    holding = (
        "import fcntl, sys, time; f = open(sys.argv[1], 'w'); fcntl.flock(f, 2); print(1, flush=True); time.sleep(60)"
    )
    holder = subprocess.Popen([sys.executable, "-c", holding, places.data_dir / "capture.lock"], stdout=subprocess.PIPE)
    try:
        assert holder.stdout is not None
        holder.stdout.readline()
        assert reasons() == []
        places.spool.mkdir(exist_ok=True)
        old = time.time_ns() - 200 * 10**9
        (places.spool / f"{old:020d}-1-aa.json").write_text(json.dumps({"at": old // 10**6}))
        assert reasons() == ["locked"]
        if sys.platform == "linux":
            assert f"process {holder.pid} holds" in crystal("status").out
    finally:
        holder.kill()
        holder.communicate()
    assert reasons() == []


def test_looking_for_the_holder_never_takes_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    assert lock_holder(path) is None
    assert not path.exists()
    with try_lock(path) as held:
        assert held
        assert lock_holder(path) == (os.getpid() if sys.platform == "linux" else 0)
    assert lock_holder(path) is None


@pytest.mark.slow
def test_a_database_that_is_gone_is_said_before_the_error(claude: Path) -> None:
    for path in default_paths().data_dir.glob("crystal.db*"):
        path.unlink()
    done = crystal("status")
    assert done.out.startswith(
        "NOT capturing: the database is gone, but the archive of 1 session is here (fix: crystal verify --repair)"
    )
    assert done.code in (1, 3, 6)
    assert crystal("verify", "--repair").code == 0
    assert reasons() == []


def test_a_package_that_breaks_the_worker_is_said(claude: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: object) -> None:
        raise ImportError("undefined symbol", name="re2")

    with pytest.raises(ImportError):  # it reaches the worker as it is
        Cleaner(broken, b"key").clean_lines(b"{}\n")  # type: ignore[arg-type]
    monkeypatch.setattr(worker, "_work", broken)
    with pytest.raises(SystemExit) as ended:
        worker.main()
    assert ended.value.code == 3
    why = "the package google-re2 cannot be loaded: ImportError: undefined symbol"
    assert crystal("status").out.startswith(f"NOT capturing: {why} (fix: crystal sync)")
    assert crystal("sync").code == 0
    assert reasons() == []


def test_a_table_that_is_gone_keeps_nothing(claude: Path) -> None:
    with Store.open(default_paths().db) as store:
        store.execute("PRAGMA foreign_keys = OFF")
        store.execute("DROP TABLE turns")
    done = crystal("status")
    assert done.code == 6
    assert re.match(r"NOT capturing: .*the table turns is damaged \(fix: crystal verify --repair\)\n", done.out)
    assert json.loads(crystal("status", "--json").out)["capture"]["state"] == "not capturing"


@pytest.mark.slow
def test_no_hook_for_a_day_although_sessions_went_on(claude: Path) -> None:
    with open_machine() as machine, machine.store.transaction():
        long_ago = machine.now() - 3 * DAY
        machine.store.execute("INSERT INTO hook_runs (at, event, ms) VALUES (?, 'Stop', 1)", (long_ago,))
    assert reasons() == []  # it was set up just now
    set_up = time.time() - 3 * 86_400
    os.utime(default_paths().machine_json, (set_up, set_up))
    assert reasons() == ["silent"]
    os.utime(claude / "projects/p/s.jsonl", (time.time() - 4 * 86_400, time.time() - 4 * 86_400))
    assert reasons() == []


@pytest.mark.slow
def test_claude_code_is_not_missed_where_a_person_set_up_other_agents_alone(home: Path) -> None:
    keep_transcript(home, "s", line("quartz"))
    (home / ".claude").rename(home / "later")
    for agent in ("codex", "zed"):  # one with a hook, and one without
        assert crystal("init", "--yes", "--agent", agent).code == 0
        assert reasons() == []
    (home / "later").rename(home / ".claude")
    assert reasons() == ["no hook"]  # it came later
    for agent in ("codex", "zed"):
        assert crystal("init", "--yes", "--import", "--agent", agent).code == 0
        assert crystal("status").out.startswith("capturing; last capture just now\n")
        assert crystal("uninstall", "--yes").code == 0
        assert reasons() == ["no hook"]
    assert crystal("init", "--yes", "--agent", agent).code == 0
    assert "note hooks: Claude Code is captured only when crystal sync runs" in " ".join(crystal("doctor").out.split())
    for words in (["init", "--yes"], ["init", "--yes", "--agent", "codex"]):
        assert crystal(*words).code == 0
    change(home / ".claude" / "settings.json", hooks=None)
    assert reasons() == ["no hook"]  # now it was set up, too
    assert crystal("init", "--yes", "--agent", "codex").code == 0
    assert crystal("uninstall", "--yes").code == 0
    assert reasons() == ["no hook"]
