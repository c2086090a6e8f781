"""Learning from sessions on this machine, and the review of what was learned."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from crystal.app.context import Machine, agreed_model
from crystal.app.memories import store_fields
from crystal.app.memory_queries import list_memories, memory_of, mirror_of
from crystal.app.model_texts import sending_rule
from crystal.config.providers import runs_here
from crystal.context.choosing import is_trusted
from crystal.errors import ChangedMeanwhileError, CrystalError, UsageError
from crystal.llm.ask import PaidModel, retry_at
from crystal.memories.rules import cleaned_text
from crystal.model.recall import Remembered
from crystal.reflect.by_model import PART, PURPOSE, ModelExtractor
from crystal.reflect.compare import contradicts
from crystal.reflect.learn import LEARNED, PROPOSED, REFUSED, REVIEWED, Learner, is_known, judged
from crystal.reflect.run import reflect_sessions, similarity_of
from crystal.store import Store
from crystal.store.capture.privacy import store_key
from crystal.store.memories import learned
from crystal.store.memories.learned import Evidence, ReflectorRun
from crystal.store.problems import clear_problem, record_problem
from crystal.store.search.isolated import isolated_sessions
from crystal.store.sessions.conversations import turns_of_lines

MAX_LISTED = 10_000
MAX_QUOTE = 600


def reflect(machine: Machine, should_stop: Callable[[], bool] = lambda: False) -> ReflectorRun:
    """Learn from what was said since the last time. The caller holds the lock of background work."""
    config = machine.config
    embedder = None
    with contextlib.suppress(CrystalError):  # told where vectors are made; the comparison does without
        embedder = machine.embedder() if runs_here(config.embedding_provider) else None
    learner = Learner(
        machine.store,
        config.agent_id,
        config.device,
        is_auto=config.reflect_mode == "auto",
        key=store_key(machine.store),
        clean=machine.redactor().clean_text,
        similarity=similarity_of(None if embedder is None else embedder.embed_documents),
        isolated=config.isolated,
        projects=isolated_sessions(machine.store, config.isolated_projects),
    )
    model = _model_extractor(machine, learner) if config.reflect_extractor == "model" else None
    run = reflect_sessions(learner, model, machine.now, should_stop)
    problem, at = model and model.problem, machine.now()
    if problem:
        record_problem(machine.store, PART, problem.message, at, retry_at(machine.store, PART, problem, at))
    elif run.asked or model is None:
        clear_problem(machine.store, PART)
    return run


def _model_extractor(machine: Machine, learner: Learner) -> ModelExtractor:
    """Return the extractor of the chosen model."""
    paid = PaidModel(
        machine.store, agreed_model(machine.config, "summary"), PURPOSE, machine.config.reflect_daily_cap_usd
    )
    may_send = partial(sending_rule(machine, "summary").sendable, kind="turn")
    return ModelExtractor(paid, learner.key, machine.now, may_send)


# ----------------------------------------------------------------------------------------------------------- reviewing


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line that taught a memory, with its text; ``is_gone``: it is not stored any more."""

    line: str
    session_id: str
    at: int
    role: str
    text: str
    is_gone: bool = False


@dataclass(frozen=True, slots=True)
class Learned:
    """A memory that was learned, with what is known of how.

    ``replaces`` are the memories that it contradicts: they are hidden once it is kept. ``replaced_by`` is the first
    later memory that contradicts an archived one, made at ``replaced_at``.
    """

    memory: Remembered
    kind: str
    confidence: float
    confirmed: int
    first_at: int
    last_at: int
    sources: tuple[SourceLine, ...] = ()
    replaces: tuple[str, ...] = ()
    replaced_by: str | None = None
    replaced_at: int | None = None


def learned_facts(machine: Machine, one: Remembered) -> Learned | None:
    """Return how a memory was learned, with the words that taught it; None if nothing says so."""
    with mirror_of(machine) as mirror:
        for store in (machine.store, *([] if mirror is None else [mirror])):
            evidence = learned.evidence_for(store, [one.id]).get(one.id)
            if evidence:
                facts, new = _facts(one, evidence, store), _successor(machine, one)
                return facts if new is None else replace(facts, replaced_by=new.id, replaced_at=new.created_at)
    return None


def _successor(machine: Machine, one: Remembered) -> Remembered | None:
    """Return the first later memory that contradicts an archived one."""
    if is_known(one):
        return None
    every = list_memories(machine, status=None, limit=MAX_LISTED)
    kept = [new for new in every if not new.source.startswith(REFUSED)]
    later = [new for new in kept if new.created_at > one.created_at and _contradicts_near(new, one)]
    return min(later, key=lambda new: new.created_at, default=None)


