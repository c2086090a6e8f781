"""Read the texts and rare words of what is to be forgotten, while they still exist."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from crystal.forgetting.match.indexed_turns import Candidates, candidates_of
from crystal.forgetting.match.patterns import TextMatcher, body_stretches, words_of
from crystal.forgetting.match.window_hashes import WindowHashes
from crystal.forgetting.request import ForgetContext, ForgetPlan, Progress, counted
from crystal.search.index.index_files import IndexDamagedError
from crystal.search.index.terms import Tokenize, beginning_of, document_words
from crystal.store import Store
from crystal.store.forget import forgotten_rows, traces
from crystal.store.forget.forgotten_rows import ForgottenSource
from crystal.store.search.candidates import texts_of_files
from crystal.store.search.tokenizer import tokenizer

SCOPES = ("session", "project", "before")

MAX_BEGINNINGS = 500
"""Beginnings of words that are looked for in a text faster than it is taken apart."""

READING = "reading what stays"
READ_AT_ONCE = 500
MAX_READ = 50_000
"""Texts that are read to find words of which every other text has some."""


@dataclass(frozen=True, slots=True)
class ForgottenText:
    """Texts that are to be forgotten, for the proof. Never written to disk.

    Attributes:
        lines, memories: Ids.
        sessions: Ids of the sessions that something is forgotten from, with forks.
        texts: The texts.
        asked: The word or phrase of the query.
        bodies: The texts as the store compresses them, hashed.
        is_scope: Something is forgotten by place or time: the same text elsewhere stays.
    """

    lines: frozenset[str] = frozenset()
    memories: frozenset[str] = frozenset()
    sessions: frozenset[str] = frozenset()
    texts: tuple[str, ...] = field(default=(), repr=False)
    asked: tuple[str, ...] = field(default=(), repr=False)
    bodies: WindowHashes | None = field(default=None, repr=False)
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
            body_stretches(bodies),
            any(kind in SCOPES for kind, _, _ in plan.kinds),
        )


def text_matcher(
    stores: Sequence[Store],
    lines: Collection[str],
    memories: Collection[str],
    progress: Progress,
    known: frozenset[str] = frozenset(),
) -> TextMatcher:
    """Return what finds repetitions of lines and memories that are about to be forgotten, but of those ``known``."""
    texts = forgotten_rows.texts_of(stores, set(lines) - known, set(memories) - known)
    words = {word for text in texts for word in words_of(text)}
    return TextMatcher(texts, rare_words(stores, words, lines, memories, progress))


def rare_words(
    stores: Sequence[Store],
    words: Collection[str],
    lines: Collection[str],
    memories: Collection[str],
    progress: Progress = lambda *_: None,
) -> set[str]:
    """Return the words that nothing but these lines and memories says."""
    left = set(words)
    for store in stores:
        texts = _RetainedTexts(store, left, lines, memories)
        texts.read(forgotten_rows.each_text(store, ()))
        texts.read(ForgottenSource("", "", text) for text in texts_of_files(store))
        texts.read_newest()
        texts.look_up(progress)
        left = texts.left
    return left


class _RetainedTexts:
    """The texts of a store that stay, read until each of some words was found, or is known to be in none.

    Attributes:
        left: The words that were not found.
    """

    def __init__(self, store: Store, words: Collection[str], lines: Collection[str], memories: Collection[str]) -> None:
        self.left = set(words)
        self._store, self._lines, self._memories = store, lines, memories
        self._read_turns = {0}  # each text is looked through for all words at once: none has to be read again
        self._sought = _SoughtWords(words, tokenizer(store))

    def read(self, texts: Iterable[ForgottenSource]) -> None:
        """Look for all the words in some texts."""
        for said in texts:
            if not self.left:
                return
            is_gone = said.uuid in self._lines or said.uid in self._memories
            if not is_gone and self._sought.may_be_in(said.text):
                self.left -= self._sought.words_in(said.text)

    def read_newest(self) -> None:
        """Read texts as long as that finds more words than are found by a look into the index in this time."""
        newest = sorted(traces.newest_turns(self._store, MAX_READ), reverse=True)
        for at in range(0, len(newest), READ_AT_ONCE):
            before = len(self.left)
            if before < READ_AT_ONCE:
                return
            self._read_some(newest[at : at + READ_AT_ONCE])
            if before - len(self.left) < READ_AT_ONCE:
                return

    def look_up(self, progress: Progress) -> None:
        """Read for each word the turns that may say it; all turns if the index cannot tell for one."""
        self._read_turns |= forgotten_rows.turns_of(self._store, self._lines, None)
        is_known = False
        with contextlib.suppress(IndexDamagedError), candidates_of(self._store) as found:
            words = counted(sorted(self.left), READING, len(self.left), progress)
            is_known = found is not None and all(self._is_looked_up(word, found) for word in words)
        if not is_known:
            count = traces.count_turns(self._store)
            self.read(counted(forgotten_rows.each_text(self._store), READING, count, progress))

    def _is_looked_up(self, word: str, candidates: Candidates) -> bool:
        """Read turns until one says a word, nearly always the first. False if the index does not know which may."""
        turns = candidates.saying(word) if word in self.left else set()
        listed, at, count = sorted((turns or set()) - self._read_turns), 0, 1
        while word in self.left and at < len(listed):
            self._read_some(listed[at : at + count])
            at, count = at + count, min(2 * count, READ_AT_ONCE)
        return turns is not None

    def _read_some(self, turns: Sequence[int]) -> None:
        self.read(forgotten_rows.texts_of_turns(self._store, turns))
        self._read_turns.update(turns)


class _SoughtWords:
    """Finds which of some words a text has in any form, or an index takes from it."""

    def __init__(self, words: Collection[str], tokenize: Tokenize) -> None:
        self._tokenize = tokenize
        self._by_term: dict[str, set[str]] = {word: {word} for word in words}
        self._by_run: dict[tuple[str, ...], set[str]] = {}
        self._lengths: dict[str, set[int]] = {}
        self._beginnings = set[str]()
        for word in words:
            first, *more = stems = tokenize(word) or [""]
            if more:
                self._by_run.setdefault(tuple(stems), set()).add(word)
                self._lengths.setdefault(first, set()).add(len(stems))
            else:
                self._by_term.setdefault(first, set()).add(word)
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
        terms = self._by_term.keys() & {*stems, *found.text, *found.parts}
        runs = (tuple(stems[at : at + size]) for at, stem in enumerate(stems) for size in self._lengths.get(stem, ()))
        return set().union(*(self._by_term[term] for term in terms), *(self._by_run.get(run, ()) for run in runs))
