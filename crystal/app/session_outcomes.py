"""Describe the outcome of a session: the last reason or the last answer, what it edited, and what still failed."""

from __future__ import annotations

from collections.abc import Sequence

from crystal.assist.decisions import find_reason
from crystal.assist.facts import id_of, reason_topic
from crystal.context.choosing import SessionOutcome
from crystal.model.capture import Memory
from crystal.store import Store
from crystal.store.sessions.conversations import Session, last_answer
from crystal.store.work.queries import calls, steps_of_session
from crystal.summarize.simple import first_words
from crystal.work.calls import command_key, file_name
from crystal.work.command_ranking import steps
from crystal.work.cures import WorkStep

MAX_EDITS = 3
"""Edits before which a reason is looked for, the latest."""
MIN_SAID, MAX_SAID = 20, 160
"""Characters of the reason or answer; "Done." tells nothing."""


def outcome_of(store: Store, session: Session, memory: Memory, secret: bytes) -> SessionOutcome:
    """Return what came of a session of a store; ``secret`` is the key of the ids of facts.

    Only words of the assistant, commands that ran and files that were edited: no tool's output.
    """
    done = steps_of_session(store, session.id)
    edits = [step for step in done if step.is_edit]
    files = [*dict.fromkeys(file_name(step.what) for step in reversed(edits))]
    known = calls(store, {step.turn for step in edits[-MAX_EDITS:]}, memory)
    given = [find_reason(known[turn].reason) for turn in sorted(known, reverse=True)]
    reason = next(filter(None, given), None)
    said = first_words(reason or last_answer(store, session.id) or "", MAX_SAID)
    fact = "" if reason is None else id_of(reason_topic(session.session_id, reason), secret)
    return SessionOutcome(said if len(said) >= MIN_SAID else "", fact, _still_failing(done), tuple(files))


def _still_failing(done: Sequence[WorkStep]) -> str:
    """Return the last command that ran if it failed, else an empty text."""
    ran = (step for step in reversed(done) if not step.is_edit and step.exit is not None and steps(step.what))
    last = next(ran, None)
    return command_key(last.what) if last is not None and last.exit else ""
