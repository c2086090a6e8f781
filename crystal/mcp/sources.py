"""Implement ``crystal_sources_add``, ``crystal_sources_sync`` and ``crystal_sources_status``."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from crystal.app.background import SOON, embed_soon
from crystal.app.context import Machine, open_kept_machine
from crystal.app.source_list import SourceState, list_sources
from crystal.app.sources import add_source, sync_sources
from crystal.app.start_worker import start_worker
from crystal.errors import UsageError
from crystal.mcp.handlers import ClientContext
from crystal.mcp.items import label
from crystal.mcp.page import NONCE, Json, ToolAnswer, noted
from crystal.sources.sync import SyncReport
from crystal.text.fence import fenced
from crystal.timewords.parse import iso

SECONDS = 20.0
"""Time after which a call ends, because clients wait only so long; the next call continues."""
MAX_SHOWN = 20


def add(client: ClientContext, arguments: Mapping[str, Any]) -> ToolAnswer:
    """Index a folder inside the agent's working folder; only the user can add others."""
    path = arguments["path"]
    wanted = client.inside(path)
    if wanted is None:
        hint = f"ask the user to run: crystal sources add {path[:200]}"
        raise UsageError("this tool adds only folders inside your working folder", hint=hint)
    with open_kept_machine() as machine:
        return _synced(machine, add_source(machine, wanted, arguments.get("name")).name)


def sync(_: ClientContext, arguments: Mapping[str, Any]) -> ToolAnswer:
    """Read what has changed in all sources, or in one."""
    with open_kept_machine() as machine:
        return _synced(machine, arguments.get("name"))


def status(client: ClientContext, _: Mapping[str, Any]) -> ToolAnswer:
    """Return the state of each source."""
    with client.reader() as machine:
        found = list_sources(machine)
    lines = [_state_line(one) for one in found[:MAX_SHOWN]]
    lines += [f"and {len(found) - MAX_SHOWN} more"] if len(found) > MAX_SHOWN else []
    data: Json = {"sources": [_state(one) for one in found[:MAX_SHOWN]], "number": len(found)}
    return ToolAnswer(fenced("\n".join(lines or ["no sources yet"]), NONCE), data)


def _synced(machine: Machine, name: str | None) -> ToolAnswer:
    deadline = time.monotonic() + SECONDS
    reports, problems = sync_sources(machine, name, should_stop=lambda: time.monotonic() > deadline)
    embed_soon(machine)
    if sum(one.chunks_new for one in reports) > SOON:
        start_worker(machine.places)
    lines = [_report_line(one) for one in reports[:MAX_SHOWN]]
    notes = noted(problems)
    data: Json = {
        "sources": [_report(one) for one in reports[:MAX_SHOWN]],
        "is_done": all(one.is_whole for one in reports), "notes": notes,
    }  # fmt: skip
    return ToolAnswer(fenced("\n".join([*(lines or ["no sources yet"]), *notes]), NONCE), data)


def _report(one: SyncReport) -> Json:
    numbers = {name: getattr(one, name) for name in ("added", "changed", "renamed", "removed", "unchanged")}
    skipped = [f"{label(path)}: {why}" for path, why in one.skipped[:MAX_SHOWN]]
    return {"name": label(one.name), **numbers, "chunks_new": one.chunks_new, "redacted": one.redacted,
            "not_indexed": len(one.skipped), "first_not_indexed": skipped}  # fmt: skip


def _report_line(one: SyncReport) -> str:
    found = _report(one)
    numbers = ", ".join(f"{found[name]} {name}" for name in ("added", "changed", "renamed", "removed", "unchanged"))
    skipped = f"; {len(one.skipped)} not indexed: {'; '.join(found['first_not_indexed'][:5])}" if one.skipped else ""
    rest = "" if one.is_whole else "; not done yet: call crystal_sources_sync again"
    return f"{found['name']}: {numbers}{skipped}{rest}"


def _state(one: SourceState) -> Json:
    return {"name": label(one.name), "folder": label(one.folder), "is_here": one.is_here, "files": one.files,
            "not_indexed": one.skipped, "chunks": one.chunks, "without_vector": one.waiting,
            "synced_at": iso(one.synced_at)}  # fmt: skip


def _state_line(one: SourceState) -> str:
    here = "" if one.is_here else "; its folder is not there"
    read = iso(one.synced_at) or "never"
    return f"{label(one.name)} ({label(one.folder)}): {one.files} files, {one.chunks} chunks, read {read}{here}"
