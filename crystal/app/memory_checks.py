"""The checks of ``crystal doctor`` that look into the memory: database, archive, capture, vectors, index, relay."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from crystal.app import status
from crystal.app.agents import AgentFiles, deleting_agents, describe_cleanup, look_at_files, unfinished_lines
from crystal.app.context import Machine, open_reader
from crystal.app.model_texts import count_kept_here
from crystal.app.open_store import archive_names
from crystal.app.transcript_formats import describe_formats
from crystal.capture.refused_files import FIXES
from crystal.config.file_access import owner_in_the_way, way_in
from crystal.config.harnesses import HARNESSES
from crystal.config.providers import EMBEDDING_PROVIDERS, ProviderKind
from crystal.errors import CrystalError
from crystal.search.index import why_unusable
from crystal.store import Store
from crystal.store.capture.ledger import all_states
from crystal.store.health.checks import quick_fault
from crystal.store.memories.memories import memories_with_other_chunks
from crystal.store.private_record import RECORD_FILE
from crystal.store.search.candidates import has_more_than

SLOW_HOOK_MS = 500.0
BRIEF_SECONDS = 0.1
"""Time limit for reading the database without ``deep``: enough for every page of a small one."""
LONG_UNHEARD_MS = 7 * 86_400_000
HOOK_REASONS = ("settings", "hooks disabled", "no hook", "program gone")
"""Reasons for which nothing is captured that are about the hooks."""


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check of ``crystal doctor``. ``fix`` is the next step if the verdict is not ``ok``."""

    name: str
    verdict: Literal["ok", "note", "warning", "failure"]
    message: str
    fix: str | None = None


def check_memory(*, deep: bool) -> Iterator[Check]:
    """Check the memory, from the archive to the relay; ``deep`` reads every page of the database."""
    with open_reader() as machine:
        look = look_at_files(machine)
        found = status.gather_health(machine, look)
        yield _store(machine.store, deep=deep)
        yield from _archive(machine)
        yield from _capture(found)
        yield from _hook_speed(found["hook"])
        yield from _cleanup(machine, look)
        yield from _formats(look, machine.now())
        unexamined = status.describe_unexamined(found["redactions"])
        if unexamined:
            yield Check("redaction", "ok", f"{unexamined} ({status.FIND_UNEXAMINED})")
        embedding = _embedding(machine, status.count_without_vector(machine))
        yield embedding
        yield _index(machine.store, "search index")
        if machine.mirror_store is not None:
            yield _index(machine.mirror_store, "search index of the mirror")
        relay = list(_relay(machine, found["relay"]))
        yield from relay
        known = {check.name for check in relay if check.verdict != "ok"}
        known |= {check.name for check in (embedding,) if check.verdict == "failure"}
        for problem in found["problems"]:
            if problem["part"] in known:
                continue  # the same, seen just now
            yield Check(problem["part"], "warning", problem["message"], FIXES.get(problem["part"], "crystal sync"))


def _index(store: Store, name: str) -> Check:
    """Return whether searches use the derived index, or have to do without it."""
    with store.reading():
        reason, is_empty = why_unusable(store), not has_more_than(store, 0)
    if reason is None:
        return Check(name, "ok", "searches use it")
    if is_empty:
        return Check(name, "ok", "there is nothing to search yet")
    return Check(name, "note", f"search does not use it: {reason}", "crystal sync")


def _relay(machine: Machine, standing: dict[str, Any] | None) -> Iterator[Check]:
    """Check that this machine can reach its relay, and that home was heard recently."""
    if standing is None:
        return
    if standing["role"] == "device" and standing["home"] is None:
        yield Check("relay", "warning", "this device has not joined a home yet", "crystal relay join")
        return
    from crystal.app.relay_links import relay_client, relay_keys  # noqa: PLC0415 - brings cryptography

    try:
        relay_keys(machine)
        with relay_client(machine) as client:
            client.streams()
    except CrystalError as error:
        yield Check("relay", "warning", error.message, error.hint)
    else:
        yield Check("relay", "ok", f"{standing['url']} answers")
    from crystal.app.sync.relay_state import unheard_devices  # noqa: PLC0415 - as above

    for device in unheard_devices(machine.store, machine.now()):
        words = f"nothing has arrived from {device.name} since it was paired; it may be off, or the relay keeps nothing"
        yield Check("relay", "warning", words, "on that machine run: crystal relay status")
    since = standing["outbox"]["since"]
    if since is not None and machine.now() - since > LONG_UNHEARD_MS:
        words = f"{standing['outbox']['blobs']:,} sealed blobs wait for home, the oldest for more than a week"
        yield Check("relay", "warning", words, "on the home machine run: crystal relay poll")


def _store(store: Store, *, deep: bool) -> Check:
    fault, is_whole = quick_fault(store, float("inf") if deep else BRIEF_SECONDS)
    if fault is None and is_whole and (wrong := memories_with_other_chunks(store)):
        fault = f"search does not find {len(wrong)} memories as they are"
    if fault:
        return Check("memory", "failure", f"{store.path}: {fault}", "crystal verify --repair")
    if is_whole:
        return Check("memory", "ok", f"{store.path} is sound")
    words = "opens; crystal checked a part of it (all of it: crystal doctor --deep)"
    return Check("memory", "ok", f"{store.path} {words}")


