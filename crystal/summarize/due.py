"""Write due summaries: one Markdown file per session, updated in place as the session grows.

The file is written first, and recorded in the same transaction: after a crash between them the same file is written
again. A model is called before, outside of any transaction, and only after its price was reserved.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from crystal.config.paths import make_private_dir, write_private
from crystal.errors import CrystalError, TextRefusedError, UnavailableError
from crystal.llm.ask import InvalidAnswerError, PaidModel, retry_at
from crystal.store import Store
from crystal.store.problems import clear_problem, find_problem, record_problem
from crystal.store.sessions import sessions
from crystal.store.sessions.conversations import Session
from crystal.summarize.actions import session_actions
from crystal.summarize.llm import CHARACTERS, ROLES, build_prompt, parse_answer
from crystal.summarize.markdown import SummaryText, new_summary_path, render
from crystal.summarize.simple import summarize_simply

PART = "summary"
"""Row in ``problems`` with the reason why models are not used at the moment."""

FILE_PART = "summary file"
"""Row in ``problems`` with the reason why a file could not be written."""

MAX_AGAIN = 1000
MAX_BAD_ANSWERS = 3
"""Invalid answers in a row after which the model is paused, because each one costs."""

# Characters read of one turn and of a session, for simple summaries and for models.
_EACH, _TOTAL = 8_000, 2_000_000
_MODEL_TOTAL = 400_000
_OWN_PATH = re.compile(r"sessions/[A-Za-z0-9_-]{1,200}\.md")


@dataclass(slots=True)
class SummaryReport:
    """Result of one run: summaries by a model, simple ones, simple ones despite a configured model; and failures."""

    llm: int = 0
    simple: int = 0
    deferred: int = 0
    failed: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def written(self) -> int:
        """Number of files written."""
        return self.llm + self.simple + self.deferred


@dataclass(slots=True)
class _Job:
    """Values shared by all sessions of a run, and whether the model is still used."""

    store: Store
    agent_folder: Callable[[str], Path]
    paid: PaidModel | None
    now: int
    may_send: Callable[[Session], bool]
    report: SummaryReport = field(default_factory=SummaryReport)
    instead: str | None = None
    bad_answers: int = 0


def summarize_due(
    store: Store,
    *,
    agent_folder: Callable[[str], Path],
    paid: PaidModel | None,
    now: int,
    idle_ms: int,
    limit: int = 50,
    may_send: Callable[[Session], bool] = lambda _: True,
    should_stop: Callable[[], bool] = lambda: False,
) -> SummaryReport:
    """Write the summary of every session that has ended or is idle, and has turns not covered by its summary.

    Once the model works, sessions that got a simple summary instead follow.

    Args:
        store: The store, open for writing, in no transaction.
        agent_folder: Gives an agent's folder by its id.
        paid: The model, with what it may cost; None for simple summaries.
        now: The time, ms.
        idle_ms: Minimum idle time of a session that has not ended.
        limit: Maximum number of sessions.
        may_send: Whether the model may be sent a session; if not, its summary is a simple one.
        should_stop: Checked before every session.
    """
    job = _Job(store, agent_folder, paid, now, may_send)
    if paid is None:
        clear_problem(store, PART)
    elif (resting := find_problem(store, PART)) and (resting.retry_at or 0) > now:
        job.instead = resting.message
    _write_all(job, sessions.due_sessions(store, now=now, idle_ms=idle_ms, limit=limit), should_stop)
    if paid is not None and job.instead is None and job.report.written < limit:
        waiting = sessions.sessions_summarized_as(store, ["deferred"], limit=limit - job.report.written)
        _write_all(job, waiting, lambda: job.instead is not None or should_stop())
    return job.report


def summarize_again(
    store: Store,
    *,
    agent_folder: Callable[[str], Path],
    paid: PaidModel,
    now: int,
    may_send: Callable[[Session], bool] = lambda _: True,
) -> SummaryReport:
    """Let the model write the summaries that it has not written, newest first, until it fails or the cap is reached.

    Ignores the waiting time of an earlier failure, because the user asked for it.
    """
    job = _Job(store, agent_folder, paid, now, may_send)
    unwritten = sessions.sessions_summarized_as(store, ["simple", "deferred"], limit=MAX_AGAIN)
    _write_all(job, unwritten, lambda: job.instead is not None)
    return job.report


def summarize_anew(store: Store, session_ids: Sequence[str], *, agent_folder: Callable[[str], Path], now: int) -> None:
    """Write simple summaries of some sessions again, from what is left in them; no model is called."""
    job = _Job(store, agent_folder, None, now, lambda _: False)
    named = [sessions.session_named(store, session) for session in session_ids]
    _write_all(job, [session for session in named if session is not None and session.last_turn], lambda: False)


def is_due(store: Store, *, now: int, idle_ms: int) -> bool:
    """Return True if ``summarize_due`` has work, or a model may be tried again. Cheap."""
    if sessions.due_sessions(store, now=now, idle_ms=idle_ms, limit=1):
        return True
    problem = find_problem(store, PART)
    rests = problem is not None and (problem.retry_at or 0) > now
    return not rests and bool(sessions.sessions_summarized_as(store, ["deferred"], limit=1))


def _write_all(job: _Job, many: Sequence[Session], should_stop: Callable[[], bool]) -> None:
    for session in many:
        if should_stop():
            return
        try:
            _write(job, session)
        except CrystalError as error:
            job.report.failed += 1
            job.report.problems.append(error.message)
            record_problem(job.store, FILE_PART, error.message, job.now)
            if isinstance(error, UnavailableError):  # the disk or the store: the next session would fail too
                return
        else:
            clear_problem(job.store, FILE_PART)


def _write(job: _Job, session: Session) -> None:
    """Write one session's file and record it, unless another process was faster or the session is gone."""
    folder = job.agent_folder(session.agent)
    fixed = sessions.summarizable(job.store, session, new_summary_path(session))
    if fixed is None:
        return
    path = folder / (fixed if _OWN_PATH.fullmatch(fixed) else new_summary_path(session))
    make_private_dir(path.parent)
    text, mode = _text_of(job, session)
    content = render(
        session,
        sessions.count_turns(job.store, session.id),
        text,
        session_actions(sessions.read_calls(job.store, session.id), below=session.git_root or session.cwd),
        model=job.paid.model.model if mode == "llm" and job.paid else None,
        instead=job.instead if mode == "deferred" else None,
    )
    with job.store.transaction():
        if not sessions.mark_summarized(job.store, session, mode, text.title):
            return
        write_private(path, content.encode("utf-8", "replace"))
    setattr(job.report, mode, getattr(job.report, mode) + 1)


