"""Find what cured an error: what was done between a command that failed and its next run that succeeded."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

from crystal.model.named_tuple import NamedTuple
from crystal.work.calls import MAX_COMMAND, command_key, file_name
from crystal.work.command_ranking import all_steps

MAX_COMMANDS = 3


class WorkStep(NamedTuple):
    """A call of the work index; ``key`` is what runs of one command have in common."""

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
    """Return what cured an error of a command; None if nothing is known to.

    Args:
        failed: The command.
        again: The turns of all commands that failed with this error.
        file: The file that the error is about, by its own name; None if it names none.
        after: What the agent did after it, in order.
    """
    between = list[WorkStep]()
    for step in after:
        is_prepared = _runs_at_last(step, failed)
        if (is_prepared or (not step.is_edit and step.key == failed.key)) and step.exit is not None:
            if step.turn in again:
                return None  # it was not cured yet: that failure is known, too
            if not step.exit:
                done = _done(failed, file, [*between, step] if is_prepared else between)
                return Cure(done, step) if done else None
        between.append(step)
    return None


def _runs_at_last(step: WorkStep, failed: WorkStep) -> bool:
    """Return whether a command runs others, and then the one that failed if they succeeded."""
    key, is_whole = command_key(failed.what), len(failed.what) < MAX_COMMAND
    return not step.is_edit and is_whole and command_key(step.what).endswith(f" && {key}")


def _done(failed: WorkStep, file: str | None, between: Sequence[WorkStep]) -> list[WorkStep]:
    """Return the edits of the file that the error is about, or that the command names if the error is about none.

    Without any edit, return the last commands that did something.
    """
    edits, run = [step for step in between if step.is_edit], set(all_steps(failed.what))
    if edits:
        words = re.split(r"[\s=]", command_key(failed.what))
        named = set[str]() if re.search(r"[;&|]", " ".join(words)) else set(map(file_name, words))  # it is one command
        return [step for step in edits if file_name(step.what) in ({file} if file else named)]
    done = [step for step in between if step.exit == 0 and not set(all_steps(step.what)) <= run]
    return done[-MAX_COMMANDS:]
