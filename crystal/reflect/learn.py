"""Write what was learned in one transaction: new memories, confirmations, replacements.

A memory's id derives from the line that it was learned from, so that a line that is read again changes nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from crystal.errors import UsageError
from crystal.memories.rules import CleanText, changed, cleaned_text
from crystal.model.capture import MemoryStatus, Project
from crystal.model.recall import Remembered
from crystal.reflect.compare import Similarity, contradicts, is_same
from crystal.reflect.extract import MIN_RUNS, Lesson
from crystal.reflect.statement_patterns import CATEGORY
from crystal.store import Store
from crystal.store.isolation import source_via
from crystal.store.memories import learned, memories
from crystal.store.memories.learned import DueSession, Evidence, ReflectorRun
from crystal.store.memories.memories import Version

PROPOSED, LEARNED, REVIEWED, REFUSED = learned.LEARNED_WORDS
"""First words of a memory's source: ``PROPOSED`` is hidden until the user accepts it; ``LEARNED`` was kept by mode
``auto``, or if deprecated was called wrong; ``REVIEWED`` was kept by the user; ``REFUSED`` is never learned again. They
reach other machines as every change of a memory does.
"""

Group = tuple[str | None, str | None]
"""Isolated agent and project of a memory; it is compared only with memories of the same group."""
AUTO_CONFIDENCE = 0.9
"""Confidence from which mode ``auto`` keeps a memory without a review; see benchmarks/reflect.py."""
LOW_CONFIDENCE = 0.85
STALE_MS = 90 * 86_400_000
"""Time after which an unreviewed memory of low confidence that nothing confirms is archived."""


@dataclass(frozen=True, slots=True)
class Learner:
    """Destination and rules of the memories that are written.

    Attributes:
        store: The store, open for writing.
        agent, device: Their names on this machine.
        is_auto: True if memories with high confidence are kept without a review.
        key: Key of the ids of commands, which do not derive from a line.
        clean: Redacts secrets.
        similarity: Compares two texts by their vectors.
        isolated: Agents whose conversations others may not see: their memories are compared with each other only.
        projects: The folders of isolated projects, by session; treated in the same way.
    """

    store: Store
    agent: str
    device: str
    is_auto: bool
    key: bytes
    clean: CleanText
    similarity: Similarity
    isolated: frozenset[str] = frozenset()
    projects: Mapping[str, str] = field(default_factory=dict)

    def learn(self, session: DueSession, lessons: Iterable[Lesson], now: int) -> ReflectorRun:
        """Write the lessons of a session. Inside the transaction that moves its cursor."""
        tally = {"extracted": 0, "inserted": 0, "confirmed": 0, "replaced": 0, "skipped": 0}
        for lesson in lessons:
            tally["extracted"] += 1
            for what in self._learn(session, lesson, now):
                tally[what] += 1
        return ReflectorRun(now, **tally)

    def _learn(self, session: DueSession, lesson: Lesson, now: int) -> list[str]:
        text, uid = self._cleaned(lesson.text), self._id_of(lesson)
        if text is None or memories.is_forgotten(self.store, uid):
            return ["skipped"]
        new = self._memory(uid, text, session, lesson, now)
        known = memories.memory_of(self.store, uid)
        known = known or (self._known_run(lesson) if lesson.is_run else self._find_same(new))
        if known is None:
            is_worth_it = not lesson.is_run or self._has_often_worked(session, lesson, uid)
            return self._add(session, lesson, new, now) if is_worth_it else []
        if is_known(known) or known.source.startswith(REFUSED):
            return self._confirm(session, lesson, known, now)
        if known.id == uid or lesson.is_run or known.updated_at >= lesson.at:
            return ["skipped"]  # it was called wrong after it was said
        return self._add(session, lesson, new, now)

    def _memory(self, uid: str, text: str, session: DueSession, lesson: Lesson, now: int) -> Remembered:
        """Return the memory for a lesson; it is not stored yet."""
        is_kept, place = self._is_sure(lesson.confidence), _place_of(lesson)
        source = source_via(LEARNED if is_kept else PROPOSED, session.harness)
        at = max(0, min(lesson.at or now, now))
        return Remembered(
            uid, text, CATEGORY[lesson.kind], None, place and place.name, place and place.cwd,
            "active" if is_kept else "deprecated", source, self.agent, self.device, session.id, at, at,
        )  # fmt: skip

    def _add(self, session: DueSession, lesson: Lesson, new: Remembered, now: int) -> list[str]:
        """Store a memory, and hide what it replaces and nobody has reviewed."""
        older = [one for one in self._in_reach(new) if contradicts(new.text, one.text)]
        if any(one.updated_at > lesson.at and one.status == "active" for one in older):
            return ["skipped"]  # something newer is known
        memories.put_version(self.store, Version(new, _place_of(lesson)))
        learned.add_evidence(self.store, _evidence(new.id, session, lesson))
        words = (PROPOSED, LEARNED) if new.status == "active" else (PROPOSED,)
        done = [one for one in older if one.source.startswith(words)]
        for one in done:
            judge(self.store, one, LEARNED, "deprecated", now)
        return ["inserted", *("replaced" for _ in done)]

    def _confirm(self, session: DueSession, lesson: Lesson, known: Remembered, now: int) -> list[str]:
        """Record that a known memory was said again; in mode ``auto`` it may then be kept without a review."""
        if known.source.startswith(REFUSED):
            return ["skipped"]
        if lesson.is_run and not self._is_new_session(session, known.id):
            return []
        if not learned.add_evidence(self.store, _evidence(known.id, session, lesson)):
            return ["skipped"]
        sure = learned.confidence_of(learned.evidence_for(self.store, [known.id])[known.id])
        if known.source.startswith(PROPOSED) and self._is_sure(sure):
            judge(self.store, known, LEARNED, "active", now)
        return ["confirmed"]

    def _has_often_worked(self, session: DueSession, lesson: Lesson, uid: str) -> bool:
        """Record a command once for each session; return True if it has succeeded in enough sessions."""
        if self._is_new_session(session, uid):
            learned.add_evidence(self.store, _evidence(uid, session, lesson))
        return len(learned.evidence_for(self.store, [uid])[uid]) >= MIN_RUNS

    def _is_new_session(self, session: DueSession, uid: str) -> bool:
        return all(one.session != session.id for one in learned.evidence_for(self.store, [uid]).get(uid, []))

    def _is_sure(self, confidence: float) -> bool:
        return self.is_auto and confidence >= AUTO_CONFIDENCE

    def _cleaned(self, text: str) -> str | None:
        """Return a text as it is stored; None if it contains a secret or something private."""
        try:
            kept = cleaned_text(text, self.clean)
        except UsageError:
            return None
        return kept if kept == text else None

    def _id_of(self, lesson: Lesson) -> str:
        if lesson.is_run:
            where = "" if lesson.project is None else _whole(lesson.project).cwd
            return f"mem-{hashlib.blake2b(f'{where}{chr(0)}{lesson.text}'.encode(), key=self.key).hexdigest()[:12]}"
        return learned.memory_id(lesson.line, lesson.part, lesson.number)

    def _known_run(self, lesson: Lesson) -> Remembered | None:
        """Return the memory of a command that has another id: it was learned before the store was rebuilt."""
        place = _place_of(lesson)
        same = memories.memories_by_words(self.store, lesson.text, place and place.cwd)
        return next((one for one in same if one.source.startswith(learned.LEARNED_WORDS)), None)

    def _find_same(self, new: Remembered) -> Remembered | None:
        """Return the memory in reach with the same statement, preferably an active one."""
        same = [one for one in self._in_reach(new, every=True) if is_same(new.text, one.text, self.similarity)]
        return min(same, key=lambda one: (one.status != "active", not is_known(one), -one.updated_at), default=None)

    def _in_reach(self, new: Remembered, *, every: bool = False) -> list[Remembered]:
        """Return the memories that apply where a new one does; the hidden ones only if ``every`` is set."""
        group = self._group(new.source, new.session_id)
        return [
            one
            for one in memories.all_memories(self.store)
            if one.cwd in (None, new.cwd)
            and (every or is_known(one))
            and self._group(one.source, one.session_id) == group
        ]

    def _group(self, source: str, session: str | None) -> Group:
        agent = source.rpartition(" ")[2]
        return agent if agent in self.isolated else None, self.projects.get(session or "")


def _evidence(uid: str, session: DueSession, lesson: Lesson) -> Evidence:
    return Evidence(uid, lesson.line, session.id, lesson.kind, lesson.confidence, lesson.at)


def _whole(place: Project) -> Project:
    """Return the repository that a folder is in."""
    return Project(place.git_root or place.cwd, place.git_root, place.remote, place.name)


def _place_of(lesson: Lesson) -> Project | None:
    return None if lesson.is_personal or lesson.project is None else _whole(lesson.project)


def is_known(one: Remembered) -> bool:
    """Return True if a memory is active, or proposed."""
    return one.status == "active" or one.source.startswith(PROPOSED)


def judged(one: Remembered, word: str) -> str:
    """Return the source of a memory with another first word; the agent's name after it stays."""
    _, space, agent = one.source.partition(" ")
    return f"{word}{space}{agent}"


def judge(store: Store, one: Remembered, word: str, status: MemoryStatus, now: int) -> None:
    """Change status and source of a learned memory. Inside a transaction."""
    known = memories.version_of(store, one.id)
    if known is not None:
        new = changed(known.memory, now, status=status, source=judged(one, word))
        memories.put_version(store, Version(new, known.project))


def archive_stale(store: Store, now: int) -> int:
    """Hide unreviewed memories of low confidence that nothing has confirmed for long. Inside a transaction.

    ``crystal memories restore`` shows one again.
    """
    stale = [
        one
        for one in memories.all_memories(store)
        if is_known(one) and one.source.startswith((LEARNED, PROPOSED)) and one.updated_at < now - STALE_MS
    ]
    evidence = learned.evidence_for(store, [one.id for one in stale])
    count = 0
    for one in stale:
        known = evidence.get(one.id, [])
        last = max((each.at for each in known), default=0)
        if learned.confidence_of(known) < LOW_CONFIDENCE and last < now - STALE_MS:
            judge(store, one, LEARNED, "deprecated", now)
            count += 1
    return count
