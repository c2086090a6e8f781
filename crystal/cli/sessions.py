"""Implement ``crystal sessions`` and ``crystal show``: list conversations; read one, or the turns around a hit."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

from crystal.app.context import Machine, current_folder, open_reader
from crystal.app.mirror import mirror_notes
from crystal.app.validity import turns_with_validity
from crystal.cli import render
from crystal.cli.json_output import answer, print_json, record
from crystal.cli.last_search import named_by_place
from crystal.cli.options import AsJson, Limit, OnlyAgent, OnlyProject, argument, flag, option
from crystal.cli.pager import say_paged
from crystal.cli.render import (
    PIPE_WIDTH,
    Look,
    agent_title,
    cells,
    clipped,
    file_words,
    one_line,
    padded,
    shown_branch,
    speaker,
    validity_words,
)  # fmt: skip
from crystal.cli.values import project_value, time_span, whole_number
from crystal.config.harnesses import CLAUDE_CODE
from crystal.errors import NotConfiguredError, UsageError
from crystal.memories.rules import is_memory_id
from crystal.model.capture import hit_name
from crystal.sessions.reading import (
    Conversation,
    SessionSummary,
    ShownTurn,
    ShowTarget,
    find_target,
    read,
    target_memory,
)
from crystal.sessions.reading import sessions as list_sessions
from crystal.text.harmless import harmless
from crystal.timewords.parse import clock
from crystal.transcript.reader import find_facts

CONTEXT = 2
SHORT_ID = 8
BRIEF_LINES = 12
BRIEF_CHARACTERS = 1_500
BRIEF_ROLES = ("tool_call", "tool_result", "thinking")


def show(
    what: Annotated[
        str,
        argument(
            "The place of a hit in the last search (2, @2), a hit (h17), a session's id or its beginning, a line's"
            " uuid, or a memory's id.",
            "ID",
        ),
    ],
    context: Annotated[
        str | None, option("With a hit: show N turns before and after it.", "N", "-C", "--context")
    ] = None,
    full: Annotated[bool, flag("Show tool calls, results and thoughts in full.", "--full")] = False,
    raw: Annotated[bool, flag("Print the archived lines of the transcript as they are.", "--raw")] = False,
    no_pager: Annotated[bool, flag("Print a long text without a pager.", "--no-pager")] = False,
    as_json: AsJson = False,
) -> None:
    """Read a session, or a hit with the turns around it."""
    around = CONTEXT if context is None else whole_number(context, "--context")
    if around < 0:
        raise UsageError(f"--context is {around}", hint="use 0 or more")
    if raw and as_json:
        raise UsageError("--raw and --json do not go together", hint="the lines of --raw are JSON already")
    with open_reader() as machine:
        what = named_by_place(machine.places.data_dir, what, by_person=sys.stdin.isatty())
        if is_memory_id(what):
            _show_memory(machine, what, raw=raw, context=context, as_json=as_json)
            return
        target = find_target(machine.stores, what)
        memory = target_memory(machine.stores, target)
        if memory is not None:
            _show_memory(machine, memory, raw=raw, context=context, as_json=as_json)
            return
        if context is not None and target.chunk is None:
            raise UsageError("--context goes with a hit, not with a session", hint="leave it out")
        if raw:
            _print_raw(machine, target)
            return
        conversation = read(machine.stores, target, context=around)
        conversation = turns_with_validity(machine, conversation, current_folder())
        if as_json:
            print_json(_as_json(conversation))
        else:
            say_paged(_turn_lines(conversation, machine.now(), full=full), enabled=not no_pager)


def _as_json(conversation: Conversation) -> dict[str, Any]:
    session, turns = conversation.session, []
    for turn in conversation.turns:
        found = record(turn)
        del found["message_id"]
        turns.append({"id": found.pop("hit"), **found})
    return {"session": None if session is None else record(session), "turns": turns}


def _show_memory(machine: Machine, ident: str, *, raw: bool, context: str | None, as_json: bool) -> None:
    from crystal.cli.memories import show_memory

    if raw or context is not None:
        raise UsageError("--raw and --context work with transcripts, not with a memory")
    show_memory(machine, ident, as_json=as_json)


# ------------------------------------------------------------------------------------------------------------- raw


def _print_raw(machine: Machine, target: ShowTarget) -> None:
    if target.memory == "mirror":
        raise NotConfiguredError(
            "the archive of this session is on the home machine", hint="run the same command there"
        )
    conversation = read(machine.stores, target, context=0)
    session = conversation.session
    if session is None:
        raise NotConfiguredError("this hit does not come from a transcript", hint="leave out --raw")
    wanted = None if target.chunk is None else {turn.uuid for turn in conversation.turns if turn.focus}
    is_empty = True
    for line in _archived_lines(machine, session.id):
        if wanted is None or find_facts(line).uuid in wanted:
            is_empty = False
            sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()
    if is_empty:
        raise NotConfiguredError(f"session {session.id} has no archived lines here", hint="run: crystal sync")


def _archived_lines(machine: Machine, session: str) -> Iterator[bytes]:
    """Yield the lines of a session's transcript, then those of its subagents."""
    from crystal.integrity.restore import archived_lines
    from crystal.store.capture import ledger

    states = [state for state in ledger.all_states(machine.store) if state.origin.session_id == session]
    archived = [state for state in states if state.archive]
    for state in sorted(archived, key=lambda state: (state.origin.subagent is not None, state.origin.subagent or "")):
        yield from archived_lines(machine.store, state, machine.places.ldm_home)


# ---------------------------------------------------------------------------------------------------------- people


def _turn_lines(conversation: Conversation, now: int, *, full: bool) -> Iterator[str]:
    look, harness = render.look_of(sys.stdout), None
    if conversation.session is not None:
        harness = conversation.session.harness
        yield from (*_title(conversation.session, now, look), "")
    of_a_hit = any(turn.focus for turn in conversation.turns)
    before: ShownTurn | None = None
    for turn in conversation.turns:
        if before is None or not _goes_on(before, turn):
            yield _speaker_line(turn, harness, now, look)
        if turn.validity is not None:
            yield look.warning(clipped(validity_words(turn.validity), look.width))
        brief = not full and not turn.focus and (of_a_hit or turn.role in BRIEF_ROLES)
        yield from (*_body(turn, look, brief=brief), "")
        before = turn


def _title(session: SessionSummary, now: int, look: Look) -> list[str]:
    times = [clock(ms, now) for ms in (session.started_at, session.last_at) if ms is not None]
    span = " to ".join(dict.fromkeys(times))
    place = "from the mirror" if session.memory == "mirror" else None
    turns = f"{session.turns:,} turn{'s' * (session.turns != 1)}"
    agent = None if session.harness == CLAUDE_CODE else agent_title(session.harness)
    facts = [session.id, agent, place, session.project, session.branch, span, turns]
    title = one_line(session.title) or "(without words)"
    line = " · ".join(one_line(fact) for fact in facts if fact)
    return [look.bold(clipped(title, look.width)), *map(look.dim, textwrap.wrap(line, look.width))]


def _goes_on(before: ShownTurn, turn: ShownTurn) -> bool:
    """Return whether a turn continues the same message, so that its speaker is not printed again."""
    same = before.role == turn.role and before.tool == turn.tool and before.subagent == turn.subagent
    return same and before.message_id is not None and before.message_id == turn.message_id and not turn.focus


def _speaker_line(turn: ShownTurn, harness: str | None, now: int, look: Look) -> str:
    parts = [] if turn.timestamp is None else [clock(turn.timestamp, now)]
    parts += [one_line(part) for part in file_words(turn.file) if part]
    if turn.subagent:
        parts.append(f"subagent {one_line(turn.subagent)}")
    if turn.copied:
        parts.append("from the session that this one forks")
    mark = look.mark("▶") if turn.focus else look.dim("●")
    tail = "".join(f" · {part}" for part in parts)
    return f"{mark} {look.name(speaker(turn.role, turn.tool, harness))}{look.dim(tail)}"


