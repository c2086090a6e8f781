"""Implement ``crystal status``, ``doctor``, ``statusline`` and the options ``--on``, ``--off`` and ``--status``."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import typer

from crystal.app.capture_state import capture_state
from crystal.app.context import default_paths, now_ms, open_machine, open_reader, this_config
from crystal.capture.state import CaptureState, Condition, Reason
from crystal.cli.capture_warning import state_line, warn_if_not_capturing
from crystal.cli.json_output import TIMES, answer, print_json, record
from crystal.cli.options import AsJson, flag
from crystal.cli.render import count_words, item, look_of, one_line, say, size_words, warn
from crystal.errors import CrystalError, DamagedError, NotConfiguredError, UnavailableError
from crystal.model.quick_dataclass import replace
from crystal.timewords.parse import ago

MARKS = {"ok": "ok", "note": "note", "warning": "warn", "failure": "FAIL"}
STATUS_TIMES = TIMES | {"as_of", "first", "heard", "last", "off_since"}


def status(as_json: AsJson = False) -> None:
    """Show whether turns are captured, what is stored, what waits, how fast the hook is and what models cost.

    Exit code 0: capturing, or paused by you. 1: NOT capturing.
    """
    from crystal.app.context import damage_explained
    from crystal.app.status import gather

    now = now_ms()
    try:
        state = capture_state(this_config())
    except CrystalError as error:  # the worker needs the settings, too
        if _say_failure(error, _stopped_by("settings", error), now, as_json=as_json):
            raise typer.Exit(error.exit_code) from error
        raise
    try:
        with damage_explained(), open_reader() as machine:
            found = gather(machine, state)
    except CrystalError as error:
        if isinstance(error, DamagedError) and all(one.code != "database" for one in state.reasons):
            state = _stopped_by("database", error, state)
        if _say_failure(error, state, now, as_json=as_json):
            raise typer.Exit(error.exit_code) from error
        raise
    look, lines = look_of(sys.stdout), [state_line(state, now, sys.stdout)]
    for name, words in _lines(found, lambda ms: "never" if ms is None else ago(ms, now)):
        lines += item(f"{name:<12} ", words, look, style=look.dim)
    answer(record(found, STATUS_TIMES), lines, as_json=as_json)
    if state.condition is Condition.NOT_CAPTURING:
        raise typer.Exit(1)


def _stopped_by(code: str, error: CrystalError, state: CaptureState | None = None) -> CaptureState:
    """Return a state of capture with an error as its first reason."""
    state = state or CaptureState(Condition.NOT_CAPTURING)
    why = Reason(code, error.message, (error.hint or "crystal doctor").removeprefix("run: "))
    return replace(state, condition=Condition.NOT_CAPTURING, reasons=(why, *state.reasons))


def _say_failure(error: CrystalError, state: CaptureState, now: int, *, as_json: bool) -> bool:
    """Print the state also if the memory cannot be read; return False if the caller must report the error."""
    from crystal.app.status import state_as_json

    is_shown = not isinstance(error, NotConfiguredError) or default_paths().db.exists()  # else there is no memory yet
    if as_json:
        problem = {"ok": False, "problem": {"message": error.message, "fix": error.hint}} if is_shown else {}
        print_json({"capture": state_as_json(state), **problem})
    elif is_shown:
        typer.echo(state_line(state, now, sys.stdout))
        part = "settings" if state.reasons[:1] and state.reasons[0].code == "settings" else "memory"
        say(*item("FAIL  ", one_line(f"{part}: {error.message}"), look_of(sys.stdout)))
        say(f"      fix: {(error.hint or '').removeprefix('run: ')}")
    return is_shown


def _lines(found: dict[str, Any], ago: Callable[[int | None], str]) -> Iterator[tuple[str, str]]:
    """Yield the lines of the status page as (name, words)."""
    from crystal.app.status import FIND_UNEXAMINED, describe_unexamined
    from crystal.app.watcher import status_words

    first = found["span"]["first"]
    yield "memory", _memory(found["counts"]) + ("" if first is None else f"; since {ago(first)}")
    if found["sources"]:
        yield "sources", _sources(found["sources"])
    yield from _sizes(found["sizes"])
    yield "transcripts", _transcripts(found)
    yield from (("clean-up", words) for words in found["cleanup"])
    yield "waiting", _waiting(found["queues"])
    if found["progress"]:
        yield "working on", _progress(found["progress"])
    yield from (("watching", words) for words in status_words(**found["watcher"]))
    yield "embedding", _embedding(found["embedding"])
    yield from _relay(found["relay"], ago)
    yield "hook", _hook(found["hook"])
    yield "cost", _costs(found["costs"])
    if found["capture"]["private_sessions"]:
        yield "closed", ", ".join(found["capture"]["private_sessions"])
    if found["redactions"]:
        yield "redacted", ", ".join(f"{count:,} {kind}" for kind, count in found["redactions"].items())
    unexamined = describe_unexamined(found["redactions"])
    if unexamined:
        yield "left out", f"{unexamined} ({FIND_UNEXAMINED})"
    for one in found["problems"]:
        yield "problem", f"{one['part']}: {one['message']} (since {ago(one['since'])})"
    yield "stored in", found["places"]["database"]


def _sizes(sizes: dict[str, int]) -> Iterator[tuple[str, str]]:
    whole, plain = size_words(sizes["whole"]), size_words(sizes["archived_plain"])
    yield "size", f"{whole} on disk for {plain} of transcripts"
    parts = {name: size for name, size in sizes.items() if name not in ("whole", "archived_plain")}
    yield "", ", ".join(f"{name} {size_words(size)}" for name, size in parts.items() if size)


def _sources(sources: list[dict[str, Any]]) -> str:
    """List the folders of files that are also searched."""
    away = {False: " (its folder is not there)", True: ""}
    return ", ".join(
        f"{one_line(one['name'])} {count_words(one['files'], 'file')}{away[one['is_here']]}" for one in sources
    )


def _memory(counts: dict[str, int]) -> str:
    words = [count_words(counts[name], name[:-1]) for name in ("sessions", "turns", "chunks")]
    words += [count_words(counts["memories"], "memory")] if counts["memories"] else []
    return ", ".join(words)


def _progress(progress: dict[str, Any]) -> str:
    """Describe the progress of background work."""
    share = 100 * progress["done"] // max(1, progress["total"])
    words = f"{progress['step']}: {share} % ({progress['done']:,} of {progress['total']:,})"
    left = progress["seconds_left"]
    if not left:
        return words
    minutes, seconds = divmod(left, 60)
    return f"{words}, about {f'{minutes} min {seconds} s' if minutes else f'{seconds} s'} left"


def _embedding(embedding: dict[str, Any]) -> str:
    serving = embedding["serving"]
    if serving is None:
        return f"{embedding['provider']}; no vectors yet"
    used = f"{serving['provider']} {serving['model']}, {serving['dimension']} dimensions"
    return used if embedding["provider"] == serving["provider"] else f"{embedding['provider']} is set; in use is {used}"


def _relay(relay: dict[str, Any] | None, ago: Callable[[int | None], str]) -> Iterator[tuple[str, str]]:
    if relay is None:
        return
    from crystal.app.sync.forget import unconfirmed_words

    if relay["role"] == "device":
        yield "relay", _to_home(relay, ago)
    if relay["mirror"] is not None:
        mirror = relay["mirror"]
        words = f"{count_words(mirror['chunks'], 'chunk')} of home, as of {ago(mirror['as_of'])}"
        yield "mirror", words if mirror["complete"] else f"{words}; not complete yet"
    forgotten = unconfirmed_words(relay["forgotten"], ago)
    if forgotten is not None:
        yield "forgotten", forgotten
    if relay["refused"]:
        yield "refused", f"{count_words(relay['refused'], 'time')} (see: crystal relay status)"
    if relay["role"] == "home":
        names = [_of_device(one, ago) for one in relay["devices"]]
        yield "relay", f"home; {'; '.join(names) or 'no device yet (run: crystal relay pair)'}"


def _to_home(relay: dict[str, Any], ago: Callable[[int | None], str]) -> str:
    if relay["home"] is None:
        return "device that has not joined a home yet (run: crystal relay join)"
    box, waits = relay["outbox"], "nothing waits"
    if box["blobs"]:
        waits = f"{count_words(box['blobs'], 'blob')} ({size_words(box['bytes'])}) without a receipt, the oldest of "
        waits += f"{ago(box['since'])}; {box['unsent']:,} not sent yet"
    if box["past_left"]:
        waits += f"; {count_words(box['past_left'], 'archived part')} of the past to follow"
    return f"device of {relay['home']['name']}, heard {ago(relay['home']['heard'])}; {waits}"


def _of_device(device: dict[str, Any], ago: Callable[[int | None], str]) -> str:
    words = f"{device['name']} heard {ago(device['heard'])}"
    if device["state"] == "revoked":
        return f"{words}, revoked"
    if device["missing"]:
        words += f", {device['missing']:,} on the way"
    if device["state"] != "ok":
        words += f", {device['state']} (run: crystal relay status)"
    return words


def _hook(hook: dict[str, Any]) -> str:
    if not hook["runs"]:
        return "not run yet"
    return f"p50 {hook['p50_ms']:.0f} ms, p95 {hook['p95_ms']:.0f} ms over {count_words(hook['runs'], 'run')}"


def _costs(costs: dict[str, float]) -> str:
    spent = f"${costs['today_usd']:.4f} today, ${costs['total_usd']:.4f} in all"
    return f"{spent}; summaries stop at ${costs['summary_cap_usd']:.2f} a day"


def _transcripts(found: dict[str, Any]) -> str:
    transcripts, ledger = found["transcripts"], found["ledger"]
    words = f"{transcripts['on_disk']:,} on disk, {transcripts['known']:,} known"
    if transcripts["lag"]:
        words += f"; {size_words(transcripts['lag'])} not captured yet (run: crystal sync)"
    if transcripts["unreadable"]:
        words += f"; cannot be read: {one_line(', '.join(transcripts['unreadable'][:2]))}"
    before = ledger.get("before-crystal", 0)
    if before:
        words += f"; {size_words(before)} from before crystal ({_import(transcripts)})"
    if ledger.get("private"):
        words += f"; {size_words(ledger['private'])} private"
    return words


def _import(transcripts: dict[str, Any]) -> str:
    """Describe how to import transcripts from before crystal."""
    if transcripts["is_importing"]:
        return "being imported"
    goes_on = "the import goes on at the next turn; to go on now, run: crystal sync"
    return goes_on if transcripts["to_import"] else "run: crystal backfill"


def _waiting(queues: dict[str, int]) -> str:
    notes, chunks = count_words(queues["notes"], "note"), count_words(queues["chunks_without_vector"], "chunk")
    sessions = count_words(queues["sessions_without_summary"], "session")
    return f"{notes} of the hook, {chunks} without vector, {sessions} without summary"


def doctor(
    *,
    deep: Annotated[bool, flag("Also read every page of a large database.", "--deep")] = False,
    as_json: AsJson = False,
) -> None:
    """Check the installation and say how to fix it. Exit code 0: nothing fails. 1: something does."""
    from crystal.app.doctor import examine

    checks = examine(deep=deep)
    failed = any(check.verdict == "failure" for check in checks)
    look, lines = look_of(sys.stdout), list[str]()
    styles = {"ok": look.good, "note": look.dim, "warning": look.warning, "failure": look.bad}
    for check in checks:
        words = one_line(f"{check.name}: {check.message}")
        lines += item(f"{MARKS[check.verdict]:<5} ", words, look, style=styles[check.verdict])
        if check.fix and check.verdict != "ok":
            lines.append(look.bold("      fix: ") + check.fix.removeprefix("run: "))  # one line: it is copied
    answer({"ok": not failed, "checks": record(checks)}, lines, as_json=as_json)
    if failed:
        raise typer.Exit(1)


def statusline() -> None:
    """Print one line for Claude Code's status line, from the JSON on standard input.

    It says whether this conversation is kept, what it was told and when it searched. Exit code 0, always.
    """
    from crystal.hook.statusline import main  # ``crystal.__main__`` does so too, without this slower module

    main()


def switch(*, on: bool, off: bool, session: str | None) -> None:
    """Turn capture on or off, then print its state.

    Both sweep first: what was said until ``--off`` is kept, what was said until ``--on`` is marked private.
    """
    from crystal.app.capture_switch import hold_off, turn_off, turn_on
    from crystal.app.status import capture_switch

    if on or off:
        try:
            with open_machine() as machine:
                (turn_off if off else turn_on)(machine, session)
                _say(capture_switch(machine))
                return
        except UnavailableError as error:
            if not off:
                raise
            hold_off(session, error)
            warn(f"{error.message}; capture is off all the same")
    with open_reader() as machine:
        _say(capture_switch(machine))
        warn_if_not_capturing(machine)


def _say(state: dict[str, object]) -> None:
    if state["on"]:
        typer.echo("capture is on")
    else:
        since = time.strftime("%Y-%m-%d %H:%M", time.localtime(int(str(state["off_since"])) / 1000))
        typer.echo(f"capture is off since {since}; nothing said meanwhile is kept (resume: crystal --on)")
    sessions = state["private_sessions"]
    if isinstance(sessions, list) and sessions:
        typer.echo(f"paused sessions: {', '.join(map(str, sessions))}")
