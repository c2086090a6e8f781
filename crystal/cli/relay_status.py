"""Implement ``crystal relay status``: show what arrived, what is missing, and what was refused and why."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import typer

from crystal.app.context import open_reader
from crystal.app.sync.forget import unconfirmed_words
from crystal.app.sync.relay_state import RelayState, StreamStatus, relay_state, short_ids
from crystal.cli.json_output import answer, json_row, record
from crystal.cli.options import AsJson
from crystal.cli.render import count_words, one_line, size_words
from crystal.store.sync.refusal_counts import RefusalCount
from crystal.timewords.parse import ago

WAITS, REFUSED, DAMAGED = 1, 5, 6
MAX_UNPROVEN_SHOWN = 3


def status(as_json: AsJson = False) -> None:
    """Show the relay's state: what arrived, what waits, what is missing, what was refused.

    Exit code 0: everything is where it belongs. 1: something waits. 4: the relay does not answer. 5 or 6: something
    was refused or is damaged, or the relay loses what it confirmed: this needs your attention.
    """
    with open_reader() as machine:
        state = relay_state(machine)
        now = machine.now()
    code = code_of(state)
    rows = _lines(state, lambda ms: "never" if ms is None else ago(ms, now))
    lines = (f"{name:<10} {one_line(words)}" for name, words in rows)
    answer({"ok": code == 0, **_json(state)}, lines, as_json=as_json)
    if code:
        raise typer.Exit(code)


def code_of(state: RelayState) -> int:
    """Return the exit code: problems for a person come first, then those of the relay, then those that time solves."""
    stuck = code_of_streams([one for one in state.streams if one.is_stuck])
    if stuck:
        return stuck
    if state.problem is not None:
        return state.problem.exit_code
    if state.lost:
        return DAMAGED
    behind = any((one.missing or one.known.state == "waiting") and not one.is_settled for one in state.streams)
    unsent = state.backlog is not None and (state.backlog.blobs > 0 or state.resting is not None)
    return WAITS if behind or unsent or state.unheard else 0


def code_of_streams(stuck: Sequence[StreamStatus]) -> int:
    """Return the exit code for streams that are stuck."""
    if not stuck:
        return 0
    return DAMAGED if all(one.known.state == "damaged" for one in stuck) else REFUSED


def _json(state: RelayState) -> dict[str, Any]:
    home, outbox = None, None
    if state.home is not None:
        home = {"name": state.home.own_name, **json_row(state.home, "generation", last_heard="heard_at")}
    if state.backlog is not None:
        resting = None if state.resting is None else json_row(state.resting, "retry_at", problem="message")
        outbox = json_row(state.backlog, "blobs", "bytes", "unsent", "since")
        outbox |= resting or {"problem": None, "retry_at": None}
    names = {one.known.stream: one.device for one in state.streams}
    problem = None if state.problem is None else state.problem.message
    return {
        "role": state.role,
        "relay": {"url": state.url, "reachable": state.reachable, "problem": problem},
        "home": home,
        "outbox": outbox,
        "forgotten": record(state.forgotten),
        "streams": [_stream_json(one) for one in state.streams],
        "skips": [
            {"device": names.get(one.stream), **json_row(one, "stream", "seq", "code", "at")} for one in state.skips
        ],
        "refused": [
            {"device": name, **json_row(one, "code", "streams", "blobs", first="first_at", last="last_at")}
            for name, one in state.refused
        ],
        "unheard": [one.name for one in state.unheard],
        "successors": [{"device": old, "successor": new} for old, new in state.successors.items()],
        "lost": [json_row(one, "since", problem="message", times="tries") for one in state.lost],
    }


def _stream_json(one: StreamStatus) -> dict[str, Any]:
    known = one.known
    return {
        "device": one.device,
        "missing": [[known.last_seq + 1, known.head]] if one.missing else [],
        "at_relay": one.at_relay,
        **json_row(known, "stream", "lane", "head", "state", "code", "detail", "since", "retry_at", last="last_seq"),
    }


def _relay_lines(state: RelayState, ago: Callable[[int | None], str]) -> Iterator[tuple[str, str]]:
    yield "role", state.role
    if state.url is not None:
        answers = {True: "answers", False: "is not available now", None: "was not asked"}[state.reachable]
        yield "relay", f"{state.url} {answers}"
    elif state.role != "standalone":
        yield "relay", "none is set"
    if state.problem is not None:
        yield "problem", state.problem.message
        if state.problem.hint:
            yield "", f"hint: {state.problem.hint}"
    if state.home is not None:
        heard = "never heard yet" if state.home.heard_at is None else f"last heard {ago(state.home.heard_at)}"
        yield "home", f"{state.home.own_name}, {heard}"


def _lines(state: RelayState, ago: Callable[[int | None], str]) -> Iterator[tuple[str, str]]:
    yield from (*_relay_lines(state, ago), *_outbox_lines(state, ago))
    forgotten = unconfirmed_words(state.forgotten, ago)
    if forgotten is not None:
        yield "forgotten", forgotten
    for problem in state.lost:
        yield "lost", f"{problem.message} (since {ago(problem.since)}, found {count_words(problem.tries, 'time')})"
        yield "", "hint: check the relay's disk; if it happens again, use another relay"
    for peer in state.unheard:
        yield "unheard", f"{peer.name}: nothing has arrived since it was paired {ago(peer.paired_at)}"
        yield "", "hint: on it run: crystal relay status; if it has sent something, the relay does not keep it"
    for name, new in state.successors.items():
        yield "successor", f"{name}: {successor_words(name, new)}"
    ids = short_ids([one.known.stream for one in state.streams] + [one.stream for one in state.skips])
    for one in _shown(state.streams):
        yield from _stream_lines(one, ids[one.known.stream], ago)
    hidden = sum(one.is_unproven for one in state.streams) - MAX_UNPROVEN_SHOWN
    if hidden > 0:
        yield "", f"and {count_words(hidden, 'stream')} more with nothing from a device: --json lists them"
    for device, refused in state.refused:
        yield "refused", f"{device or 'unknown senders'}: {_reason(refused)} (last {ago(refused.last_at)})"
    names = {one.known.stream: one.device for one in state.streams}
    for skip in state.skips:
        who = names.get(skip.stream) or ids[skip.stream]
        yield "skipped", f"{who}: number {skip.seq} ({skip.code or 'it had not arrived'}), {ago(skip.at)}"


def successor_words(name: str, successor: str) -> str:
    """Say that a device sends what another one sent, and what to do if they are one machine."""
    revoke = shlex.join(["crystal", "devices", "revoke", name])
    return f"{successor} sends its transcripts now; if they are one machine: {revoke}"


def _outbox_lines(state: RelayState, ago: Callable[[int | None], str]) -> Iterator[tuple[str, str]]:
    backlog, resting = state.backlog, state.resting
    if backlog is None:
        return
    words = "nothing waits"
    if backlog.blobs:
        words = f"{count_words(backlog.blobs, 'blob')}, {size_words(backlog.bytes)}, not confirmed by home"
        words += f" since {ago(backlog.since)}"
        words += f"; {backlog.unsent:,} of them not at the relay yet" if backlog.unsent else "; all are at the relay"
    yield "outbox", words
    if resting is not None:
        yield "", f"{resting.message} (since {ago(resting.since)}, {count_words(resting.tries, 'try')})"


def _shown(streams: Sequence[StreamStatus]) -> list[StreamStatus]:
    """Return the streams to list one by one, with only a few of those without any valid blob."""
    unproven = [one for one in streams if one.is_unproven]
    return [one for one in streams if not one.is_unproven or one in unproven[:MAX_UNPROVEN_SHOWN]]


def _reason(one: RefusalCount) -> str:
    """Return why blobs were refused."""
    refused = f"refused {count_words(one.blobs, 'time')}"
    listed = f"{count_words(one.blobs, 'blob')} in {count_words(one.streams, 'stream')} at the relay"
    words = {
        "unknown": f"{listed}, from no paired machine; not fetched",
        "untried": f"{listed}, none could be opened yet; the next polls try them",
        "key": f"{refused}: sealed with a key that is unknown here",
        "old-key": f"{refused}: sealed with keys that were rotated",
    }
    if one.code == "revoked":
        return f"revoked; {listed}, not fetched" if one.streams else f"revoked; {refused}"
    return words.get(one.code, f"{refused} ({one.code})")


def _stream_lines(one: StreamStatus, ident: str, ago: Callable[[int | None], str]) -> Iterator[tuple[str, str]]:
    known = one.known
    words = f"{one.device or 'unknown sender'}, {known.lane or 'new'} {ident}: {known.last_seq:,} taken"
    if one.missing:
        words += f", {one.missing:,} missing (from {known.last_seq + 1:,})"
        words += f", {one.at_relay:,} of them at the relay" if one.at_relay is not None else ""
    yield "stream", words
    if known.state == "left":
        yield "", f"left: {known.detail or known.code}"
    elif (known.state, known.code) == ("waiting", "gap") and one.device:
        left = max(1, one.missing - (one.at_relay or 0))
        verb, they = ("is", "it comes") if left == 1 else ("are", "they come")
        yield "", f"{one.device}: {count_words(left, 'message')} {verb} still on {one.device}; {they} when it syncs"
    elif known.state != "ok":
        yield "", f"{known.state}: {known.detail or known.code} (since {ago(known.since)})"
        if one.is_stuck and one.device and known.head > known.last_seq:
            skip = shlex.join(["crystal", "relay", "skip", one.device, str(known.last_seq + 1)])
            yield "", f"if home can never accept it: {skip}"
