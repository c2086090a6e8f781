"""Write due summaries: one Markdown file per session, updated in place as the session grows.

The file is written first, and recorded in the same transaction: after a crash between them the same file is written
again. A model is called earlier, outside of any transaction, and only after its price was reserved.
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
from crystal.store.problems import clear_problem, find_waiting_retry, record_problem
from crystal.store.sessions import sessions, waiting
from crystal.store.sessions.conversations import Session
from crystal.summarize.actions import session_actions
from crystal.summarize.llm import CHARACTERS, ROLES, build_prompt, parse_answer
from crystal.summarize.markdown import SummaryText, new_summary_path, render
from crystal.summarize.simple import summarize_simply

PART = "summary"
"""Row in ``problems`` with the reason why no model is used at present."""

FILE_PART = "summary file"
"""Row in ``problems`` with the reason why a file could not be written."""

MAX_DUE = 100_000
"""Maximum number of sessions in one run. Its time limit usually ends it earlier."""
MAX_AGAIN = 1000
MAX_BAD_ANSWERS = 3
"""Number of consecutive invalid answers after which the model is paused, because each answer costs money."""

# Characters read of one turn and of a session, for simple summaries and for models.
_EACH, _TOTAL = 8_000, 2_000_000
_MODEL_TOTAL = 400_000
_OWN_PATH = re.compile(r"sessions/[A-Za-z0-9_-]{1,200}\.md")


@dataclass(slots=True)
class SummaryReport:
    """Result of one run: numbers of summaries by a model, simple ones, simple ones instead of a model's; failures."""

    llm: int = 0
    simple: int = 0
    deferred: int = 0
    failed: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def written(self) -> int:
        """Return the number of files written."""
        return self.llm + self.simple + self.deferred


@dataclass(slots=True)
class SummaryRun:
    """Writes the summaries of sessions.

    Attributes:
        store: The store, open for writing, in no transaction.
        agent_folder: Returns an agent's folder by its id.
        paid: The model, with its cost limit; None for simple summaries.
        now: The time, ms.
        may_send: Returns whether a session may be sent to the model; if not, its summary is a simple one.
        report: The result so far.
        instead: Why the model is no longer used, or None.
        bad_answers: How many of its last answers in a row were invalid.
    """

    store: Store
    agent_folder: Callable[[str], Path]
    paid: PaidModel | None
    now: int
    may_send: Callable[[Session], bool] = lambda _: True
    report: SummaryReport = field(default_factory=SummaryReport)
    instead: str | None = None
    bad_answers: int = 0

    def write_due(self, idle_ms: int, should_stop: Callable[[], bool] = lambda: False) -> SummaryReport:
        """Write the summary of every session that has ended or is idle, and has turns not covered by its summary.

        Once the model works again, sessions with a simple summary in its place are summarized too.

        Args:
            idle_ms: Minimum idle time of a session that has not ended.
            should_stop: Checked before every session.
        """
        if self.paid is None:
            clear_problem(self.store, PART)
        elif resting := find_waiting_retry(self.store, PART, self.now):
            self.instead = resting.message
        self._write_all(sessions.due_sessions(self.store, now=self.now, idle_ms=idle_ms, limit=MAX_DUE), should_stop)
        if self.paid is not None and self.instead is None:
            deferred = sessions.sessions_summarized_as(self.store, ["deferred"], limit=MAX_DUE)
            self._write_all(deferred, lambda: self.instead is not None or should_stop())
        return self.report

    def write_again(self) -> SummaryReport:
        """Let the model write the summaries that are not by a model, newest first, until it fails or reaches its cap.

        Ignores the waiting time of an earlier failure, because the user requested it.
        """
        unwritten = sessions.sessions_summarized_as(self.store, ["simple", "deferred"], limit=MAX_AGAIN)
        self._write_all(unwritten, lambda: self.instead is not None)
        return self.report

    def write_anew(self, session_id: str) -> None:
        """Write the summary of a session from its remaining turns."""
        session = sessions.session_named(self.store, session_id)
        self._write_all([session] if session is not None and session.last_turn else [], lambda: False)

    def _write_all(self, many: Sequence[Session], should_stop: Callable[[], bool]) -> None:
        for session in many:
            if should_stop():
                return
            try:
                self._write(session)
            except CrystalError as error:
                self.report.failed += 1
                self.report.problems.append(error.message)
                record_problem(self.store, FILE_PART, error.message, self.now)
                if isinstance(error, UnavailableError):  # the disk or the store: the next session would fail too
                    return
            else:
                clear_problem(self.store, FILE_PART)

    def _write(self, session: Session) -> None:
        """Write one session's file and record it, unless another process was faster or the session is gone."""
        folder = self.agent_folder(session.agent)
        fixed = sessions.summarizable(self.store, session, new_summary_path(session))
        if fixed is None:
            return
        path = folder / (fixed if _OWN_PATH.fullmatch(fixed) else new_summary_path(session))
        make_private_dir(path.parent)
        text, mode = self._text_of(session)
        content = render(
            session,
            sessions.count_turns(self.store, session.id),
            text,
            session_actions(sessions.read_calls(self.store, session.id), below=session.git_root or session.cwd),
            model=self.paid.model.model if mode == "llm" and self.paid else None,
            instead=self.instead if mode == "deferred" else None,
        )
        with self.store.transaction():
            if not sessions.mark_summarized(self.store, session, mode, text.title):
                return
            write_private(path, content.encode("utf-8", "replace"))
        setattr(self.report, mode, getattr(self.report, mode) + 1)

    def _text_of(self, session: Session) -> tuple[SummaryText, sessions.SummaryMode]:
        paid = self.paid if self.paid is not None and self.may_send(session) else None
        mode: sessions.SummaryMode = "simple" if paid is None else "deferred"
        if paid is not None and self.instead is None:
            try:
                text = self._ask(paid, session)
            except CrystalError as error:
                # Not asked again until the session grows: the answer was paid for, or the text would be refused again.
                is_useless = isinstance(error, InvalidAnswerError | TextRefusedError)
                mode = "simple" if is_useless else mode
                self._note_failure(error, is_useless=is_useless)
            else:
                self.bad_answers = 0
                clear_problem(self.store, PART)
                return text, "llm"
        for roles in (("user", "assistant"), ("subagent", "summary")):
            said = sessions.read_said(self.store, session.id, roles, each=_EACH, total=_TOTAL)
            if said:
                break
        return summarize_simply(said, title=session.given_title, session_id=session.session_id), mode

    def _note_failure(self, error: CrystalError, *, is_useless: bool) -> None:
        """Record why there is no answer; pause the model, unless only a few answers were useless."""
        self.bad_answers += is_useless
        rests = not is_useless or self.bad_answers >= MAX_BAD_ANSWERS
        until = retry_at(self.store, PART, error, self.now) if rests else None
        record_problem(self.store, PART, error.message, self.now, until)
        self.report.problems.append(error.message)
        self.instead = error.message if rests else None

    def _ask(self, paid: PaidModel, session: Session) -> SummaryText:
        said = sessions.read_said(self.store, session.id, ROLES, each=max(CHARACTERS.values()), total=_MODEL_TOTAL)
        completion = paid.ask(build_prompt(session, said), self.now)
        return parse_answer(completion.text, title=session.given_title)


def is_due(store: Store, *, now: int, idle_ms: int) -> bool:
    """Return True if ``SummaryRun.write_due`` has work, or a model may be tried again. Fast."""
    if waiting.count_due(store, now=now, idle_ms=idle_ms):
        return True
    return waiting.is_any_deferred(store) and find_waiting_retry(store, PART, now) is None
