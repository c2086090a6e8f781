"""What a proof looks for: the forgotten words, in every form in which a file can hold them. Pure, in memory only.

A text is looked for in stretches short enough that a quotation of it holds one, and whole; its rare words are looked
for by themselves, also in the form in which an index holds them. What is also said elsewhere proves nothing, and is
struck off before: see ``staying``.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from crystal.forgetting.match.multi_pattern import LONGEST, SHORTEST, Seeker
from crystal.forgetting.match.terms import QUOTE, folded, goes_on
from crystal.search.index.terms import Tokenize, document_words
from crystal.summarize.wording import escaped, one_line

LINE = 20
"""Characters; a shorter line says too little to be looked for alone."""

STRETCH = 32
"""Characters; whoever quotes twice as many of a longer line quotes one of its stretches."""

BODY_STRETCH = 24
"""Bytes of a compressed text: so many do not come up by chance."""

WORD = 5
"""Characters of the shortest word that is looked for."""

MOST_WHOLE = 16_384
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
    """What is looked for. Never written anywhere.

    Attributes:
        seeker: Seeks stretches, lines and whole texts in all forms, then rare words as they were said and indexed.
        texts: How many of its strings are not words.
        stems: The rare words as the keyword index has them.
        lines, memories: The ids of what was forgotten.
        asked: How many texts were forgotten.
        by_rows_only: How many of them are too short, or also said elsewhere, so that only rows can prove them gone.
        whole: Seeks the texts as a whole, folded: what holds one of them quotes it.
    """

    seeker: Seeker
    texts: int
    stems: tuple[str, ...] = ()
    lines: frozenset[str] = frozenset()
    memories: frozenset[str] = frozenset()
    asked: int = 0
    by_rows_only: int = 0
    whole: Seeker = field(default_factory=lambda: Seeker([]))

    def is_text(self, number: int) -> bool:
        """Whether what was found is a text, or else a word."""
        return number < self.texts

    def find_in_lines(self, data: bytes) -> Iterator[tuple[int, int]]:
        """The same as ``seeker.find`` for text with borders between words: a word in another word is not meant."""
        for offset, number in self.seeker.find(data):
            if self.is_text(number) or not _is_joined(data, offset, offset + len(self.seeker.strings[number])):
                yield offset, number


@dataclass(frozen=True, slots=True)
class Archived:
    """Archived lines that stay. A word of theirs proves nothing, unless its line repeats what is looked for.

    ``are_texts_known``: their texts prove nothing, either, whatever the store says of them.
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
    """Make needles of what is about to be forgotten.

    Args:
        texts: The forgotten texts, whole.
        words: Words that may stand in no text any more; looked for as words only.
        staying: Everything that stays, as far as people can see it: what it says too is not looked for.
        archived: What archives say that stay.
        is_said: Whether a word, as an index has it, is also a word of what stays.
        tokenize: The words of a text in the form of the keyword index; None where no index is.
        lines: The ids of the forgotten lines.
        memories: The ids of the forgotten memories.
    """
    whole = list(dict.fromkeys(text for text in texts if text.strip()))
    layers = {text: (stretches_of(text), lines_of(text), [text.strip()[:MOST_WHOLE]]) for text in whole}
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
        usable = {each for each in found if len(each) >= WORD and len(each.encode("utf-8", "replace")) >= SHORTEST}
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
    long, short = (sorted(form for form in some if SHORTEST <= len(form) <= LONGEST) for some in (forms, small - forms))
    return Needles(
        Seeker([*long, *short]),
        len(long),
        tuple(sorted(stems)),
        frozenset(lines),
        frozenset(memories),
        len(whole),
        unseen,
        Seeker(sorted({data for text in whole if len(text) >= QUOTE and len(data := _folded(text)) <= LONGEST})),
    )


def _is_joined(data: bytes, start: int, stop: int) -> bool:
    """Whether a word goes on before or after; where that is not sure it stands alone."""
    before = "" if _ESCAPED.search(data, max(0, start - 6), start) else data[max(0, start - 4) : start].decode(**_LOOSE)
    after = data[stop : stop + 4].decode(**_LOOSE)
    word = data[start:stop].decode(**_LOOSE)
    return goes_on(before[-1:], word[:1]) or goes_on(word[-1:], after[:1])


