"""Test how well search finds turns of the user's own memory, by kind of question.

Questions are made from a sample of turns, without a model, and asked as ``crystal search`` asks them. The answer to a
question is the turn that it was made from, or another turn with exactly the same text. The user's own questions are
asked again too; their answer is any other turn of that session. Nothing is written.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from statistics import median

from crystal.errors import NotConfiguredError
from crystal.evaluate.questions import MIN_CHARACTERS, Score, asked_before, score_of, telling_sentence, words_of
from crystal.model.recall import Hit
from crystal.search.request import SearchResult
from crystal.store import Store
from crystal.store.search.trials import Sampled, sample_turns
from crystal.timewords.parse import local

DEPTH = 50
"""Number of results that are searched for the answer."""
MIN_QUESTIONS = 10
SAMPLED_FOR_EACH = 5
"""Turns drawn for each question, because not every turn gives a question of every kind."""
MAX_PHRASE_WORDS = 4

ASKED = "what you asked"

_NAME = re.compile(r"\b(?:(?=[\w./-]*[a-zA-Z])\w+(?:[/._-]\w+)+|[a-zA-Z][a-z]+[A-Z]\w+)")
"""A path, a dotted or hyphenated name, a name in snake_case or camelCase."""

Ask = Callable[[str, int], SearchResult]
"""Searches for a question; the number is the maximum of hits."""


@dataclass(frozen=True, slots=True)
class Answered:
    """A question and the rank of its answer.

    Attributes:
        kind: Kind of question, see ``KINDS``.
        question: The question as it was asked.
        answer: Text of the turn that it was made from.
        session_id: Session of that turn.
        rank: Rank of the answer, from 1; None if it is not among the first 50.
        session_rank: Rank of the first hit from the answer's session; None without one.
        milliseconds: Duration of the search.
        why: Why the answer is not among the first five; None if it is.
    """

    kind: str
    question: str
    answer: str
    session_id: str
    rank: int | None
    session_rank: int | None
    milliseconds: float
    why: str | None


@dataclass(frozen=True, slots=True)
class KindScore:
    """Scores of one kind of question: the answer, its session among the first five, and the median time in ms."""

    kind: str
    questions: int
    score: Score
    session_hit_at_5: float
    milliseconds: float


@dataclass(frozen=True, slots=True)
class RecallReport:
    """Result of a test.

    Attributes:
        turns: Number of turns in the sample.
        kinds: Scores by kind of question, the worst first.
        missed: Questions whose answer is not among the first five, those of the worst kind first, then by rank.
        notes: Remarks of the search, such as missing vectors.
        is_cut: True if the time was too short for all questions.
    """

    turns: int
    kinds: tuple[KindScore, ...]
    missed: tuple[Answered, ...]
    notes: tuple[str, ...]
    is_cut: bool


def measure_recall(
    store: Store,
    ask: Ask,
    *,
    for_each: int,
    seconds: float,
    progress: Callable[[int, int], None] = lambda *_: None,
    clock: Callable[[], float] = time.monotonic,
    sampled: Sequence[Sampled] | None = None,
) -> RecallReport:
    """Ask questions with a known answer, the kinds in turn.

    Args:
        store: The user's store, only read.
        ask: Searches that store.
        for_each: Maximum number of questions of each kind.
        seconds: No question is asked after that time.
        progress: Called with the number of questions asked and of all.
        clock: Returns seconds.
        sampled: The turns; None for a sample of the memory.

    Raises:
        NotConfiguredError: The memory is too small.
    """
    sampled = sample_for(store, for_each) if sampled is None else sampled
    asked = list(_questions(sampled, for_each))
    if len(asked) < MIN_QUESTIONS:
        raise NotConfiguredError(
            f"the memory has turns for {len(asked)} questions, {MIN_QUESTIONS} are needed",
            hint="import the past first: crystal backfill",
        )
    ask(asked[0][1], DEPTH)  # loading the model does not count
    answered, notes, end = list[Answered](), dict[str, None](), clock() + seconds
    for kind, question, target in asked:
        if clock() >= end:
            break
        start = clock()
        result = ask(question, DEPTH)
        answered.append(_judged(kind, question, target, result, 1000 * (clock() - start)))
        notes |= dict.fromkeys(result.notes if result.mode == "keywords" else ())
        progress(len(answered), len(asked))
    kinds = sorted(_scores(answered), key=lambda one: (one.score.hit_at_5, one.score.mrr))
    order = [one.kind for one in kinds]
    missed = [one for one in answered if one.why is not None]
    missed.sort(key=lambda one: (order.index(one.kind), -(one.rank or DEPTH + 1)))
    return RecallReport(len(sampled), tuple(kinds), tuple(missed), tuple(notes), len(answered) < len(asked))


# ------------------------------------------------------------------------------------------------------- questions


def sample_for(store: Store, for_each: int) -> list[Sampled]:
    """Return a sample of turns that is large enough for ``for_each`` questions of each kind."""
    return sample_turns(store, SAMPLED_FOR_EACH * for_each * len(KINDS), least=MIN_CHARACTERS)


def _questions(sampled: Sequence[Sampled], for_each: int) -> Iterator[tuple[str, str, Sampled]]:
    """Yield kind, question and turn; each turn is used once, for the kind that has the fewest questions so far."""
    count = dict.fromkeys(KINDS, 0)
    for one in sampled:
        for kind in sorted(KINDS, key=lambda each: count[each]):
            question = KINDS[kind](one) if count[kind] < for_each else None
            if question:
                count[kind] += 1
                yield kind, question, one
                break


def _phrase(one: Sampled) -> str | None:
    words = words_of(telling_sentence(one.text) or "")
    runs = [" ".join(words[at : at + MAX_PHRASE_WORDS]) for at in range(len(words) - MAX_PHRASE_WORDS + 1)]
    said = [run for run in runs if run in one.text]
    return f'"{max(said, key=len)}"' if said else None


def _words(one: Sampled) -> str | None:
    words = {word.lower() for word in words_of(one.text) if word.isalpha() and word[1:].islower()}
    return " ".join(sorted(words, key=lambda word: (-len(word), word))[:3]) if len(words) >= 10 else None


def _name(one: Sampled) -> str | None:
    found, words = _NAME.search(one.text), _words(one)
    return f"{found[0]} {' '.join(words.split()[:2])}" if found and words else None


def _day(one: Sampled) -> str | None:
    words = _words(one)
    if one.ts is None or words is None:
        return None
    return f"{words} on {local(one.ts).date().isoformat()}"


KINDS: Mapping[str, Callable[[Sampled], str | None]] = {
    ASKED: asked_before,
    "a sentence": lambda one: telling_sentence(one.text),
    "quoted words": _phrase,
    "three words": _words,
    "a name and two words": _name,
    "three words and the day": _day,
}
"""Functions that make a question of each kind from a turn; they return None if the turn is unsuitable."""


# -------------------------------------------------------------------------------------------------------- measuring


def _judged(kind: str, question: str, target: Sampled, result: SearchResult, milliseconds: float) -> Answered:
    repeated = target.before if kind == ASKED else None
    hits = [hit for hit in result.hits if hit.text != repeated]
    in_session = _first(hits, lambda hit: hit.session_id == target.session_id or hit.text == target.text)
    rank = in_session if kind == ASKED else _first(hits, lambda hit: target.uuid == hit.uuid or hit.text == target.text)
    why = None if rank is not None and rank <= 5 else _why(question, target, hits, rank)
    return Answered(kind, question, target.text, target.session_id, rank, in_session, milliseconds, why)


def _first(hits: Sequence[Hit], fits: Callable[[Hit], bool]) -> int | None:
    return next((place for place, hit in enumerate(hits, 1) if fits(hit)), None)


def _why(question: str, target: Sampled, hits: Sequence[Hit], rank: int | None) -> str:
    """Return why an answer was not among the first five: few common words, or other hits that match as well."""
    words = _set_of(question)
    shared = len(words & _set_of(target.text))
    if 2 * shared < len(words):
        return f"it has {shared} of the {len(words)} words"
    above = hits[: (rank or DEPTH + 1) - 1]
    rivals = sum(1 for hit in above if len(words & _set_of(hit.text)) >= shared)
    same = sum(1 for hit in above if hit.session_id == target.session_id)
    if rivals:
        return f"{rivals} better hits match as many words, {same} from its session"
    return f"{len(above)} better hits match fewer words, {same} from its session"


def _set_of(text: str) -> set[str]:
    return {word.lower() for word in words_of(text)}


def _scores(answered: Sequence[Answered]) -> Iterator[KindScore]:
    for kind in KINDS:
        of_kind = [one for one in answered if one.kind == kind]
        if of_kind:
            yield KindScore(
                kind,
                len(of_kind),
                score_of([one.rank or inf for one in of_kind]),
                sum((one.session_rank or inf) <= 5 for one in of_kind) / len(of_kind),
                median(one.milliseconds for one in of_kind),
            )
