"""Find the cure of an error: the work between a command that failed and its next run that succeeded."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from itertools import islice, takewhile

from crystal.model.named_tuple import NamedTuple
from crystal.work.calls import MAX_COMMAND, command_key, file_name
from crystal.work.command_ranking import all_steps

MAX_COMMANDS = 3
MAX_TRIES = 4
"""Number of commands after one with a wrong option that are searched for the right usage."""
_SUBCOMMAND = re.compile(r"[a-z][a-z-]*")


class WorkStep(NamedTuple):
    """A call of the work index; ``key`` is equal for all runs of one command."""

    turn: int
    part: int
    is_edit: bool
    what: str
    key: int
    exit: int | None


class Cure(NamedTuple):
    """A cure: the work that was done, and the run that then succeeded."""

    done: Sequence[WorkStep]
    succeeded: WorkStep


def find_cure(failed: WorkStep, again: Collection[int], file: str | None, after: Iterable[WorkStep]) -> Cure | None:
    """Return the cure of a command's error; None if none is known.

    The error is cured once the command succeeds, or a command that ends with it, or the last part of it alone.

    Args:
        failed: The command that failed.
        again: The turns of all commands that failed with this error.
        file: The name of the file that the error is about; None if it names no file.
        after: The agent's calls after it, in order.
    """
    between = list[WorkStep]()
    for step in after:
        is_prepared, is_part = _runs_at_last(step, failed), _runs_at_last(failed, step)
        if (is_prepared or is_part or (not step.is_edit and step.key == failed.key)) and step.exit is not None:
            if step.turn in again:
                return None  # it was not cured yet: that failure is known, too
            if not step.exit:
                done = _done(failed, file, [*between, step] if is_prepared else between)
                return Cure(done, step) if done else None
        between.append(step)
    return None


def find_right_usage(failed: WorkStep, after: Iterable[WorkStep]) -> Cure | None:
    """Return the run of the same program, soon after one with a wrong option, that lacks an option and succeeded."""
    key = command_key(failed.what)
    for step in [] if re.search(r"[;&|]", key) else islice(after, MAX_TRIES):
        if step.is_edit:
            return None
        other = command_key(step.what)
        options = {word for word in key.split() if word.startswith("-")} - set(other.split())
        if step.exit == 0 and options and _is_same_program(key, other):
            return Cure([step], step)
    return None


def _is_same_program(one: str, other: str) -> bool:
    """Return True if the program and subcommands of one command begin with those of the other."""
    some, more = sorted((_program(one), _program(other)), key=len)
    return bool(some) and more[: len(some)] == some


def _program(key: str) -> list[str]:
    return [*takewhile(_SUBCOMMAND.fullmatch, key.split()[:3])]


def _runs_at_last(step: WorkStep, last: WorkStep) -> bool:
    """Return True if a command ends in ``&& LAST``, where LAST is the other command."""
    is_whole = not (step.is_edit or last.is_edit) and len(last.what) < MAX_COMMAND
    return is_whole and command_key(step.what).endswith(f" && {command_key(last.what)}")


def _done(failed: WorkStep, file: str | None, between: Sequence[WorkStep]) -> list[WorkStep]:
    """Return the edits of the file that the error names; if it names no file, of the files that the command names.

    If nothing was edited, return the last commands that did more than read.
    """
    edits, run = [step for step in between if step.is_edit], set(all_steps(failed.what))
    if edits:
        words = re.split(r"[\s=]", command_key(failed.what))
        named = set[str]() if re.search(r"[;&|]", " ".join(words)) else set(map(file_name, words))  # it is one command
        return [step for step in edits if file_name(step.what) in ({file} if file else named)]
    done = [step for step in between if step.exit == 0 and not set(all_steps(step.what)) <= run]
    return done[-MAX_COMMANDS:]
