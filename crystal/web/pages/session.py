"""Show a session as a conversation, with calls of tools folded and changes of files as lines added and removed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from crystal.app.context import Machine
from crystal.errors import NotFoundError
from crystal.export.markdown import session_lines
from crystal.handoff.target import TARGETS
from crystal.model.capture import hit_name
from crystal.sessions.reading import (
    ShownTurn,
    find_session,
    find_target,
    read,
    read_page,
    session_summary,
    store_of,
)
from crystal.text.harmless import harmless
from crystal.web.markup import DiffLine, TimeBudget, changes_of, code_of_file, markdown
from crystal.web.responses import Answer, Page, PlainText, Redirect, RequestValues, session_address

PER_PAGE = 100
FOLDED = ("tool_call", "tool_result", "thinking")
HEAD = 140


@dataclass(frozen=True, slots=True)
class Block:
    """A turn as it is shown.

    Attributes:
        turn: The turn.
        head: The first words of a folded turn; empty if it is not folded.
        body: The text as HTML; None if ``change`` is shown.
        change: The lines that a call adds to a file or removes from it.
    """

    turn: ShownTurn
    head: str = ""
    body: Markup | None = None
    change: Sequence[DiffLine] = ()


@dataclass(frozen=True, slots=True)
class Thread:
    """Turns that follow each other in the conversation (``subagent`` is None), or in one subagent."""

    subagent: str | None
    blocks: Sequence[Block]

    @property
    def has_focus(self) -> bool:
        """Return True if it contains the requested turn."""
        return any(block.turn.focus for block in self.blocks)


def show(machine: Machine, params: RequestValues) -> Page:
    """Show a page of a session: the first, the one that begins at ``from``, or the one with the turn ``at``."""
    at = params.number("at")
    target = find_target(machine.stores, params.path["id"] if at is None else hit_name(at))
    found = read_page(machine.stores, target, start=params.number("from"), limit=PER_PAGE)
    last = max(0, found.total - 1) // PER_PAGE * PER_PAGE
    if found.start > last:  # some of its turns were forgotten since
        found = read_page(machine.stores, target, start=last, limit=PER_PAGE)
    harness = found.session.harness
    values = {
        "session": found.session, "start": found.start, "end": found.start + len(found.turns), "total": found.total,
        "earlier": max(0, found.start - PER_PAGE) if found.start else None,
        "later": found.start + PER_PAGE if found.start + PER_PAGE < found.total else None, "last": last,
        "threads": threads(found.turns), "agent": harness if harness in TARGETS else "AGENT",
        "prompts": [turn for turn in found.turns if turn.role == "user" and not turn.subagent],
    }  # fmt: skip
    return Page("session.html", found.session.title or "A session without words", values)


def as_markdown(machine: Machine, params: RequestValues) -> PlainText:
    """Return a session as ``crystal export --as markdown`` writes it."""
    store = store_of(machine.stores, find_target(machine.stores, params.path["id"]).memory)
    summary = session_summary(store, find_session(store, params.path["id"]))
    if summary is None:
        raise NotFoundError(f"there is no session {params.path['id']!r}", hint="choose one from the timeline")
    return PlainText(lambda wording: "\n".join(session_lines(store, summary, wording)))


def find_turn(machine: Machine, params: RequestValues) -> Answer:
    """Redirect to a turn in its session, given its number or its line's id; show text of a file alone."""
    number = RequestValues({}, {"id": str(params.path["id"])}).number("id")
    wanted = str(params.path["id"]) if number is None else hit_name(number)
    target = find_target(machine.stores, wanted)
    if target.chunk is None:
        raise NotFoundError(f"there is no hit {wanted!r}", hint="search again: numbers change")
    found = read(machine.stores, target, context=1)
    if found.session is not None:
        hit = number if number is not None else next(turn.hit for turn in found.turns if turn.focus)
        return Redirect(session_address(found.session.id, at=hit) + "#focus")
    return Page("turn.html", "Text of a file", {"threads": threads(found.turns), "turns": found.turns})


def threads(turns: Iterable[ShownTurn]) -> list[Thread]:
    """Return turns in the order shown: those of a subagent together, at the place of its first."""
    found: list[tuple[str | None, list[Block]]] = []
    inside: dict[str, list[Block]] = {}
    budget = TimeBudget()
    for turn in turns:
        if turn.subagent in inside:
            inside[turn.subagent].append(_block(turn, budget))
        elif found and turn.subagent is None and found[-1][0] is None:
            found[-1][1].append(_block(turn, budget))
        else:
            found.append((turn.subagent, [_block(turn, budget)]))
            if turn.subagent is not None:
                inside[turn.subagent] = found[-1][1]
    return [Thread(subagent, blocks) for subagent, blocks in found]


def _block(turn: ShownTurn, budget: TimeBudget) -> Block:
    text = harmless(turn.text)
    if turn.role not in FOLDED:
        said = markdown(text, budget) if turn.file is None else code_of_file(text, turn.file.path, budget)
        return Block(turn, body=said)
    head = text.strip().partition("\n")[0]
    if turn.tool and head.startswith(f"{turn.tool}: "):
        head = head[len(turn.tool) + 2 :]
    changed = changes_of(text, budget) if turn.role == "tool_call" else None
    if changed is not None:
        return Block(turn, head[:HEAD], change=changed[1])
    first, mark, content = text.partition("\ncontent: ")
    if turn.role == "tool_call" and mark and "\n" not in first:  # a file that is written
        return Block(turn, head[:HEAD], code_of_file(content, first, budget))
    return Block(turn, head[:HEAD], Markup("{}").format(text))
