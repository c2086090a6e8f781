"""Find the words of a question in the text of a hit, by stem, phrase and substring, and explain why it is a hit.

Only the tokenizer of the store is used.
"""

from __future__ import annotations

import re

from crystal.model.recall import Hit
from crystal.store import Store
from crystal.store.search.candidates import stems
from crystal.text.query import parse_query, unspaced_pairs

Span = tuple[int, int]


def match_spans(store: Store, query: str, text: str) -> list[Span]:
    """Return the spans of ``text`` that match ``query``: (first character, after the last), in order, disjoint."""
    asked = parse_query(query)
    words = " ".join((*asked.phrases, *asked.compounds, *asked.terms))
    wanted = {stem for _, _, stem in stems(store, words)}
    tokens = stems(store, text)
    spans = [(start, end) for start, end, stem in tokens if stem in wanted]
    for literal in (*asked.phrases, *asked.compounds):
        pattern = r"\s+".join(map(re.escape, literal.split()))
        spans += [match.span() for match in re.finditer(pattern, text, re.IGNORECASE)]
    for pair in unspaced_pairs(asked.text):
        spans += [match.span() for match in re.finditer(re.escape(pair), text)]
    if not spans:
        beginnings = tuple(stem for stem in wanted if len(stem) > 2)
        spans = [(start, end) for start, end, stem in tokens if beginnings and stem.startswith(beginnings)]
    return _merged(spans)


def why_found(hit: Hit) -> str:
    """Describe a hit's rank and score in each engine."""
    names = {"keywords": "BM25", "context": "BM25 with its neighbours", "vectors": "cosine"}
    engines = [
        f"{engine} #{rank}" + (f" ({names[engine]} {hit.scores[engine]:.3g})" if engine in hit.scores else "")
        for engine, rank in hit.ranks.items()
        if engine != "exact"
    ]
    others = {"session": "session", "late": "words by meaning"}
    engines += [f"{words} {hit.scores[name]:.3g}" for name, words in others.items() if name in hit.scores]
    exact = ["word for word"] if "exact" in hit.ranks else []
    return ", ".join((*exact, *engines)) or "by time alone"


def _merged(spans: list[Span]) -> list[Span]:
    merged: list[Span] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged
