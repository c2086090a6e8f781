"""Test an embedding model on the user's own memory: known turns are used as search targets.

A sample of turns is copied to a separate store in a temporary folder; the user's store is only read. From half of the
sampled turns one sentence is removed and used as the question. The other half are answers of the assistant; the user's
question, which is not in the sample, is used. So a question shares few exact words with its target, as real questions
do, and no model is needed to write it. Each question is searched by keywords only, by each model's vectors only, and by
both together, as in ``crystal search``.

The sample and the questions depend only on the memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cache
from math import inf, sqrt
from pathlib import Path
from typing import Literal

from crystal.embedding.embedder import Embedder
from crystal.errors import CrystalError, NotConfiguredError, UnavailableError
from crystal.evaluate.questions import MIN_CHARACTERS, Score, hide_question, score_of
from crystal.model.capture import Chunk, Origin, Turn
from crystal.search.engine import search
from crystal.search.index import bring_up_to_date
from crystal.search.request import MemorySource, SearchOptions, SearchRequest
from crystal.store import Store
from crystal.store.capture.turns import add_turns
from crystal.store.search import vectors
from crystal.store.search.trials import Sampled, sample_turns

MIN_MOMENTS = 10
DEPTH = 50
"""Number of results that are searched for the target."""
BATCH = 16


@dataclass(frozen=True, slots=True)
class ModelScore:
    """Scores of one model: vectors only, with keywords, and chunks embedded per second."""

    name: str
    alone: Score
    together: Score
    chunks_a_second: float


@dataclass(frozen=True, slots=True)
class Trial:
    """Result of a test.

    Attributes:
        questions: Number of questions.
        turns: Number of turns in the sample.
        is_cut: True if the time was too short for the whole sample.
        keywords: The score without a model.
        present: The current model; None if it cannot be used, with the reason in ``why_no_present``.
        new: The tested model.
        better: Number of questions whose target the new model ranks higher than the current one, both with keywords.
        worse: Number of questions ranked lower.
        why_no_present: Why ``present`` is None.
    """

    questions: int
    turns: int
    is_cut: bool
    keywords: Score
    present: ModelScore | None
    new: ModelScore
    better: int
    worse: int
    why_no_present: str | None = None

    @property
    def verdict(self) -> str:
        """Return ``better``, ``worse``, or ``no clear difference`` if it could be chance."""
        if abs(self.better - self.worse) < 2 * sqrt(max(1, self.better + self.worse)):
            return "no clear difference"
        return "better" if self.better > self.worse else "worse"


@dataclass(frozen=True, slots=True)
class Size:
    """Maximum number of questions and turns, and the seconds that a model may take to embed the turns."""

    questions: int = 100
    turns: int = 500
    seconds: float = 120.0


@dataclass(frozen=True, slots=True)
class _Moment:
    """Turn in the sample: its text without the removed sentence, and its question, if any."""

    uuid: str
    text: str
    question: str | None
    sampled: Sampled


def try_model(  # noqa: PLR0913 - what a trial needs, by name
    store: Store,
    present: Embedder | None,
    new: Embedder,
    *,
    scratch: Path,
    size: Size,
    now: int,
    why_no_present: str | None = None,
    progress: Callable[[int, int], None] = lambda *_: None,
    clock: Callable[[], float] = time.monotonic,
    how: SearchOptions | None = None,
    sample: Sequence[Sampled] | None = None,
) -> Trial:
    """Compare two models on a sample of the memory.

    Args:
        store: The user's store, only read.
        present: The current model, or None.
        new: The tested model.
        scratch: An empty folder, for the store of the sample.
        size: Size and duration of the test.
        now: The time, ms.
        why_no_present: Why ``present`` is None.
        progress: Called with the embedded turns and their total.
        clock: Returns seconds.
        how: The other search settings; None for the defaults.
        sample: The turns; None for a sample of the memory.

    Raises:
        NotConfiguredError: The memory is too small.
        UnavailableError: The new model is too slow for ``seconds``, or cannot be used.
    """
    sample = sample_turns(store, size.turns, least=MIN_CHARACTERS) if sample is None else sample
    moments = _enough_moments(sample, size.questions)
    made, rate = _embed(new, moments, size.seconds, progress, clock)
    if len(made) < MIN_MOMENTS:
        raise UnavailableError(
            f"the model embedded {len(made)} turns in {size.seconds:.0f} seconds",
            hint="choose a smaller one: crystal models list",
        )
    is_cut, moments = len(made) < len(moments), moments[: len(made)]
    asked = [one for one in moments if one.question]
    with Store.open(scratch / "crystal.db") as filled:
        idents = _fill(filled, moments)
        bring_up_to_date(filled, now=now)
        keywords = [_rank(filled, None, one, now, how) for one in asked]
        before, old_ranks = None, keywords
        if present is not None:
            try:
                theirs, their_rate = _embed(present, moments, size.seconds, progress, clock)
                if len(theirs) == len(moments):
                    before, old_ranks = _measure(filled, present, idents, theirs, asked, their_rate, now, how)
                else:
                    why_no_present = "it was too slow to compare"
            except CrystalError as error:
                why_no_present = error.message
        after, new_ranks = _measure(filled, new, idents, made, asked, rate, now, how)
    pairs = list(zip(old_ranks, new_ranks, strict=True))
    return Trial(
        questions=len(asked),
        turns=len(moments),
        is_cut=is_cut,
        keywords=score_of(keywords),
        present=before,
        new=after,
        better=sum(young < old for old, young in pairs),
        worse=sum(young > old for old, young in pairs),
        why_no_present=why_no_present if before is None else None,
    )


# ------------------------------------------------------------------------------------------------------- questions


def _enough_moments(sampled: Sequence[Sampled], questions: int) -> list[_Moment]:
    moments = _moments(sampled, questions)
    if len(moments) < MIN_MOMENTS or not any(one.question for one in moments):
        raise NotConfiguredError(
            f"the memory has {len(moments)} turns to try a model on, {MIN_MOMENTS} are needed",
            hint="import the past first: crystal backfill",
        )
    return moments


def _moments(sampled: Sequence[Sampled], questions: int) -> list[_Moment]:
    """Return turns, those with a question first, alternating between the two kinds."""
    made: list[_Moment] = []
    used: set[str] = set()
    left = questions
    for place, one in enumerate(sampled):
        hidden = hide_question(one, prefers_reply=place % 2 == 1) if left > 0 else None
        question, text = hidden or (None, one.text)
        left -= question is not None
        used |= {one.before} if question is not None and one.before is not None and question in one.before else set()
        made.append(_Moment(f"{one.id:032x}", text, question, one))
    kept = [one for one in made if one.question is not None or one.sampled.text not in used]
    return sorted(kept, key=lambda one: one.question is None)  # stable: keeps the order of the sample


# -------------------------------------------------------------------------------------------------------- measuring


def _embed(
    embedder: Embedder,
    moments: Sequence[_Moment],
    seconds: float,
    progress: Callable[[int, int], None],
    clock: Callable[[], float],
) -> tuple[list[bytes], float]:
    """Return vectors of as many turns as the time allows, and the number per second."""
    embedder.embed_query("crystal")  # loading does not count
    start, made = clock(), list[bytes]()
    while len(made) < len(moments) and (not made or clock() < start + seconds):
        batch = moments[len(made) : len(made) + BATCH]
        made += embedder.embed_documents([one.text for one in batch])
        progress(len(made), len(moments))
    return made, len(made) / max(clock() - start, 1e-6)


def _fill(sample: Store, moments: Sequence[_Moment]) -> list[int]:
    with sample.transaction():
        for one in moments:
            sampled = one.sampled
            role: Literal["user", "assistant"] = "user" if sampled.role == "user" else "assistant"
            turn = Turn(one.uuid, 0, role, one.text, 0, sampled.ts, full_length=len(one.text))
            add_turns(
                sample, Origin("trial", "trial", sampled.session_id), [(turn, None, [Chunk(0, one.text)])], {}, None
            )
    waiting = {text: ident for ident, _, text in vectors.pending_chunks(sample, 0, 2 * len(moments))}
    return [waiting[one.text] for one in moments]


def _measure(
    sample: Store,
    embedder: Embedder,
    idents: Sequence[int],
    made: Sequence[bytes],
    asked: Sequence[_Moment],
    rate: float,
    now: int,
    how: SearchOptions | None,
) -> tuple[ModelScore, list[float]]:
    """Return the scores of one model, and the rank of each question's target together with keywords."""
    generation = vectors.ensure_generation(sample, embedder.provider, embedder.model, embedder.dimension, now)
    vectors.put_vectors(sample, generation, zip(idents, made, strict=True))
    vectors.promote(sample, generation)
    bring_up_to_date(sample, now=now)
    embedder = copy(embedder)
    vars(embedder)["embed_query"] = cache(embedder.embed_query)  # each question is embedded once
    alone, together = [], []
    for one, target in zip(asked, idents, strict=False):  # turns with questions come first
        meant = embedder.embed_query(one.question or "")
        near = vectors.nearest(sample, generation, meant, DEPTH) if meant else []
        alone.append(next((rank for rank, (ident, _) in enumerate(near, 1) if ident == target), inf))
        together.append(_rank(sample, embedder, one, now, how))
    name = f"{embedder.provider} {embedder.model}"
    return ModelScore(name, score_of(alone), score_of(together), rate), together


def _rank(sample: Store, embedder: Embedder | None, one: _Moment, now: int, how: SearchOptions | None) -> float:
    """Return the rank of a question's target; infinity if it is not found."""
    request = SearchRequest(one.question or "", now, DEPTH, how=how or SearchOptions())
    found = search([MemorySource(sample, embedder=embedder)], request)
    return next((rank for rank, hit in enumerate(found.hits, 1) if hit.uuid == one.uuid), inf)
