"""Read the texts and rare words of what is to be forgotten, while they still exist."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import chain

from crystal.forgetting.match.patterns import TextMatcher, words_of
from crystal.forgetting.request import ForgetContext, ForgetPlan
from crystal.search.index.terms import Tokenize, beginning_of, document_words
from crystal.store import Store
from crystal.store.forget import forgotten_rows, traces
from crystal.store.forget.forgotten_rows import ForgottenSource
from crystal.store.search.candidates import texts_of_files
from crystal.store.search.tokenizer import tokenizer

SCOPES = ("session", "project", "before")

MAX_BEGINNINGS = 500
"""Beginnings of words that are looked for in a text faster than it is taken apart."""


@dataclass(frozen=True, slots=True)
class ForgottenText:
    """What is to be forgotten, for the proof. Never written to disk.

    Attributes:
        lines, memories: Ids.
        sessions: Ids of the sessions that something is forgotten from, with forks.
        texts: The texts.
        asked: The word or phrase of the query.
        bodies: The texts as the store compresses them.
        is_scope: Something is forgotten by place or time: the same text elsewhere stays.
    """

    lines: frozenset[str] = frozenset()
    memories: frozenset[str] = frozenset()
    sessions: frozenset[str] = frozenset()
    texts: tuple[str, ...] = field(default=(), repr=False)
    asked: tuple[str, ...] = field(default=(), repr=False)
    bodies: tuple[bytes, ...] = field(default=(), repr=False)
    is_scope: bool = False


def forgotten_text(context: ForgetContext, plan: ForgetPlan) -> ForgottenText:
    """Return what a plan is to delete. Call it before the plan is carried out."""
    lines = frozenset(uuid for _, value, _ in plan.kinds for uuid in value.get("lines", ()))
    memories = frozenset(uid for _, value, _ in plan.kinds for uid in value.get("memories", ()))
    with context.open_mirror() as mirror:
        stores = [context.store, *([mirror] if mirror is not None else [])]
        touched = {session for store in stores for session in forgotten_rows.sessions_of(store, lines)}
        texts = forgotten_rows.texts_of(stores, lines, memories)
        bodies = (body for store in stores for body in traces.bodies_of(store, lines, memories))
        return ForgottenText(
            lines,
            memories,
            frozenset(touched | set(plan.sessions)),
            tuple(dict.fromkeys(text for text in texts if text.strip())),
            plan.needles,
            tuple(bodies),
            any(kind in SCOPES for kind, _, _ in plan.kinds),
        )


def text_matcher(stores: Sequence[Store], lines: Collection[str], memories: Collection[str]) -> TextMatcher:
    """Return what finds repetitions of lines and memories that are about to be forgotten."""
    texts = forgotten_rows.texts_of(stores, lines, memories)
    words = {word for text in texts for word in words_of(text)}
    return TextMatcher(texts, rare_words(stores, words, lines, memories))


def rare_words(
    stores: Sequence[Store], words: Collection[str], lines: Collection[str], memories: Collection[str]
) -> set[str]:
    """Return the words that nothing but these lines and memories says."""
    left = set(words)
    for store in stores:
        sought = _SoughtWords(left, tokenizer(store))
        in_files = (ForgottenSource("", "", text) for text in texts_of_files(store))
        for said in chain(forgotten_rows.each_text(store), in_files):
            if not left:
                break
            if said.uuid not in lines and said.uid not in memories and sought.may_be_in(said.text):
                left -= sought.words_in(said.text)
    return left


class _SoughtWords:
    """Finds which of some words a text has in any form, or an index takes from it."""

    def __init__(self, words: Collection[str], tokenize: Tokenize) -> None:
        self._tokenize = tokenize
        self._by_term: dict[str, set[tuple[str, str]]] = {word: {(word, "")} for word in words}
        self._beginnings = set[str]()
        for word in words:
            first, *more = stems = tokenize(word) or [""]
            run = f" {' '.join(stems)} " if more else ""
            self._by_term.setdefault(first, set()).add((word, run))
            self._beginnings.add(beginning_of(first) if first else "")

    def may_be_in(self, text: str) -> bool:
        """Return False if a text certainly has none of the words; for many words that takes longer than to look."""
        if len(self._beginnings) > MAX_BEGINNINGS or not text.isascii():
            return True
        lower = text.lower()
        return any(beginning in lower for beginning in self._beginnings)

    def words_in(self, text: str) -> set[str]:
        """Return the words that a text has."""
        stems, found = self._tokenize(text), document_words(self._tokenize, text, None)
        terms, run = {*stems, *found.text, *found.parts}, f" {' '.join(stems)} "
        pairs = (pair for term in self._by_term.keys() & terms for pair in self._by_term[term])
        return {word for word, needle in pairs if needle in run}
