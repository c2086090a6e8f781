"""Pair the calls of a conversation with their results, by their order: turns keep no ids of calls.

An empty result is not stored as a turn. So a call without a result counts as successful once the next message begins.
If only some calls of a tool in one message have results, it is unknown which: none is paired.
"""

from __future__ import annotations

from collections.abc import Iterable

from crystal.model.named_tuple import NamedTuple
from crystal.work.calls import is_work

_SAID = ("user", "assistant")
"""Roles of turns that begin a message, in transcripts without ids of messages."""


class PairedTurn(NamedTuple):
    """A turn without its text. ``thread`` is its session, and the subagent in it."""

    id: int
    thread: tuple[int, str | None]
    role: str
    tool: str | None
    message_id: str | None


class Pair(NamedTuple):
    """A call and its result.

    Attributes:
        call: The call's turn.
        result: The result's turn; None if it is missing, or may belong to another call.
        is_silent: The call succeeded without output.
        settled: Id of the newest turn that shows this; 0 if only the end of the turns does.
    """

    call: int
    result: int | None
    is_silent: bool
    settled: int


class _Message:
    """The calls of the current message of a thread, with their results so far."""

    def __init__(self, ident: str | None = None) -> None:
        self.ident = ident
        self.calls: list[tuple[PairedTurn, PairedTurn | None]] = []

    def answer(self, result: PairedTurn) -> None:
        for at, (call, known) in enumerate(self.calls):
            if known is None and call.tool == result.tool:
                self.calls[at] = (call, result)
                return

    def pairs(self, settled: int, *, is_over: bool) -> Iterable[Pair]:
        """Yield the calls with their results; ``is_over``: the agent has continued, so that no more results come."""
        silent = [call.tool for call, result in self.calls if result is None]
        answered = {call.tool for call, result in self.calls if result is not None}
        for call, result in self.calls:
            if result is None:
                yield Pair(call.id, None, is_over and call.tool not in answered, settled)
            elif is_over and call.tool in silent:
                yield Pair(call.id, None, is_silent=False, settled=settled)
            else:
                yield Pair(call.id, result.id, is_silent=False, settled=max(call.id, result.id))


def pair(turns: Iterable[PairedTurn]) -> list[Pair]:
    """Return the calls that edit files or run commands, each with its result; ``turns`` are in the order of capture."""
    found: list[Pair] = []
    threads: dict[tuple[int, str | None], _Message] = {}
    for turn in turns:
        message = threads.setdefault(turn.thread, _Message())
        if turn.role == "tool_result":
            message.answer(turn)
            continue
        if turn.role in _SAID if turn.message_id is None else turn.message_id != message.ident:
            found += message.pairs(turn.id, is_over=turn.role != "user")
            message = threads[turn.thread] = _Message(turn.message_id)
        if turn.role == "tool_call" and is_work(turn.tool):
            message.calls.append((turn, None))
    for message in threads.values():
        found += message.pairs(0, is_over=False)
    return found