def with_bodies(needles: Needles, bodies: Iterable[bytes], staying: Iterable[bytes]) -> Needles:
    """Return needles that also look for the forgotten texts as the store has them, compressed.

    They are sought in stretches: twice as many bytes of one hold a whole stretch. What those that stay have in common
    with them is not looked for.
    """
    found = {body[at : at + BODY_STRETCH] for body in bodies for at in range(0, len(body), BODY_STRETCH)}
    found = {stretch for stretch in found if len(stretch) == BODY_STRETCH}
    seeker = Seeker(sorted(found))
    for body in staying if found else ():
        found -= {seeker.strings[number] for _, number in seeker.find(body)}
    strings = needles.seeker.strings
    texts = sorted({*strings[: needles.texts], *found})
    return replace(needles, seeker=Seeker([*texts, *strings[needles.texts :]]), texts=len(texts))


def _folded(text: str) -> bytes:
    return folded(text).encode("utf-8", "replace")


# --------------------------------------------------------------------------------------------------- taking apart


def lines_of(text: str) -> list[str]:
    """The lines of a text that say enough."""
    found = (line.strip() for line in text.splitlines())
    return list(dict.fromkeys(line for line in found if LINE <= len(line) <= MOST_WHOLE))


def stretches_of(text: str) -> list[str]:
    """Short lines, and long ones in stretches; the last one of a line ends with it."""
    found: list[str] = []
    for line in (line.strip() for line in text.splitlines()):
        if len(line) < LINE:
            continue
        starts = [*range(0, len(line) - STRETCH, STRETCH), max(0, len(line) - STRETCH)]
        found += (line[start : start + STRETCH] for start in starts)
    return list(dict.fromkeys(found))


def words_of(text: str) -> set[str]:
    """The words of a text that name something, and the parts of compound ones, as they stand there."""
    found = set(_WORD.findall(text)) | set(_PLAIN.findall(text))
    return {word for word in found if _names(word)}


def is_word(text: str) -> bool:
    """Whether a text is a single word."""
    return _WORD.fullmatch(text) is not None


def index_words(text: str, tokenize: Tokenize) -> set[str]:
    """The same as indexes hold them."""
    words = document_words(tokenize, text, None)
    return {word for word in (*words.text, *words.parts) if _names(word)}


def _names(word: str) -> bool:
    """Whether a word is long enough, and no number in any notation: those stand in files for other reasons."""
    return WORD <= len(word) <= 100 and _NAMING.search(word) is not None


def own_words(tokenize: Tokenize | None) -> frozenset[str]:
    """The words that crystal's own files are full of: what its program says, as said and as an index has it."""
    said = _own_words()
    if tokenize is None:
        return said
    if not _own_stems:  # every tokenizer is the same
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
    """Those of some strings that stand in what stays, or are shown like it, and those of some words in any case."""
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
    """Those of some words and texts that stand in archived lines which stay."""
    both = archived.are_texts_known
    long, short = (sorted(form for form in some if SHORTEST <= len(form) <= LONGEST) for some in (texts, words))
    if not short and not (long and both):
        return set()
    seeking = Needles(Seeker([*long, *short]), len(long))
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
    """Which strings were seen; each is known by what is looked for in its place, until it is seen."""

    def __init__(self, strings: Mapping[str, str]) -> None:
        self._known: dict[bytes, set[str]] = {}
        for string, sought in strings.items():
            data = sought.encode("utf-8", "replace")
            if SHORTEST <= len(data) <= LONGEST:
                self._known.setdefault(data, set()).add(string)
        self._seeker = Seeker(sorted(self._known))
        self.found: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._known)

    def look(self, text: str) -> None:
        seen = {self._seeker.strings[number] for _, number in self._seeker.find(text.encode("utf-8", "replace"))}
        for data in seen & self._known.keys():
            self.found |= self._known.pop(data)
        if len(self._known) < 0.9 * len(self._seeker):  # what is said often would be found again and again
            self._seeker = Seeker(sorted(self._known))


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
    """A string as files hold it: plain, in JSON, in JSON within JSON, in Markdown and YAML, in UTF-16."""
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
