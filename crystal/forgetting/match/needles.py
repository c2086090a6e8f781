"""Build the patterns of a proof: the forgotten text in every form in which a file can hold it. Pure, in memory only.

A text is searched for as a whole, and in stretches short enough that a quotation contains one. Its rare words are
searched for separately, also as index terms. Text that also occurs elsewhere proves nothing and is left out: see
``staying``.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from crystal.forgetting.match.multi_pattern import MAX_LENGTH, MIN_LENGTH, MultiPatternMatcher
from crystal.forgetting.match.terms import QUOTE, folded, goes_on
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
BATCH = 1 << 18
PACKAGE = Path(__file__).resolve().parents[2]

_WORD = re.compile(r"[^\W_]+(?:['_.-][^\W_]+)*")
_PLAIN = re.compile(r"[^\W_]+")
_NAMING = re.compile(r"[^\W\da-fA-F_]")
_NEWLINE = re.compile(rb"\n")
_ESCAPED = re.compile(rb"\\(?:[bfnrt]|u[0-9a-fA-F]{4})\Z")
_LOOSE: dict[str, str] = {"encoding": "utf-8", "errors": "ignore"}
_HEX = re.compile(r"\\u[0-9a-f]{4}")
_GO = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"})


@dataclass(frozen=True, slots=True)
class Needles:
    """Patterns of a proof. Never written to disk.

    Attributes:
        seeker: Finds stretches, lines and whole texts in all forms, then rare words in their original and indexed form.
        texts: Number of its strings that are not words.
        stems: The rare words as terms of the keyword index.
        lines, memories: The forgotten ids.
        asked: Number of forgotten texts.
        by_rows_only: Number of texts that are too short or also occur elsewhere, so that only the rows can be checked.
        whole: Finds whole texts, folded: anything that contains one quotes it.
    """

    seeker: MultiPatternMatcher
    texts: int
    stems: tuple[str, ...] = ()
    lines: frozenset[str] = frozenset()
    memories: frozenset[str] = frozenset()
    asked: int = 0
    by_rows_only: int = 0
    whole: MultiPatternMatcher = field(default_factory=lambda: MultiPatternMatcher([]))

    def is_text(self, number: int) -> bool:
        """Return True if the match is a text, False if it is a single word."""
        return number < self.texts

    def find_in_lines(self, data: bytes) -> Iterator[tuple[int, int]]:
        """Find matches like ``seeker.find``, but words only at word borders."""
        for offset, number in self.seeker.find(data):
            if self.is_text(number) or not _is_joined(data, offset, offset + len(self.seeker.strings[number])):
                yield offset, number


@dataclass(frozen=True, slots=True)
class Archived:
    """Archived lines that stay. Their words prove nothing, unless the line repeats forgotten text.

    ``are_texts_known``: their texts prove nothing either, whatever the store holds of them.
    """

    lines: Iterable[bytes]
    are_texts_known: bool


def needles_of(
    texts: Iterable[str],
    *,
    words: Iterable[str] = (),
    staying: Iterable[str] = (),
    archived: Archived | None = None,
    is_said: Callable[[str], bool] = lambda _: False,
    tokenize: Tokenize | None = None,
    lines: Iterable[str] = (),
    memories: Iterable[str] = (),
) -> Needles:
    """Build the patterns for text that is about to be forgotten.

    Args:
        texts: The complete forgotten texts.
        words: Words that may not occur in any text any more; searched for as words only.
        staying: All retained visible text; what also occurs there is not searched for.
        archived: Retained archived lines.
        is_said: Returns True if an index term also occurs in retained text.
        tokenize: Splits a text into terms of the keyword index; None if there is no index.
        lines: Ids of the forgotten lines.
        memories: Ids of the forgotten memories.
    """
    whole = list(dict.fromkeys(text for text in texts if text.strip()))
    layers = {text: (stretches_of(text), lines_of(text), [text.strip()[:MAX_WHOLE]]) for text in whole}
    said = {word for text in (*whole, *words) for word in words_of(text)}
    stems = {stem for text in whole for stem in index_words(text, tokenize)} if tokenize else set()
    own = own_words(tokenize)
    said = {word for word in said if word.lower() not in own}
    stems -= own
    strings = {string for one in layers.values() for layer in one for string in layer}
    struck, common = _struck(strings, said | stems, staying)
    kept: set[str] = set()
    unseen = 0
    for one in layers.values():
        found = next((some for layer in one if (some := {each for each in layer if each not in struck})), set())
        usable = {each for each in found if len(each) >= WORD and len(each.encode("utf-8", "replace")) >= MIN_LENGTH}
        kept |= usable
        unseen += not usable
    stems = {stem for stem in stems - common if not is_said(stem)}
    said = {word for word in said - common if not is_said(word)}
    by_form = {form: string for string in kept for form in forms_of(string)}
    by_word = {form: word for word in said | stems for form in forms_of(word)}
    archived_too = set() if archived is None else _archived_too(by_form, by_word, archived)
    stems -= archived_too
    forms = {form for form, string in by_form.items() if string not in archived_too}
    small = {form for form, word in by_word.items() if word not in archived_too}
    long, short = (
        sorted(form for form in some if MIN_LENGTH <= len(form) <= MAX_LENGTH) for some in (forms, small - forms)
    )
    return Needles(
        MultiPatternMatcher([*long, *short]),
        len(long),
        tuple(sorted(stems)),
        frozenset(lines),
        frozenset(memories),
        len(whole),
        unseen,
        MultiPatternMatcher(
            sorted({data for text in whole if len(text) >= QUOTE and len(data := _folded(text)) <= MAX_LENGTH})
        ),
    )


def _is_joined(data: bytes, start: int, stop: int) -> bool:
    """Return True if the word continues before or after. If that is uncertain it counts as separate."""
    before = "" if _ESCAPED.search(data, max(0, start - 6), start) else data[max(0, start - 4) : start].decode(**_LOOSE)
    after = data[stop : stop + 4].decode(**_LOOSE)
    word = data[start:stop].decode(**_LOOSE)
    return goes_on(before[-1:], word[:1]) or goes_on(word[-1:], after[:1])


def with_bodies(needles: Needles, bodies: Iterable[bytes], staying: Iterable[bytes]) -> Needles:
    """Return needles that also find the forgotten texts in their compressed form in the store.

    They are searched for in stretches: any part of twice that length contains one. Bytes in common with retained texts
    are left out.
    """
    found = {body[at : at + BODY_STRETCH] for body in bodies for at in range(0, len(body), BODY_STRETCH)}
    found = {stretch for stretch in found if len(stretch) == BODY_STRETCH}
    seeker = MultiPatternMatcher(sorted(found))
    for body in staying if found else ():
        found -= {seeker.strings[number] for _, number in seeker.find(body)}
    strings = needles.seeker.strings
    texts = sorted({*strings[: needles.texts], *found})
    return replace(needles, seeker=MultiPatternMatcher([*texts, *strings[needles.texts :]]), texts=len(texts))


def _folded(text: str) -> bytes:
    return folded(text).encode("utf-8", "replace")


# --------------------------------------------------------------------------------------------------- taking apart


def lines_of(text: str) -> list[str]:
    """Return the lines of a text that are long enough."""
    found = (line.strip() for line in text.splitlines())
    return list(dict.fromkeys(line for line in found if LINE <= len(line) <= MAX_WHOLE))


def stretches_of(text: str) -> list[str]:
    """Return short lines, and long ones in stretches; the last stretch ends with the line."""
    found: list[str] = []
    for line in (line.strip() for line in text.splitlines()):
        if len(line) < LINE:
            continue
        starts = [*range(0, len(line) - STRETCH, STRETCH), max(0, len(line) - STRETCH)]
        found += (line[start : start + STRETCH] for start in starts)
    return list(dict.fromkeys(found))


def words_of(text: str) -> set[str]:
    """Return the words of a text that are names, and the parts of compounds, as written."""
    found = set(_WORD.findall(text)) | set(_PLAIN.findall(text))
    return {word for word in found if _names(word)}


def is_word(text: str) -> bool:
    """Return True if a text is a single word."""
    return _WORD.fullmatch(text) is not None


def index_words(text: str, tokenize: Tokenize) -> set[str]:
    """Return the same words as index terms."""
    words = document_words(tokenize, text, None)
    return {word for word in (*words.text, *words.parts) if _names(word)}


def _names(word: str) -> bool:
    """Return True if a word is long enough and not a number: numbers occur in files for other reasons."""
    return WORD <= len(word) <= 100 and _NAMING.search(word) is not None


def own_words(tokenize: Tokenize | None) -> frozenset[str]:
    """Return the words that crystal's own files contain anyway, as written and as index terms."""
    said = _own_words()
    if tokenize is None:
        return said
    if not _own_stems:  # all tokenizers are equal
        _own_stems.append(said | frozenset(tokenize(" ".join(sorted(said)))))
    return _own_stems[0]


