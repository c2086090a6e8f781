"""``crystal status``: how the memory stands, on one page."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from crystal.cli.capture import count_words, size_words


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(status)


def status(as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False) -> None:
    """Show what is kept, what waits, how fast it is and what it cost."""
    from crystal.status import gather
    from crystal.when import ago, iso
    from crystal.wiring import open_reader

    with open_reader() as machine:
        found = gather(machine)
        now = machine.now()
    if as_json:
        for part, name in (("capture", "off_since"), ("capture", "last"), ("span", "first"), ("span", "last")):
            found[part][name] = iso(found[part][name])
        for problem in found["problems"]:
            problem.update(since=iso(problem["since"]), at=iso(problem["at"]))
        typer.echo(json.dumps(found))
        return
    for name, words in _lines(found, lambda ms: "never" if ms is None else ago(ms, now)):
        typer.echo(f"{name:<11}{words}")


def _lines(found: dict[str, Any], ago: Any) -> list[tuple[str, str]]:
    capture, counts, sizes, queues = found["capture"], found["counts"], found["sizes"], found["queues"]
    state = "on" if capture["on"] else f"OFF, since {ago(capture['off_since'])}: nothing that is said is kept"
    lines = [("capture", f"{state}; last capture {ago(capture['last'])}")]
    if capture["stalled"]:
        lines.append(("", f"STALLED: {capture['stalled']} (run: crystal doctor)"))
    if capture["private_sessions"]:
        lines.append(("", f"closed sessions: {', '.join(capture['private_sessions'])}"))
    lines.append(("memory", ", ".join(
        count_words(counts[name], name[:-1]) for name in ("sessions", "turns", "chunks")
    ) + f"; since {ago(found['span']['first'])}"))
    lines.append(("size", f"database {size_words(sizes['database'])}, archive {size_words(sizes['archive'])}"
                          f" for {size_words(sizes['archived_plain'])} of transcripts"))
    lines.append(("transcripts", _transcripts(found)))
    lines.append(("waiting", _waiting(queues)))
    serving = found["embedding"]["serving"]
    model = f"{serving['provider']} {serving['model']} ({serving['dimension']})" if serving else "no vectors yet"
    lines.append(("embedding", f"{found['embedding']['provider']}; serving: {model}"))
    hook = found["hook"]
    speed = "not run yet" if not hook["runs"] else (
        f"p50 {hook['p50_ms']:.0f} ms, p95 {hook['p95_ms']:.0f} ms over {count_words(hook['runs'], 'run')}")
    lines.append(("hook", speed))
    costs = found["costs"]
    lines.append(("cost", f"${costs['today_usd']:.2f} today of at most ${costs['daily_cap_usd']:.2f}, ${costs['total_usd']:.2f} in all"))
    if found["redactions"]:
        lines.append(("redacted", ", ".join(f"{count} {kind}" for kind, count in found["redactions"].items())))
    for problem in found["problems"]:
        lines.append(("problem", f"{problem['room']}: {problem['message']} (since {ago(problem['since'])})"))
    lines.append(("stored in", found["places"]["database"]))
    return [(name if name == "" else f"{name} ", words) for name, words in lines]


def _transcripts(found: dict[str, Any]) -> str:
    transcripts, ledger = found["transcripts"], found["ledger"]
    words = f"{transcripts['on_disk']:,} on disk, {transcripts['known']:,} known"
    if transcripts["lag"]:
        words += f"; {size_words(transcripts['lag'])} not captured yet (run: crystal sync)"
    before = ledger.get("before-crystal", 0)
    if before:
        words += f"; {size_words(before)} from before crystal (run: crystal backfill)"
    if ledger.get("private"):
        words += f"; {size_words(ledger['private'])} private"
    return words


def _waiting(queues: dict[str, int]) -> str:
    parts = [
        count_words(queues[name], noun)
        for name, noun in (("notes", "note"), ("chunks_without_vector", "chunk"), ("sessions_without_summary", "session"))
    ]
    return f"{parts[0]} of the hook, {parts[1]} without vector, {parts[2]} without summary"
