"""Build the byte patterns of forgotten text: every form in which a file can hold it. Pure, in memory only.

A text is searched for in stretches short enough that a quotation contains one, or as a whole if it has no long line.
Its rare words are searched for separately.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache, lru_cache
from pathlib import Path

from crystal.forgetting.match.multi_pattern import MAX_LENGTH, MIN_LENGTH, MultiPatternMatcher
from crystal.forgetting.match.query_terms import QUOTE, folded, goes_on
from crystal.forgetting.match.window_hashes import WORD as HASHED
from crystal.forgetting.match.window_hashes import WindowHashes
from crystal.search.index.terms import Tokenize, document_words
from crystal.summarize.wording import escaped, one_line

LINE = 20
"""Minimum characters of a line that is searched for on its own."""

STRETCH = 32
"""Characters of a stretch; a quotation of twice as many from a longer line contains one."""

BODY_STRETCH = 24
"""Bytes of a compressed text: long enough not to match by chance."""

WORD = 5
"""Minimum characters of a word that is searched for."""

MAX_WHOLE = 16_384

WINDOW = 2 * HASHED
FAST_WINDOW = WINDOW + HASHED - 1
MAX_FAST = 1 << 20
"""Characters of texts whose forms of at least ``FAST_WINDOW`` bytes are searched for by eight hashes each; of more,
those of at least ``WINDOW`` bytes by one. Shorter ones are searched for by an automaton, which takes longer, and 100
times as much memory."""
MAX_FAST_BODIES = 8 << 20
"""Bytes of compressed texts whose parts are searched for by eight hashes each, which takes 80 MB at most."""
MAX_TEXTS = 64
MAX_SOURCES = 50_000
"""Texts whose forms are remembered, because matches of a text are close together; and forms that were found."""
PACKAGE = Path(__file__).resolve().parents[2]

Source = str | bytes
"""Value that a pattern is made from: a stretch, a word, or bytes of a compressed text."""

_WORD = re.compile(r"[^\W_]+(?:['_.-][^\W_]+)*")
_PLAIN = re.compile(r"[^\W_]+")
_NAMING = re.compile(r"[^\W\da-fA-F_]")
_MOMENT = re.compile(r"\d[-'_.\dTZtz]*")
_ESCAPED = re.compile(rb"\\(?:[bfnrt]|u[0-9a-fA-F]{4})\Z")
_LOOSE: dict[str, str] = {"encoding": "utf-8", "errors": "ignore"}
_SIMPLE = re.compile(r"[A-Za-z][A-Za-z0-9,.;:'()-]*(?: [A-Za-z0-9,.;:'()-]+)*")
"""A string that looks the same in every form."""
_HEX = re.compile(r"\\u[0-9a-f]{4}")
_GO = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"})


def stretches_of(text: str) -> list[str]:
    """Return short lines, and long ones in stretches; the whole text if no line is long enough, nothing of a tiny one.

    The last stretch of a line ends with the line.
    """
    found: list[str] = []
    for line in (line.strip() for line in text.splitlines()):
        if len(line) < LINE:
            continue
        starts = [*range(0, len(line) - STRETCH, STRETCH), max(0, len(line) - STRETCH)]
        found += (line[start : start + STRETCH] for start in starts)
    whole = text.strip()[:MAX_WHOLE]
    if not found and len(whole) >= WORD and len(whole.encode("utf-8", "replace")) >= MIN_LENGTH:
        found.append(whole)
    return list(dict.fromkeys(found))


class PatternSet:
    """Stretches of texts, and words, in all their forms, and bytes as they are, searched for in one pass.

    Args:
        texts: What is searched for in stretches.
        words: What is searched for as a whole.
        bodies: The hashes of ``body_stretches``, or None.
        split: Returns the stretches of a text.
    """

    def __init__(
        self,
        texts: Iterable[str],
        words: Iterable[str] = (),
        bodies: WindowHashes | None = None,
        split: Callable[[str], list[str]] = stretches_of,
    ) -> None:
        self._texts, self._words, self._split = list(texts), list(words), split
        self._bodies = WindowHashes(()) if bodies is None else bodies
        self._longest = BODY_STRETCH
        is_fast = sum(map(len, self._texts)) <= MAX_FAST
        known: dict[bytes, str] = {}
        self._windows = WindowHashes(self._long_forms(FAST_WINDOW if is_fast else WINDOW, known), is_fast=is_fast)
        self._matcher = MultiPatternMatcher(sorted(known))
        self._known = [known[form] for form in self._matcher.strings]
        self._forms = lru_cache(MAX_TEXTS)(lambda number: dict(self._forms_from(number)))
        self._source = lru_cache(MAX_SOURCES)(lambda number, form: self._forms(number)[form])

    def _forms_from(self, number: int) -> Iterator[tuple[bytes, str]]:
        """Yield the forms of a word or of the stretches of a text, each with its source."""
        at = number - len(self._texts)
        for source in self._split(self._texts[number]) if at < 0 else [self._words[at]]:
            yield from ((form, source) for form in forms_of(source) if MIN_LENGTH <= len(form) <= MAX_LENGTH)

    def _long_forms(self, least: int, others: dict[bytes, str]) -> Iterator[tuple[bytes, int]]:
        """Yield the forms of so many bytes, each with what it is a form of; put shorter ones into ``others``."""
        for number in range(len(self._texts) + len(self._words)):
            for form, source in self._forms_from(number):
                self._longest = max(self._longest, len(form))
                if len(form) < least:
                    others[form] = source
                else:
                    yield form, number

    def find(self, pieces: Iterable[bytes]) -> Iterator[tuple[int, int, Source]]:
        """Yield the start, the end and the source of every match in a file that is read in pieces."""
        kept, at = b"", 0
        for piece in pieces:
            data = kept + piece
            for start, end, source in self._matches(data):
                if end > len(kept):
                    yield at - len(kept) + start, at - len(kept) + end, source
            at += len(piece)
            kept = data[max(0, len(data) - self._longest + 1) :]

    def _matches(self, data: bytes) -> Iterator[tuple[int, int, Source]]:
        yield from self._forms_in(data)
        for start, end, _ in self._bodies.find(data):
            yield start, end, data[start:end]

    def _forms_in(self, data: bytes) -> Iterator[tuple[int, int, Source]]:
        for start, number in self._matcher.find(data):
            yield start, start + len(self._matcher.strings[number]), self._known[number]
        for start, end, number in self._windows.find(data):
            yield start, end, self._source(number, data[start:end])

    def find_in_lines(self, data: bytes) -> Iterator[tuple[int, Source]]:
        """Yield the start and the source of every match in JSON lines, words only at word borders.

        Nothing in them is a compressed text, which is no text that JSON can hold.
        """
        for start, end, source in self._forms_in(data):
            if not (is_word(source) and _is_joined(data, start, end)):
                yield start, source


class TextMatcher:
    """Finds the lines of archives that repeat forgotten texts.

    Args:
        texts: The forgotten texts.
        words: Words that no other text has.

    Attributes:
        quotable: The texts that ``is_quoted`` looks for, folded.
    """

    def __init__(self, texts: Iterable[str], words: Iterable[str]) -> None:
        texts = list(texts)
        self._patterns = PatternSet(texts, words)
        forms = {folded(text).encode("utf-8", "replace") for text in texts if len(text) >= QUOTE}
        forms = {form for form in forms if WINDOW <= len(form) <= MAX_LENGTH}
        self.quotable = [form.decode() for form in forms]
        is_fast = all(len(form) >= FAST_WINDOW for form in forms)
        self._whole = WindowHashes(((form, 0) for form in forms), is_fast=is_fast)

    def find(self, data: bytes) -> Iterator[int]:
        """Yield the places where some lines share a stretch or a word with a text."""
        return (start for start, _ in self._patterns.find_in_lines(data))

    def is_quoted(self, texts: Iterable[str]) -> bool:
        """Return True if one of some readable texts holds a whole forgotten one."""
        return any(True for _ in self._whole.find("\0".join(texts).encode("utf-8", "replace")))


def _is_joined(data: bytes, start: int, end: int) -> bool:
    """Return True if the word continues before or after. If that is uncertain it counts as separate."""
    before = "" if _ESCAPED.search(data, max(0, start - 6), start) else data[max(0, start - 4) : start].decode(**_LOOSE)
    after = data[end : end + 4].decode(**_LOOSE)
    word = data[start:end].decode(**_LOOSE)
    return goes_on(before[-1:], word[:1]) or goes_on(word[-1:], after[:1])


# --------------------------------------------------------------------------------------------------- taking apart


def body_stretches(bodies: Iterable[bytes]) -> WindowHashes:
    """Return the hashes of parts of compressed texts: any part of a text of twice their length contains one."""
    bodies = list(bodies)
    starts = ((body, at) for body in bodies for at in range(0, len(body) - BODY_STRETCH + 1, BODY_STRETCH))
    stretches = ((body[at : at + BODY_STRETCH], 0) for body, at in starts)
    if sum(map(len, bodies)) <= MAX_FAST_BODIES:
        return WindowHashes(stretches, is_fast=True)
    return WindowHashes(stretches, BODY_STRETCH // HASHED)


def words_of(text: str) -> set[str]:
    """Return the words of a text that are names, and the parts of compounds, as written."""
    found = set(_WORD.findall(text)) | set(_PLAIN.findall(text))
    return {word for word in found if _names(word) and word.lower() not in own_words()}


def is_word(source: Source) -> bool:
    """Return True if a text is a single word."""
    return isinstance(source, str) and _WORD.fullmatch(source) is not None


def index_words(texts: Iterable[str], tokenize: Tokenize) -> set[str]:
    """Return the same words of some texts as terms of an index."""
    found = set[str]()
    for text in texts:
        words = document_words(tokenize, text, None)
        found.update(words.text, words.parts)
    own = own_words().union(tokenize(" ".join(sorted(own_words()))))
    return {word for word in found if _names(word) and word not in own}


def _names(word: str) -> bool:
    """Return True if a word is long enough and neither a number nor a time: files have those for other reasons."""
    return WORD <= len(word) <= 100 and _NAMING.search(word) is not None and _MOMENT.fullmatch(word) is None


@cache
def own_words() -> frozenset[str]:
    """Return the words that crystal's own files contain anyway."""
    found: set[str] = set()
    for path in sorted(path for suffix in ("py", "sql", "tsv") for path in PACKAGE.rglob(f"*.{suffix}")):
        found.update(_PLAIN.findall(path.read_text("utf-8", "replace")))
    return frozenset(map(str.lower, found))


# ---------------------------------------------------------------------------------------------------------- forms


def forms_of(text: str) -> set[bytes]:
    """Return a string in the forms used in files: plain, JSON, JSON within JSON, Markdown and YAML, UTF-16."""
    if _SIMPLE.fullmatch(text):
        return {text.encode(name) for name in ("ascii", "utf-16-le", "utf-16-be")}
    plain = json.dumps(text, ensure_ascii=False)[1:-1]
    ascii_only = json.dumps(text)[1:-1]
    once = {plain, plain.translate(_GO), ascii_only, ascii_only.translate(_GO)}
    once |= {_HEX.sub(lambda match: "\\u" + match[0][2:].upper(), each) for each in once}
    once |= {each.replace("/", "\\/") for each in once}
    twice = {json.dumps(each, ensure_ascii=False)[1:-1] for each in once}
    line = one_line(text)
    marked = {line, escaped(line), json.dumps(escaped(line), ensure_ascii=False)[1:-1]}
    found = {each.encode("utf-8", "surrogatepass") for each in (text, *once, *twice, *marked) if each}
    return found | {text.encode(name, "surrogatepass") for name in ("utf-16-le", "utf-16-be")}
