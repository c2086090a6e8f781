"""Implement ``crystal_status``: the state of the memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from crystal import __version__
from crystal.app.mirror import mirror_notes
from crystal.app.status import gather
from crystal.mcp.handlers import ClientContext
from crystal.mcp.items import label
from crystal.mcp.page import NONCE, Json, ToolAnswer, noted
from crystal.text.fence import fenced
from crystal.text.quoting import quote_line
from crystal.timewords.parse import iso

MAX_PROBLEMS = 10
MESSAGE = 300
FIX = "crystal doctor"


def status(client: ClientContext, _: Mapping[str, Any]) -> ToolAnswer:
    """Return what is stored, what waits, and the problems."""
    with client.reader() as machine:
        found = gather(machine)
        notes = mirror_notes(machine.mirror, machine.now())
        home, is_partial = client.project(machine), bool(machine.store.hidden)
    capture, span = found["capture"], found["span"]
    if is_partial:  # a message may name a file
        capture = {**capture, "reasons": [{**one, "message": one["code"], "fix": FIX} for one in capture["reasons"]]}
        capture["stalled"] = None if capture["stalled"] is None else FIX
    if client.projects:  # nor the state of other projects
        capture = {**capture, "reasons": [], "last": span["last"]}
        found["queues"]["notes"] = 0
    reason = next((f"{one['message']} (fix: {one['fix']})" for one in capture["reasons"]), None)
    problems = [
        {"part": one["part"], "message": quote_line(str(one["message"]), MESSAGE), "since": iso(one["since"])}
        for one in found["problems"][:MAX_PROBLEMS]
    ]
    data: Json = {
        "version": __version__,
        "capture": {"state": capture["state"], "reason": None if reason is None else quote_line(reason, MESSAGE),
                    "on": capture["on"], "off_since": iso(capture["off_since"]), "last": iso(capture["last"]),
                    "stalled": None if capture["stalled"] is None else quote_line(capture["stalled"], MESSAGE)},
        "counts": found["counts"],
        "span": {"first": iso(span["first"]), "last": iso(span["last"])},
        "queues": found["queues"],
        "embedding": found["embedding"],
        "summaries": found["summaries"],
        "role": "standalone" if found["relay"] is None else found["relay"]["role"],
        "device": label(found["places"]["device"]),
        "project": label(home[1]) if home else None,
        "session_id": client.session,
        "problems": problems,
        "notes": noted(notes),
    }  # fmt: skip
    return ToolAnswer(fenced("\n".join(_lines(data)), NONCE), data)


def _lines(data: Json) -> list[str]:
    counts, queues, capture = data["counts"], data["queues"], data["capture"]
    kept = ", ".join(f"{counts[name]:,} {name}" for name in ("sessions", "turns", "memories", "projects"))
    state = capture["state"] if capture["reason"] is None else f"NOT capturing: {capture['reason']}"
    state = state if capture["on"] else f"paused since {capture['off_since']}"
    serving = data["embedding"]["serving"]
    lines = [
        f"crystal {data['version']} on {data['device']}, {data['role']}",
        f"capture: {state}; last {capture['last'] or 'never'}",
        f"kept: {kept}; from {data['span']['first'] or 'nothing yet'} to {data['span']['last'] or 'nothing yet'}",
        f"waiting: {queues['notes']} notes, {queues['chunks_without_vector']} chunks without a vector",
        f"without a summary: {queues['sessions_without_summary']} sessions",
        f"search by meaning: {serving['provider'] + ' ' + serving['model'] if serving else 'not yet, keywords answer'}",
        f"this folder: {data['project'] or 'not a project that crystal knows'}",
    ]
    lines += [f"problem: {one['part']}: {one['message']} (since {one['since']})" for one in data["problems"]]
    return [*lines, *(f"note: {note}" for note in data["notes"])]