def _archive(machine: Machine) -> Iterator[Check]:
    """Check that the database names the agents and the archive's files; ``crystal verify`` reads these files."""
    states = all_states(machine.store)
    for one in states:
        if one.origin.harness not in HARNESSES and one.origin.device == machine.config.device:
            words = f"crystal knows no agent {one.origin.harness!r}, whose session {one.origin.session_id} is"
            yield Check("archive", "failure", words, "crystal verify --repair")
    files = sorted(archive_names(machine.places))
    yield from _shut("archive", map(Path, files), "its session is not captured")
    yield from _shut("memories", [machine.memory_record()], "nothing can be remembered")
    yield from _shut("privacy", [machine.places.ldm_home / RECORD_FILE], "crystal --on cannot be recorded")
    named = {f"{machine.places.ldm_home}{os.sep}{one.archive}" for one in states if one.archive is not None}
    if wrong := sorted(named ^ set(files)):
        words = f"the database and the archive name different files ({len(wrong)}), such as {wrong[0]}"
        yield Check("archive", "failure", words, "crystal verify --repair")


def _shut(name: str, files: Iterable[Path], consequence: str) -> Iterator[Check]:
    shut = [one for one in files if one.exists() and not os.access(one, os.R_OK | os.W_OK)]
    if shut:
        more = f", and {len(shut) - 1:,} others" if shut[1:] else ""
        words = f"{shut[0]} cannot be read and written{owner_in_the_way(shut[0])}{more}: {consequence}"
        yield Check(name, "failure", words, way_in(shut[0]))


def _capture(found: dict[str, Any]) -> Iterator[Check]:
    capture = found["capture"]
    failures = [one for one in capture["reasons"] if one["code"] not in HOOK_REASONS]
    yield from (Check("capture", "failure", one["message"], one["fix"]) for one in failures)
    yield from (Check("capture", "note", one["message"], one["fix"]) for one in capture["remarks"])
    if not capture["on"]:
        yield Check("capture", "warning", "capture is off", "crystal --on")
    elif not failures:
        yield Check("capture", *status.describe_lag(found))
    if before := found["ledger"].get("before-crystal", 0):
        fix = "crystal sync" if found["transcripts"]["to_import"] else "crystal backfill"
        yield Check("past", "note", f"{before:,} bytes from before crystal are not imported", fix)


def _hook_speed(hook: dict[str, Any]) -> Iterator[Check]:
    runs = "1 run" if hook["runs"] == 1 else f"{hook['runs']} runs"
    if hook["runs"] and hook["p95_ms"] > SLOW_HOOK_MS:
        fix = "see docs/reference/hook.md, section on speed"
        yield Check("hook speed", "warning", f"p95 is {hook['p95_ms']:.0f} ms over {runs}", fix)
    elif hook["runs"]:
        yield Check("hook speed", "ok", f"p50 {hook['p50_ms']:.0f} ms, p95 {hook['p95_ms']:.0f} ms over {runs}")


def _embedding(machine: Machine, waiting: int) -> Check:
    """Check how complete the vectors of the chosen model are, also while another one still serves."""
    try:
        chosen = machine.embedder()
    except CrystalError as error:
        return Check("embedding", "failure", error.message, error.hint)
    if chosen is None:
        fix = "crystal config set embedding.provider embedded"
        return Check("embedding", "note", "switched off; search is by keywords alone", fix)
    if EMBEDDING_PROVIDERS[chosen.provider].kind is ProviderKind.INSTALLED:
        from crystal.embedding.local.manifest import check_model  # noqa: PLC0415 - seldom used

        try:
            check_model(machine.places.models, chosen.model)
        except CrystalError as error:
            return Check("embedding", "failure", error.message, error.hint)
    if waiting:
        words = "1 chunk waits for its vector" if waiting == 1 else f"{waiting:,} chunks wait for their vectors"
        return Check("embedding", "note", f"{words} ({chosen.provider})", "crystal sync")
    if kept := count_kept_here(machine):
        words = f"{kept:,} private or isolated chunks are not sent to {chosen.provider}; only keywords find them"
        return Check("embedding", "note", words, "crystal models use embedded")
    return Check("embedding", "ok", f"{chosen.provider}; all vectors are made")


def _cleanup(machine: Machine, look: AgentFiles) -> Iterator[Check]:
    """Check that what agents delete by themselves is in the memory."""
    for agent in deleting_agents(machine, look):
        is_kept = agent.percent == 100
        fix = None if is_kept else "crystal backfill" if agent.before else "crystal sync"
        yield Check("clean-up", "ok" if is_kept else "warning", describe_cleanup(agent), fix)


def _formats(look: AgentFiles, now: int) -> Iterator[Check]:
    """Check that the readers know what the agents write, and that no file ends in the middle of a line."""
    for verdict, words, fix in describe_formats(look.formats()):
        yield Check("formats", verdict, words, fix)
    for path, size, kept in unfinished_lines(look, now):
        words = f"{path} ends in an unfinished line of {size:,} bytes; the {kept:,} bytes before it are read"
        yield Check("formats", "note", words)
