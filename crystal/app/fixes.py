"""Find the known cures of an error in the work index: the work between a failed command and its next success."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from crystal.app.context import Machine
from crystal.app.file_paths import FilePaths
from crystal.model.capture import Memory
from crystal.model.named_tuple import NamedTuple
from crystal.store import Store
from crystal.store.search.scope import project_ids
from crystal.store.sessions.turn_texts import turn_texts
from crystal.store.work.index import calls_in, hash_for
from crystal.store.work.queries import FailedRun, RecordedCall, calls, failures_with, folders_of, steps_after
from crystal.work.calls import ToolCall
from crystal.work.cures import Cure, WorkStep, find_cure, find_right_usage
from crystal.work.errors import ErrorLine, asked_errors, error_lines, is_wrong_option

MAX_FIXES = 5
MAX_LOOKED_AT = 40
"""Failures with one error after which a cure is looked for, the latest."""
MAX_STEPS = 10
MAX_LINES, MAX_CHARACTERS = 12, 300
"""Maximum lines of an edit that are shown, and characters of each."""


@dataclass(frozen=True, slots=True)
class FixStep:
    """Something that was done: a command, or an edit of a file with the first lines that it added and removed.

    The file is below its project's folder if it is in it: another machine has that folder elsewhere.
    """

    command: str | None
    file: str | None
    added: tuple[str, ...]
    removed: tuple[str, ...]
    call: RecordedCall


@dataclass(frozen=True, slots=True)
class KnownFix:
    """A known cure of an error.

    Attributes:
        error: The line of the error, as it was printed then.
        failures: How many commands are known that failed with it.
        command: The command that failed with it, and succeeded afterwards.
        failed: The run that failed.
        steps: What was done in between: the edits of the file that the error is about, or commands.
        succeeded: The run that succeeded.
    """

    error: str
    failures: int
    command: str
    failed: RecordedCall
    steps: tuple[FixStep, ...]
    succeeded: RecordedCall


class _Cured(NamedTuple):
    """A failure that was cured."""

    printed: ErrorLine
    failures: int
    failed: WorkStep
    cure: Cure

    @property
    def turns(self) -> set[int]:
        return {self.failed.turn, self.cure.succeeded.turn, *(step.turn for step in self.cure.done)}


def fix(machine: Machine, error: str, *, project: str | None = None, is_only: bool = False) -> list[KnownFix]:
    """Return what cured an error, in a project first; if nothing is known there, in all projects.

    An error that seldom came says more than one that came often; then the latest cure comes first.

    Args:
        machine: This machine.
        error: The output of a command, or a line of it.
        project: The project to begin with: its name, or a folder; None for all.
        is_only: The other projects are not searched.
    """
    sought = asked_errors(error)
    for place in (project,) if project is None or is_only else (project, None):
        found = list[KnownFix]()
        for store in machine.stores:
            cured = list(_cured(store, sought, None if place is None else project_ids(store, place)))
            found += _told(store, machine.memory_of(store), cured)
        found.sort(key=lambda one: (-one.failures, one.succeeded.at or 0), reverse=True)
        if found:
            best: dict[tuple[str, str], KnownFix] = {}
            for one in found:
                best.setdefault((one.error, one.failed.session_id), one)
            return list(best.values())[:MAX_FIXES]
    return []


def known_cures(store: Store, memory: Memory, projects: Sequence[int]) -> list[KnownFix]:
    """Return the cures of all errors in projects, with their evidence."""
    return list(_told(store, memory, list(_cured(store, None, projects))))


def _cured(store: Store, sought: Sequence[ErrorLine] | None, projects: Sequence[int] | None) -> Iterator[_Cured]:
    """Yield the failures with any of some errors (None: with any at all) that were cured."""
    hash_of = hash_for(store)
    wanted = None if sought is None else {hash_of(one.plain) for one in sought}
    failures = defaultdict[int, list[FailedRun]](list)
    for failure in failures_with(store, wanted, projects):
        failures[failure.error].append(failure)
    for error, runs in failures.items():
        again = {one.run.turn for one in runs}
        texts = turn_texts(store, [one.result for one in runs[:MAX_LOOKED_AT]])
        for _, result, failed in runs[:MAX_LOOKED_AT]:
            lines = error_lines(texts.get(result, (0, ""))[1])
            printed = next((line for line in lines if hash_of(line.plain) == error), None)
            cure = printed and _cure(printed, failed, again, steps_after(store, failed.turn))
            if printed and cure:
                done = cure.done[:MAX_STEPS]
                yield _Cured(printed, len(runs), failed, cure._replace(done=done))


def _cure(printed: ErrorLine, failed: WorkStep, again: Collection[int], after: Sequence[WorkStep]) -> Cure | None:
    other = find_right_usage(failed, after) if is_wrong_option(printed) else None
    return other or find_cure(failed, again, printed.file, after)


def _told(store: Store, memory: Memory, cured: Sequence[_Cured]) -> Iterator[KnownFix]:
    """Yield the cures as they are shown, without those of which something was forgotten meanwhile."""
    known = calls(store, {turn for one in cured for turn in one.turns}, memory)
    edits = [step.turn for one in cured for step in one.cure.done if step.is_edit]
    made, folders, paths = calls_in(store, edits), folders_of(store, edits), FilePaths(store)
    for one in cured:
        if one.turns <= known.keys():
            files = [paths.inside(step.what, *folders.get(step.turn, (None, None))) for step in one.cure.done]
            steps = [_step(*pair, known[pair[0].turn], made) for pair in zip(one.cure.done, files, strict=True)]
            failed, succeeded = known[one.failed.turn], known[one.cure.succeeded.turn]
            yield KnownFix(one.printed.text, one.failures, one.failed.what, failed, tuple(steps), succeeded)


def _step(step: WorkStep, file: str, call: RecordedCall, made: dict[int, list[ToolCall]]) -> FixStep:
    if not step.is_edit:
        return FixStep(step.what, None, (), (), call)
    edits = made.get(step.turn, [])[step.part : step.part + 1]
    lines = (edits[0].added, edits[0].removed) if edits else ((), ())
    return FixStep(None, file, _short(lines[0]), _short(lines[1]), call)


def _short(lines: Sequence[str]) -> tuple[str, ...]:
    return tuple(line[:MAX_CHARACTERS] for line in lines if line.strip())[:MAX_LINES]