_own_stems: list[frozenset[str]] = []


@cache
def _own_words() -> frozenset[str]:
    found: set[str] = set()
    for path in sorted((*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.sql"))):
        found |= {word.lower() for word in _PLAIN.findall(path.read_text("utf-8", "replace"))}
    return frozenset(found)


def _struck(strings: set[str], words: set[str], staying: Iterable[str]) -> tuple[set[str], set[str]]:
    """Return the strings that occur in retained text or are displayed alike, and the words in any case."""
    exact = _Struck({string: string for string in strings})
    shown = _Struck({string: line for string in strings if (line := one_line(string)) != string})
    folded = _Struck({word: word.lower() for word in words})
    for batch in _batches(staying):
        exact.look(batch)
        folded.look(batch.lower())
        if shown:
            shown.look(one_line(batch))
    return exact.found | shown.found, folded.found


def _archived_too(texts: Mapping[bytes, str], words: Mapping[bytes, str], archived: Archived) -> set[str]:
    """Return the words and texts that occur in archived lines which stay."""
    both = archived.are_texts_known
    long, short = (sorted(form for form in some if MIN_LENGTH <= len(form) <= MAX_LENGTH) for some in (texts, words))
    if not short and not (long and both):
        return set()
    seeking = Needles(MultiPatternMatcher([*long, *short]), len(long))
    found: set[str] = set()
    for text in archived.lines:
        ends = [match.start() for match in _NEWLINE.finditer(text)]
        hits = [(bisect_left(ends, offset), number) for offset, number in seeking.find_in_lines(text)]
        quoting = set() if both else {line for line, number in hits if seeking.is_text(number)}
        for line, number in hits:
            form = seeking.seeker.strings[number]
            if line not in quoting:
                found.add(texts[form] if seeking.is_text(number) else words[form])
    return found


class _Struck:
    """Strings seen so far; each is represented by its search pattern until it is seen."""

    def __init__(self, strings: Mapping[str, str]) -> None:
        self._known: dict[bytes, set[str]] = {}
        for string, sought in strings.items():
            data = sought.encode("utf-8", "replace")
            if MIN_LENGTH <= len(data) <= MAX_LENGTH:
                self._known.setdefault(data, set()).add(string)
        self._seeker = MultiPatternMatcher(sorted(self._known))
        self.found: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._known)

    def look(self, text: str) -> None:
        seen = {self._seeker.strings[number] for _, number in self._seeker.find(text.encode("utf-8", "replace"))}
        for data in seen & self._known.keys():
            self.found |= self._known.pop(data)
        if len(self._known) < 0.9 * len(self._seeker):  # a frequent string would be found again and again
            self._seeker = MultiPatternMatcher(sorted(self._known))


def _batches(texts: Iterable[str]) -> Iterator[str]:
    batch: list[str] = []
    size = 0
    for text in texts:
        batch.append(text)
        size += len(text)
        if size > BATCH:
            yield "\n".join(batch)
            batch, size = [], 0
    yield "\n".join(batch)


# ---------------------------------------------------------------------------------------------------------- forms


def forms_of(text: str) -> set[bytes]:
    """Return a string in the forms used in files: plain, JSON, JSON within JSON, Markdown and YAML, UTF-16."""
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