def _text_of(job: _Job, session: Session) -> tuple[SummaryText, sessions.SummaryMode]:
    paid = job.paid if job.paid is not None and job.may_send(session) else None
    mode: sessions.SummaryMode = "simple" if paid is None else "deferred"
    if paid is not None and job.instead is None:
        try:
            text = _ask(job, paid, session)
        except CrystalError as error:
            # Not asked again until the session grows: the answer was paid for, or the text is refused again.
            is_useless = isinstance(error, InvalidAnswerError | TextRefusedError)
            mode = "simple" if is_useless else mode
            job.bad_answers += is_useless
            rests = not is_useless or job.bad_answers >= MAX_BAD_ANSWERS
            record_problem(
                job.store, PART, error.message, job.now, retry_at(job.store, PART, error, job.now) if rests else None
            )
            job.report.problems.append(error.message)
            job.instead = error.message if rests else None
        else:
            job.bad_answers = 0
            clear_problem(job.store, PART)
            return text, "llm"
    said = sessions.read_said(job.store, session.id, ("user", "assistant"), each=_EACH, total=_TOTAL)
    if not said:
        said = sessions.read_said(job.store, session.id, ("subagent", "summary"), each=_EACH, total=_TOTAL)
    return summarize_simply(said, title=session.given_title, session_id=session.session_id), mode


def _ask(job: _Job, paid: PaidModel, session: Session) -> SummaryText:
    said = sessions.read_said(job.store, session.id, ROLES, each=max(CHARACTERS.values()), total=_MODEL_TOTAL)
    completion = paid.ask(build_prompt(session, said), job.now)
    return parse_answer(completion.text, title=session.given_title)