def unreviewed(machine: Machine) -> list[Learned]:
    """Return what was learned and not reviewed yet: proposals, and what mode ``auto`` has kept; surest first."""
    every = [one for one in list_memories(machine, status=None, limit=MAX_LISTED) if is_known(one)]
    found = []
    for one in every:
        if not one.source.startswith((LEARNED, PROPOSED)):
            continue
        facts = learned_facts(machine, one) or Learned(one, "fact", 0.0, 0, one.created_at, one.updated_at)
        older = [each.id for each in every if each.status == "active" and _gives_way(each, one)]
        found.append(replace(facts, replaces=tuple(older)))
    return sorted(found, key=lambda each: (-each.confidence, -each.last_at, each.memory.id))


def keep_learned(machine: Machine, ident: str, text: str | None = None, *, seen: int | None = None) -> Remembered:
    """Keep a memory for good, with other words if some are given; what it contradicts is hidden. Idempotent.

    A memory that nobody asked for here, such as a file typed in the vault, may be told to agents from then on.
    ``seen`` is the ``updated_at`` that the person saw; None for a decision by id alone.

    Raises:
        NotFoundError: There is no such memory.
        ChangedMeanwhileError: It changed since.
        UsageError: The text cannot be used.
    """
    words = None if text is None else cleaned_text(text, machine.redactor().clean_text)
    _refuse_asked(machine, ident)
    kept = _judged(machine, ident, REVIEWED, "active", words, seen)
    for other in list_memories(machine, limit=MAX_LISTED):
        if _gives_way(other, kept):
            _judged(machine, other.id, other.source.partition(" ")[0], "deprecated")
    return kept


def call_wrong(machine: Machine, ident: str, *, seen: int | None = None) -> Remembered:
    """Hide a memory that is wrong; it is proposed again only if somebody says it again. Idempotent."""
    _refuse_asked(machine, ident)
    return _judged(machine, ident, LEARNED, "deprecated", seen=seen)


def never_learn(machine: Machine, ident: str, *, seen: int | None = None) -> Remembered:
    """Hide a memory, and never learn it or anything that says the same again. Idempotent."""
    _refuse_asked(machine, ident)
    return _judged(machine, ident, REFUSED, "deprecated", seen=seen)


def _refuse_asked(machine: Machine, ident: str) -> None:
    one = memory_of(machine, ident)
    if is_trusted(one) and one.source.partition(" ")[0] not in (PROPOSED, LEARNED, REVIEWED):
        why = f"{one.id} was remembered on request, not learned"
        raise UsageError(why, hint=f"crystal memories deprecate {one.id}")


def _judged(
    machine: Machine, ident: str, word: str, status: str, text: str | None = None, seen: int | None = None
) -> Remembered:
    """Store a memory's next version: the first word of its source says what the user made of it."""

    def fields_of(old: Remembered) -> dict[str, str]:
        if seen not in (None, old.updated_at):
            why = f"{old.id} changed meanwhile, so nothing was saved; it is {state_of(old)} now"
            raise ChangedMeanwhileError(why, hint=f"crystal memories show {old.id}")
        return {"source": judged(old, word), "status": status, "text": text or old.text}

    return store_fields(machine, ident, fields_of)


def _gives_way(old: Remembered, new: Remembered) -> bool:
    return old.id != new.id and old.updated_at <= new.updated_at and _contradicts_near(new, old)


def _contradicts_near(new: Remembered, old: Remembered) -> bool:
    """Return True if one replaces the other where both hold."""
    return (old.cwd in (None, new.cwd) or new.cwd is None) and contradicts(new.text, old.text)


def _facts(one: Remembered, evidence: list[Evidence], store: Store) -> Learned:
    lines, text = [], learned.as_learned(store, one.id) or one.text
    for each in evidence:
        answered = learned.answered_line(store, each.line, text)
        lines += [(name, each) for name in (answered, each.line) if name is not None]
    said = turns_of_lines(store, [name for name, _ in lines])
    sources = []
    for name, each in lines:
        role, text, _ = next(iter(said.get(name, [])), ("", "", None))
        sources.append(SourceLine(name, each.session, each.at, role, text[:MAX_QUOTE], name not in said))
    times, sure = [each.at for each in evidence], learned.confidence_of(evidence)
    return Learned(one, evidence[0].kind, sure, len(evidence), min(times), max(times), tuple(sources))


def origin_of(one: Remembered) -> str:
    """Return where a memory is from: ``by`` who wrote it, or ``from`` the agent in whose session it was learned."""
    word, _, agent = one.source.partition(" ")
    if agent and word in learned.LEARNED_WORDS:
        return f"from {agent}"
    return {"cli": "by you", "prompt": "by your prompt"}.get(one.source, f"by {one.source}")


def state_of(one: Remembered) -> str:
    """Return ``active``, ``proposed`` or ``deprecated``."""
    return "proposed" if one.status != "active" and is_known(one) else one.status
