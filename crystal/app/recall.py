"""Test search on the memory of this machine: the use case behind ``crystal recall test``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from crystal.app.context import open_reader
from crystal.app.model_texts import sending_rule
from crystal.app.models import book_tokens
from crystal.app.search import prepare_search
from crystal.evaluate.recall import RecallReport, measure_recall, sample_for
from crystal.model.recall import Filters
from crystal.search.engine import search
from crystal.search.request import SearchResult


def recall_here(for_each: int, seconds: float, progress: Callable[[int, int], None]) -> RecallReport:
    """Ask this machine's memory questions with a known answer; the memory of home is not asked.

    Raises:
        NotConfiguredError: There is no memory, or it is too small.
    """
    with open_reader() as machine:
        sources, request = prepare_search(machine.with_mirror(None), "", 1, Filters())
        rule = sending_rule(machine, "embedding")
        sampled = rule.sendable_sample(sample_for(machine.store, for_each))
        guarded = [
            one if one.embedder is None else replace(one, embedder=rule.guard(one.embedder, sampled)) for one in sources
        ]

        def ask(question: str, limit: int) -> SearchResult:
            return search(guarded, replace(request, query=question, limit=limit))

        try:
            return measure_recall(
                machine.store, ask, for_each=for_each, seconds=seconds, progress=progress, sampled=sampled
            )
        finally:
            book_tokens([one.embedder for one in sources if one.embedder is not None])