def _body(turn: ShownTurn, look: Look, *, brief: bool) -> list[str]:
    text = harmless(turn.text.replace("\r\n", "\n")).expandtabs(4).rstrip("\n")
    left = ""
    if brief:
        kept = "\n".join(text[:BRIEF_CHARACTERS].split("\n")[:BRIEF_LINES])
        if len(kept) < len(text):
            left = f"… {len(text) - len(kept):,} more characters: crystal show {hit_name(turn.hit)}"
            text = kept
    lines = text.split("\n")
    if turn.role in BRIEF_ROLES:
        lines = [look.dim(line) for line in lines]
    if turn.full_length > len(turn.text) and not left:
        left = f"… the whole has {turn.full_length:,} characters: crystal show {hit_name(turn.hit)} --raw"
    return [*lines, look.dim(left)] if left else lines


# ------------------------------------------------------------------------------------------------------------ list


def sessions(
    project: OnlyProject = None,
    agent: OnlyAgent = None,
    since: Annotated[str | None, option("Only those that went on since: 24h, 7d, 2026-11-20 ...", "TIME")] = None,
    before: Annotated[str | None, option("Only those that began before: today, 2026-11-20 ...", "TIME")] = None,
    limit: Limit = "20",
    as_json: AsJson = False,
) -> None:
    """List sessions, newest first: when, how many turns, where, what about, and the id for `crystal show`."""
    with open_reader() as machine:
        now, count = machine.now(), whole_number(limit, "--limit")
        start, end = time_span(now, since, before)
        folder = project_value(machine, project)
        found, notes = list_sessions(machine.stores, project=folder, agent=agent, since=start, before=end, limit=count)
        notes = (*notes, *mirror_notes(machine.mirror, now))
    lines = _lines(found, now, render.look_of(sys.stdout)) if found else []
    narrowed = any(one is not None for one in (project, agent, since, before))
    nothing = "no sessions", "widen the filters" if narrowed else "import past sessions: crystal backfill"
    every = {"notes": notes, "sessions": record(found)}
    answer(every, lines, as_json=as_json, notes=notes, nothing=None if notes else nothing)


def _lines(found: list[SessionSummary], now: int, look: Look) -> list[str]:
    most_project, most_branch = (24, 20) if look.width >= PIPE_WIDTH else (14, 0)  # the title needs the rest
    rows = [
        (
            ident,
            clock(one.last_at, now),
            f"{one.turns:,}",
            "" if one.harness == CLAUDE_CODE else agent_title(one.harness).removesuffix(" CLI"),
            clipped(one_line(one.project or ""), most_project),
            clipped(one_line(shown_branch(one.branch) or ""), most_branch) if most_branch else "",
        )
        for one, ident in zip(found, _short_ids([one.id for one in found]), strict=True)
    ]
    wide = [max(map(cells, column)) for column in zip(*rows, strict=True)]
    return [_line(one.title or "", row, wide, look) for one, row in zip(found, rows, strict=True)]


def _line(title: str, row: Sequence[str], wide: Sequence[int], look: Look) -> str:
    """Return a session's line in the list: its columns and its title."""
    fields = [padded(one, width) for one, width in zip(row, wide, strict=True)]
    fields[2] = row[2].rjust(wide[2])
    used = sum(cells(field) + 2 for field in fields if field)
    coloured = (look.name(fields[0]), *map(look.dim, fields[1:4]), fields[4], look.dim(fields[5]))
    shown = clipped(one_line(title) or "(without words)", max(24, look.width - used))
    return "  ".join((*filter(None, coloured), look.bold(shown))).rstrip()


def _short_ids(ids: list[str]) -> list[str]:
    """Return distinct prefixes of ids, at least eight characters long."""
    length = SHORT_ID
    while len({one[:length] for one in ids}) < len(set(ids)):
        length += 4
    return [harmless(one[:length]) for one in ids]
