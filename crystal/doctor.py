"""What ``crystal doctor`` looks at: each check says how it stands, and when it is not well, how to mend it."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from crystal import settings, status
from crystal.errors import CrystalError
from crystal.store import Store
from crystal.store.checks import quick_fault

if TYPE_CHECKING:
    from crystal.config import Config
    from crystal.wiring import Machine

Verdict = Literal["ok", "note", "warning", "failure"]
LITTLE_SPACE = 500 << 20
USUAL_CLEANUP_DAYS = 30
SLOW_HOOK_MS = 500.0


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at. ``fix`` is the next step where the verdict is not ``ok``."""

    name: str
    verdict: Verdict
    message: str
    fix: str | None = None


def examine(config: Config, open_reader: Callable[[], Any]) -> list[Check]:
    """Look at everything, in the order in which a turn passes it. Never raises a ``CrystalError``: it becomes a check.

    Args:
        config: The settings.
        open_reader: Opens this machine's memory for reading, as a context manager.
    """
    checks = [*_python(), *_client(config), *_folders(config)]
    try:
        with open_reader() as machine:
            checks += _memory(machine)
    except CrystalError as error:
        checks.append(Check("memory", "failure", error.message, error.hint))
    return checks


def _python() -> Iterator[Check]:
    from crystal.store.connection import sqlite_vec_library, sqlite_version

    words = f"Python {sys.version.split()[0]}, SQLite {sqlite_version()}"
    try:
        sqlite_vec_library()
    except CrystalError as error:
        yield Check("software", "failure", f"{words}; {error.message}", error.hint)
        return
    yield Check("software", "ok", f"{words}, sqlite-vec")


def _client(config: Config) -> Iterator[Check]:
    for folder in config.places.claude_dirs:
        facts = settings.read_facts(folder / "settings.json")
        name = "hooks"
        if facts.problem is not None:
            yield Check(name, "failure", facts.problem.message, facts.problem.hint)
            continue
        missing = [event for event in settings.TIMEOUTS if not facts.commands.get(event)]
        if missing:
            yield Check(name, "failure", f"{facts.path}: no hook for {', '.join(missing)}", "crystal init")
        else:
            yield from _commands(facts)
        if facts.hooks_disabled:
            yield Check(name, "failure", f"{facts.path} has disableAllHooks", "take disableAllHooks out of it")
        yield from _cleanup(facts)


def _commands(facts: settings.SettingsFacts) -> Iterator[Check]:
    """Whether what the hooks run is still there: an environment may have been removed or moved."""
    commands = {command for each in facts.commands.values() for command in each}
    for command in sorted(commands):
        try:
            words = shlex.split(command)
        except ValueError:
            words = []
        gone = [
            word for word in words[:1] + [word for word in words if word.endswith("hook.py")] if not Path(word).exists()
        ]
        if gone or not words:
            yield Check(
                "hooks", "failure", f"{facts.path} runs {gone[0] if gone else command}, which is gone", "crystal init"
            )
            return
    yield Check("hooks", "ok", f"installed in {facts.path}")


def _cleanup(facts: settings.SettingsFacts) -> Iterator[Check]:
    days = USUAL_CLEANUP_DAYS if facts.cleanup_days is None else facts.cleanup_days
    if days == 0:
        yield Check(
            "clean-up",
            "failure",
            f"{facts.path}: cleanupPeriodDays 0 switches the whole file off, hooks too",
            "set cleanupPeriodDays to at least 1",
        )
        return
    yield Check("clean-up", "ok", f"Claude Code deletes transcripts after {days} days; crystal keeps them")


def _folders(config: Config) -> Iterator[Check]:
    places = config.places
    for path in (places.ldm_home, places.db):
        if path.exists() and os.name != "nt" and path.stat().st_mode & 0o077:
            yield Check("privacy", "warning", f"{path} can be read by others", f"chmod go-rwx {shlex.quote(str(path))}")
            break
    else:
        yield Check("privacy", "ok", f"{places.ldm_home} is readable by you alone")
    folder = next(parent for parent in (places.data_dir, *places.data_dir.parents) if parent.exists())
    free = shutil.disk_usage(folder).free
    if free < LITTLE_SPACE:
        yield Check("disk", "warning", f"{free >> 20} MB are free where the memory lives", "free some space")
    else:
        yield Check("disk", "ok", f"{free / 1e9:.0f} GB are free where the memory lives")


def _memory(machine: Machine) -> Iterator[Check]:
    found = status.gather(machine)
    yield _store(machine.store)
    yield from _capture(found)
    yield from _queues(found, machine)
    for problem in found["problems"]:
        yield Check(problem["room"], "warning", problem["message"], "crystal sync tries again")


def _store(store: Store) -> Check:
    fault = quick_fault(store)
    if fault:
        return Check("memory", "failure", f"{store.path}: {fault}", "crystal verify --repair")
    return Check("memory", "ok", f"{store.path} is sound")


def _capture(found: dict[str, Any]) -> Iterator[Check]:
    capture, lag = found["capture"], found["transcripts"]["lag"]
    if not capture["on"]:
        yield Check("capture", "warning", "capture is off", "crystal --on")
    elif capture["stalled"]:
        yield Check("capture", "failure", f"capture is stalled: {capture['stalled']}", "crystal sync")
    elif lag:
        yield Check("capture", "note", f"{lag:,} bytes of transcripts are not captured yet", "crystal sync")
    else:
        yield Check("capture", "ok", "every transcript is captured up to its last line")
    before = found["ledger"].get("before-crystal", 0)
    if before:
        yield Check("past", "note", f"{before / 1e6:.1f} MB from before crystal are not imported", "crystal backfill")
    hook = found["hook"]
    if hook["runs"] and hook["p95_ms"] > SLOW_HOOK_MS:
        yield Check(
            "hook speed",
            "warning",
            f"p95 is {hook['p95_ms']:.0f} ms over {hook['runs']} runs",
            "see docs/reference/hook.md, section on speed",
        )
    elif hook["runs"]:
        yield Check(
            "hook speed", "ok", f"p50 {hook['p50_ms']:.0f} ms, p95 {hook['p95_ms']:.0f} ms over {hook['runs']} runs"
        )


def _queues(found: dict[str, Any], machine: Machine) -> Iterator[Check]:
    waiting = found["queues"]["chunks_without_vector"]
    provider = machine.config.embedding_provider
    if provider == "none":
        yield Check(
            "embedding",
            "note",
            "switched off; search is by keywords alone",
            "crystal config set embedding.provider embedded",
        )
    elif waiting:
        yield Check("embedding", "note", f"{waiting:,} chunks wait for their vector ({provider})", "crystal sync")
    else:
        yield Check("embedding", "ok", f"{provider}; nothing waits")
