"""Implement ``crystal forget``: preview a deletion, confirm it, delete for good."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import astuple
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from crystal.app.context import open_writer, this_home
from crystal.cli.confirm import ask
from crystal.cli.json_output import answer
from crystal.cli.last_search import named_to_delete
from crystal.cli.options import AsJson, Yes, argument, flag, option
from crystal.cli.progress import steps_shown
from crystal.cli.render import clipped, count_words, first_of, hint, look_of, one_line, say, size_words, speaker
from crystal.config.paths import absolute
from crystal.errors import UsageError
from crystal.forgetting.request import ForgetItem, ForgetPlan, ForgetRequest, Forgotten
from crystal.model.capture import hit_name
from crystal.timewords.parse import clock, parse_when

if TYPE_CHECKING:
    from crystal.app.context import Machine
    from crystal.forgetting.prove.prove import ForgetProof

EXIT_NOTHING = 1
SHOWN = 20
REASONS = {
    "same-text": "says the same",
    "quote": "quotes it",
    "remembered": "asked to remember it",
    "summary": "a summary of the conversation after it",
    "bookkeeping": "the client's own note that repeats it",
    "copy": "a copy",
}
"""Reasons why items are deleted that the request did not name."""


def forget(
    targets: Annotated[
        list[str] | None, argument("Memories (mem-...), hits (@2, h17), ids of lines.", "TARGET")
    ] = None,
    *,
    query: Annotated[
        str | None, option('Everything with all these words; "quoted words" as a phrase.', "WORDS")
    ] = None,
    session: Annotated[str | None, option("A whole session: its id, or the beginning of it.", "ID")] = None,
    project: Annotated[str | None, option("A whole project: its name, or a folder.", "PROJECT")] = None,
    before: Annotated[str | None, option("Everything older than this: 2026-05-01, 90d.", "TIME")] = None,
    key: Annotated[str | None, option("The memory with this key.", "KEY")] = None,
    keep_memories: Annotated[bool, flag("Keep memories.", "--keep-memories")] = False,
    dry_run: Annotated[bool, flag("Only show what would be forgotten.", "--dry-run")] = False,
    yes: Yes = False,
    prove: Annotated[bool, flag("Then search every file for leftovers.", "--prove")] = False,
    as_json: AsJson = False,
) -> None:
    """Forget messages, memories, sessions or projects for good. Shows first what will be deleted; cannot be undone.

    Several options narrow each other. To hide a memory and bring it back later: crystal memories deprecate.

    Exit code 0: forgotten here (or, with --dry-run, something would be). 1: nothing was found. 6: --prove found
    something that is left.
    """
    from crystal.app.forget import plan_forget

    with open_writer() as machine:
        until = None if before is None else parse_when(before, now=machine.now(), name="before")
        named = [named_to_delete(machine.places.data_dir, one) for one in targets or ()]
        request = ForgetRequest(tuple(named), query, session, _folder_or_name(project), until, key, keep_memories)
        with steps_shown() as progress:
            plan = plan_forget(machine, request, progress)
        if plan.is_empty or dry_run:
            answer(_as_json(plan), _preview(plan, machine.now()), as_json=as_json)
            if plan.is_empty:
                raise typer.Exit(EXIT_NOTHING)
            return
        _forget(machine, plan, yes=yes, prove=prove, as_json=as_json)


def _forget(machine: Machine, plan: ForgetPlan, *, yes: bool, prove: bool, as_json: bool) -> None:
    """Forget what a plan lists, once the user has agreed, and print what was done.

    Raises:
        NotProvedError: Something is left.
    """
    from crystal.app.forget import execute_and_prove, execute_plan
    from crystal.forgetting.prove.prove import NotProvedError

    stream = sys.stdout if sys.stdout.isatty() and not as_json else sys.stderr
    plan = _whole_plan(machine, plan, None if yes else stream)
    with steps_shown() as progress:
        done, proof = (
            execute_and_prove(machine, plan, progress) if prove else (execute_plan(machine, plan, progress), None)
        )
    seen = _preview_lines(plan, machine.now(), look_of(stream).width) if yes else ()
    proved = () if proof is None else proof_words(proof, {str(path) for path in plan.still_held[:SHOWN]})
    answer(_as_json(plan, done, proof), [*seen, *outcome(done), *proved], as_json=as_json)
    if proof is not None and not proof.proved:
        raise NotProvedError(
            f"{proof.files} files were searched: something is left in {len(proof.traces)} places,"
            f" {len(proof.unread)} could not be read",
            hint="they are listed above; to clean the rest: crystal sync",
        )


def _whole_plan(machine: Machine, plan: ForgetPlan, ask_on: TextIO | None) -> ForgetPlan:
    """Return the plan with all repetitions; show it on a stream and ask about it, unless that is None."""
    from crystal.app.forget import complete_plan

    if ask_on is not None:
        if not sys.stdin.isatty():
            raise UsageError(
                "crystal asks before it forgets, but there is no terminal",
                hint="look with --dry-run, then run it again with --yes",
            )
        say(*_preview_lines(plan, machine.now(), look_of(ask_on).width), stream=ask_on)
        ask("forget all of it for good?", "nothing was forgotten")
    with steps_shown() as progress:
        whole = complete_plan(machine, plan, progress)
    more = whole.lines_beyond(plan)
    if ask_on is not None and more:
        head = "more messages have the words, in a part of a long output that search does not show:"
        say(head, *_listed(list(more), machine.now(), look_of(ask_on).width), stream=ask_on)
        ask("forget these, too? (no: nothing is forgotten)", "nothing was forgotten")
    return whole


def _folder_or_name(project: str | None) -> str | None:
    """Return a project as typed, but a relative folder as an absolute path."""
    if project is None or not project.startswith((".", "~")):
        return project
    return str(absolute(project, this_home(), name="project"))


def _preview(plan: ForgetPlan, now: int) -> Iterator[str]:
    width = look_of(sys.stdout).width
    if not plan.is_empty:
        yield from (*_preview_lines(plan, now, width), "nothing was forgotten: this is a preview")
        return
    say("crystal: nothing matches, nothing was forgotten", stream=sys.stderr)
    yield from kept_words(plan)
    if plan.suggestions and not plan.source_files:
        yield "no text has all these words; the closest hits are:"
        for hit in plan.suggestions:
            words = f"  {hit_name(hit.id):>8}  {speaker(hit.role, hit.tool, hit.harness)}: {one_line(hit.text)}"
            yield clipped(words, width)
        hint("to forget one of them: crystal forget NUMBER")


# ---------------------------------------------------------------------------------------------------------- preview


def _preview_lines(plan: ForgetPlan, now: int, width: int) -> Iterator[str]:
    yield _counted(plan, now)
    yield from _listed([item for item in plan.items if item.because not in REASONS], now, width)
    if others := [item for item in plan.items if item.because in REASONS]:
        yield "the same text elsewhere will go too:"
        yield from _listed(others, now, width)
    if plan.is_brief:
        yield "after you confirm, crystal looks for repetitions and deletes them too"
    if len(plan.devices) > 1 or plan.items:
        yield f"said on: {', '.join(one_line(device) for device in plan.devices) or 'an unknown machine'}"
    yield from kept_words(plan)


def _counted(plan: ForgetPlan, now: int) -> str:
    """Return the numbers of items to be forgotten, in one line."""
    counts = Counter("message" if item.kind == "line" else item.kind for item in plan.items)
    named = [count_words(counts[kind], kind) for kind in ("message", "memory", "note") if counts[kind]]
    words = ", ".join(named)
    if plan.unread:
        read = f"{words or 'none'} among those read so far; {plan.unread:,} more are read after you confirm"
        return f"will be forgotten: every message with these words ({read})"
    return f"will be forgotten: {words or 'nothing visible, only data derived from it'}{_when(plan, now)}"


def kept_words(plan: ForgetPlan) -> Iterator[str]:
    """Say which files of others still have it, and which of your sources, in which search still finds it, in lines."""
    if plan.still_held:
        yield "not deleted: files of agents still have it; delete them yourself"
        yield from first_of([one_line(str(path)) for path in plan.still_held], SHOWN)
        if any(path.suffix == ".md" for path in plan.still_held):
            yield "to delete memories from the .md files: crystal files sync"
        if any(path.suffix == ".zst" for path in plan.still_held):
            yield "the .zst files belong to another crystal home: forget it there"
    if plan.source_files:
        count = count_words(len(plan.source_files), "file")
        yield f"not deleted, and still found: {count} of your sources with these words:"
        yield from first_of([one_line(str(path)) for path in plan.source_files], SHOWN)
        yield "take the words out, or list the files in .crystalignore, then run: crystal sources sync"


def _when(plan: ForgetPlan, now: int) -> str:
    if plan.first_at is None or plan.last_at is None:
        return ""
    first, last = clock(plan.first_at, now), clock(plan.last_at, now)
    return f", from {first}" if first == last else f", from {first} to {last}"


def _listed(items: list[ForgetItem], now: int, width: int) -> Iterator[str]:
    lines = []
    for item in items[:SHOWN]:
        when = "" if item.timestamp is None else f"{clock(item.timestamp, now)}  "
        words = one_line(item.text) or f"in session {one_line(item.session_id or '')[:8]}"
        reason = f" ({REASONS[item.because]})" if item.because in REASONS else ""
        whole = f" (a message of {item.parts} parts)" if item.parts > 1 else ""
        lines.append(clipped(f"  {when}{speaker(item.role, None, item.harness)}{reason}{whole}: {words}", width))
    for line, alike in groupby(lines):
        count = len(list(alike))
        yield line if count == 1 else f"{line} ({count} times)"
    if len(items) > SHOWN:
        yield f"  and {len(items) - SHOWN:,} more"


# ---------------------------------------------------------------------------------------------------------- outcome


def outcome(done: Forgotten) -> Iterator[str]:
    """Describe what was forgotten, in lines."""
    if done.is_done:
        yield "forgotten: crystal keeps nothing of it on this machine"
    else:
        yield "forgotten: search no longer finds it; to clean the remaining files: crystal sync"
        yield from (f"  {one_line(why)}" for why in done.pending)
    if done.machines:
        yield f"other machines forget it when they next sync: {', '.join(map(one_line, done.machines))}"


def proof_words(proof: ForgetProof, named: Collection[str]) -> Iterator[str]:
    """Describe a proof in lines; ``named`` are the agents' files already shown."""
    looked = f"{count_words(proof.files, 'file')}, {size_words(proof.bytes)}"
    if proof.proved:
        yield f"proved: searched every byte of {looked}; nothing of it is left"
    else:
        yield f"not proved: searched {looked}"
    yield from (f"  found: {one_line(trace.file)} at byte {trace.offset} ({trace.kind})" for trace in proof.traces)
    yield from (f"  not read: {one_line(one.file)}: {one_line(one.why)}" for one in proof.unread)
    if proof.by_rows_only:
        yield f"  {proof.by_rows_only} of {proof.texts} texts have no words to search for; their rows are gone"
    yield from (
        f"  not deleted, because crystal does not change this file: {one_line(path)}"
        for path in proof.transcripts
        if path not in named
    )


# ------------------------------------------------------------------------------------------------------------- JSON


ITEM_KEYS = "kind id because role text session project device at memory harness parts".split()
DONE_KEYS = "messages memories notes tombstones done pending machines".split()


def _as_json(plan: ForgetPlan, done: Forgotten | None = None, proof: ForgetProof | None = None) -> dict[str, Any]:
    return {
        "found": not plan.is_empty,
        "token": plan.token,
        "items": [dict(zip(ITEM_KEYS, astuple(item), strict=True)) for item in plan.items],
        "sessions": list(plan.sessions),
        "devices": list(plan.devices),
        "unread": plan.unread,
        "still_held": [str(path) for path in plan.still_held],
        "source_files": [str(path) for path in plan.source_files],
        "suggestions": [{"hit": hit.id, "role": hit.role, "text": hit.text} for hit in plan.suggestions],
        "forgotten": None if done is None else dict(zip(DONE_KEYS, astuple(done), strict=True)),
        "proof": None if proof is None else proof.as_dict(),
    }
