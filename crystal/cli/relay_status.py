"""``crystal relay status``: what came, what is missing, what was refused and why."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crystal.cli.capture import count_words, size_words
from crystal.cli.render import one_line, say

if TYPE_CHECKING:
    from crystal.store.relay_peers import Peer
    from crystal.wiring.devices import RelayState, StreamStatus

WAITS, REFUSED, DAMAGED = 1, 5, 6


def status(as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False) -> None:
    """Show how the relay stands: what came, what waits, what is missing, what was refused.

    Exit code 0: everything is where it belongs. 1: something waits. 4: the relay does not answer. 5 or 6: something
    was refused or is damaged, and somebody has to look.
    """
    from crystal.when import ago
    from crystal.wiring import open_reader
    from crystal.wiring.devices import relay_state

    with open_reader() as machine:
        state = relay_state(machine)
        now = machine.now()
    code = code_of(state)
    if as_json:
        print(json.dumps({"schema": 1, "ok": code == 0, **_json(state)}))
    else:
        for name, words in _lines(state, lambda ms: "never" if ms is None else ago(ms, now)):
            say(f"{name:<10} {one_line(words)}")
    if code:
        raise typer.Exit(code)


def code_of(state: RelayState) -> int:
    """The exit code: what needs somebody first, then what needs the relay, then what needs time."""
    stuck = code_of_streams([one for one in state.streams if one.is_stuck])
    if stuck:
        return stuck
    if state.problem is not None:
        return state.problem.exit_code
    behind = any((one.missing or one.known.state == "waiting") and not one.is_settled for one in state.streams)
    unsent = state.backlog is not None and (state.backlog.blobs > 0 or state.resting is not None)
    return WAITS if behind or unsent else 0


def code_of_streams(stuck: Sequence[StreamStatus]) -> int:
    """The exit code for streams that stand still."""
    if not stuck:
        return 0
    return DAMAGED if all(one.known.state == "damaged" for one in stuck) else REFUSED


def _home_name(home: Peer) -> str:
    """What home calls itself, which may have changed since the pairing."""
    return str(home.told.get("home") or home.name)


def _json(state: RelayState) -> dict[str, Any]:
    from crystal.when import iso

    home, backlog, resting = state.home, state.backlog, state.resting
    names = {one.known.stream: one.device for one in state.streams}
    return {
        "role": state.role,
        "relay": {
            "url": state.url,
            "reachable": state.reachable,
            "problem": None if state.problem is None else state.problem.message,
        },
        "home": None
        if home is None
        else {
            "name": _home_name(home),
            "last_heard": iso(home.heard_at),
            "generation": home.generation,
        },
        "outbox": None
        if backlog is None
        else {
            "blobs": backlog.blobs,
            "bytes": backlog.bytes,
            "unsent": backlog.unsent,
            "since": iso(backlog.since),
            "problem": None if resting is None else resting.message,
            "retry_at": None if resting is None else iso(resting.retry_at),
        },
        "forgotten": state.forgotten.as_json(iso),
        "streams": [_stream_json(one, iso) for one in state.streams],
        "skips": [
            {
                "device": names.get(one.stream),
                "stream": one.stream.hex(),
                "seq": one.seq,
                "code": one.code,
                "at": iso(one.at),
            }
            for one in state.skips
        ],
        "set_aside": [
            {
                "device": names.get(one.stream),
                "stream": one.stream.hex(),
                "seq": one.seq,
                "code": one.code,
                "detail": one.detail,
                "first": iso(one.first_at),
                "last": iso(one.last_at),
                "times": one.times,
            }
            for one in state.aside
        ],
    }


def _stream_json(one: StreamStatus, iso: Callable[[int | None], str | None]) -> dict[str, Any]:
    known = one.known
    return {
        "device": one.device,
        "stream": known.stream.hex(),
        "lane": known.lane,
        "last": known.last_seq,
        "head": known.head,
        "missing": [[known.last_seq + 1, known.head]] if one.missing else [],
        "at_relay": one.at_relay,
        "state": known.state,
        "code": known.code,
        "detail": known.detail,
        "since": iso(known.since),
        "retry_at": iso(known.retry_at),
        "set_aside": one.aside,
    }


def _lines(state: RelayState, ago: Callable[[int | None], str]) -> list[tuple[str, str]]:
    lines = [("role", state.role)]
    if state.url is not None:
        answers = {True: "answers", False: "does not answer", None: "was not asked"}[state.reachable]
        lines.append(("relay", f"{state.url} {answers}"))
    elif state.role != "standalone":
        lines.append(("relay", "none is set"))
    if state.problem is not None:
        lines.append(("problem", state.problem.message))
        lines += [("", f"hint: {state.problem.hint}")] if state.problem.hint else []
    if state.home is not None:
        heard = "never heard yet" if state.home.heard_at is None else f"last heard {ago(state.home.heard_at)}"
        lines.append(("home", f"{_home_name(state.home)}, {heard}"))
    lines += _outbox_lines(state, ago)
    forgotten = state.forgotten.words(ago)
    lines += [("forgotten", forgotten)] if forgotten is not None else []
    lines += [line for one in state.streams for line in _stream_lines(one, ago)]
    names = {one.known.stream: one.device for one in state.streams}
    for skip in state.skips:
        who = names.get(skip.stream) or skip.stream.hex()[:8]
        lines.append(("skipped", f"{who}: number {skip.seq} ({skip.code or 'it had not come'}), {ago(skip.at)}"))
    return lines


def _outbox_lines(state: RelayState, ago: Callable[[int | None], str]) -> list[tuple[str, str]]:
    backlog, resting = state.backlog, state.resting
    if backlog is None:
        return []
    words = "nothing waits"
    if backlog.blobs:
        words = f"{count_words(backlog.blobs, 'blob')}, {size_words(backlog.bytes)}, not confirmed by home"
        words += f" since {ago(backlog.since)}"
        words += f"; {backlog.unsent:,} of them not at the relay yet" if backlog.unsent else "; all are at the relay"
    lines = [("outbox", words)]
    if resting is not None:
        tries = "1 try" if resting.tries == 1 else f"{resting.tries:,} tries"
        lines.append(("", f"{resting.message} (since {ago(resting.since)}, {tries})"))
    return lines


def _stream_lines(one: StreamStatus, ago: Callable[[int | None], str]) -> list[tuple[str, str]]:
    known = one.known
    words = (
        f"{one.device or 'unknown sender'}, {known.lane or 'new'} {known.stream.hex()[:8]}: {known.last_seq:,} taken"
    )
    if one.missing:
        words += f", {one.missing:,} missing (from {known.last_seq + 1:,})"
        words += f", {one.at_relay:,} of them at the relay" if one.at_relay is not None else ""
    words += f", {one.aside:,} set aside" if one.aside else ""
    lines = [("stream", words)]
    if known.state == "left":
        lines.append(("", f"left: {known.detail or known.code}"))
    elif known.state != "ok":
        lines.append(("", f"{known.state}: {known.detail or known.code} (since {ago(known.since)})"))
        if one.is_stuck and one.device and known.head > known.last_seq:
            skip = shlex.join(["crystal", "relay", "skip", one.device, str(known.last_seq + 1)])
            lines.append(("", f"if it never can be taken: {skip}"))
    return lines
