"""Build what an agent is told of its own session after the client compacted it, or when it begins a subagent. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from crystal.assist import facts as words
from crystal.assist.facts import MAX_COMMAND, MAX_LINE, MAX_REQUEST, Fact
from crystal.text.quoting import quote_line
from crystal.work.calls import command_key
from crystal.work.command_ranking import steps as doing
from crystal.work.cures import WorkStep

MAX_TOKENS = 500
MAX_STATED, MAX_FILES, MAX_COMMANDS = 5, 12, 4
MIN_RUNS = 2
"""Minimum runs of a command that is told: one that ran once may only have looked something up."""


def packet_facts(asked: Sequence[str], stated: Sequence[str], done: Iterable[WorkStep], folder: str) -> list[Fact]:
    """Return the facts of a session, the most useful first, as many as ``MAX_TOKENS`` allow.

    Args:
        asked: The user's requests, in order.
        stated: What the user stated to hold: decisions, rules.
        done: What the agent did, in order.
        folder: The session's; files in it are shown relative to it.
    """
    kept, left = list[Fact](), MAX_TOKENS
    for topic, body, is_worth_telling in _lines(asked, stated, list(done), folder):
        fact = Fact((("packet", topic),), -len(kept), "", body, topic, is_worth_telling)
        left -= int(fact.told()["tokens"])
        if left < 0:
            break
        kept.append(fact)
    return kept


def _without(request: str, told: Iterable[str]) -> str:
    """Return a request without the sentences that are told of it by themselves; empty if it says nothing else."""
    for text in told:
        at = request.lower().find(text.lower())
        if at >= 0:
            request = f"{request[:at].rstrip()} {request[at + len(text) :].lstrip()}".strip()
    return request if any(map(str.isalnum, request)) else ""


def _lines(
    asked: Sequence[str], stated: Sequence[str], done: Sequence[WorkStep], folder: str
) -> Iterator[tuple[str, str, bool]]:
    """Yield the topic of each line, the line, and whether a packet is worth telling for it."""
    told = dict.fromkeys(stated[-MAX_STATED:])
    yield from _requests(asked, told)
    for text in told:
        yield text, words.STATED.format(said=quote_line(text, MAX_REQUEST)), True
    yield from _last_runs(done)
    start = folder.rstrip("/\\") + "/"
    for path in [*dict.fromkeys(step.what for step in reversed(done) if step.is_edit)][:MAX_FILES]:
        shown = path.replace("\\", "/").removeprefix(start)
        yield path, words.TOUCHED.format(file=quote_line(shown, MAX_LINE)), False


def _requests(asked: Sequence[str], told: Iterable[str]) -> Iterator[tuple[str, str, bool]]:
    """Yield the lines of the first and the last request."""
    for form, requests in ((words.BEGUN, asked[:1]), (words.LAST, asked[1:][-1:])):
        for request in (_without(one, told) for one in requests):
            body = form.format(said=quote_line(request, MAX_REQUEST))
            if request:
                yield body, body, False


def _last_runs(done: Sequence[WorkStep]) -> Iterator[tuple[str, str, bool]]:
    """Yield the lines of commands that ran several times, as each ended last."""
    runs = dict[int, list[WorkStep]]()
    for step in done:
        if not step.is_edit and step.exit is not None and doing(step.what):
            runs[step.key] = [*runs.pop(step.key, []), step]
    last = [ran[-1] for ran in runs.values() if len(ran) >= MIN_RUNS][-MAX_COMMANDS:]
    for step in sorted(last, key=lambda one: (not one.exit, -one.turn)):
        fails = bool(step.exit)
        form = words.FAILING if fails else words.WORKING
        yield f"{fails} {step.key}", form.format(command=quote_line(command_key(step.what), MAX_COMMAND)), fails
