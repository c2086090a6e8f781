"""Parse a query into what can be looked up: quoted phrases, identifiers, words. Pure; accepts any string."""

from __future__ import annotations

import re

from crystal.model.quick_dataclass import dataclass, replace
from crystal.text.lazy_pattern import lazy_pattern

MAX_CHARACTERS = 10_000
"""Maximum length of a query; a longer one is a pasted log, whose beginning says what it is about."""

MAX_TERMS = 64
MAX_PAIRS = 12
MAX_NAMES = 8
SHOWN = 80
"""Maximum characters of a name in a note."""

_STOP_WORDS = """
a an and are as at be been but by did do does for from has have he her his how i in into is it its me my of on or our
she that the their them there these they this to was we were what when where which who why will with you your
i'm i've i'd i'll you're you've it's he's she's we're we've they're they've that's there's how's let's what's where's
who's
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())
"""Few on purpose: more would reduce quality on technical text (measured: docs/adr/0008-search.md)."""

_GENERIC_WORDS = """
about all anything conversation conversations discuss discussed doing done everything give happen happened happening
last latest list made make recent said say session sessions show summarize talk talked talking tell then thing things
us work worked working recap remind go going went gone get got us just else
"""
_GENERIC = frozenset(_GENERIC_WORDS.split())
"""Words without content of their own beside a time."""

ENDINGS = """
ational tional ation ization izations ations ator ators alism iveness fulness ousness ness ality alities ivity ivities
bility bilities ology ologies ency encies ancy ancies ence ences ance ances izer izers ably ibly ally ently ely ously
ingly edly icate ative atives alize ize ized izes izing icity ical ically ful fully able ible ement ements ment ments
ent ents ant ants ion ions sion sions ism isms ate ated ates ating ous ive ives ing ings ed es ies ied er ers al als ity
ities
""".split()

_UNUSABLE = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]+")
_QUOTED = re.compile(
    '"([^"]*)"|\uff02([^\uff02]*)\uff02|[\u201c\u201f]([^\u201c\u201d]*)\u201d|\u201e([^\u201e\u201c\u201d]*)[\u201c\u201d]'
    "|\u201d([^\u201c\u201d]*)\u201d|\u00ab([^\u00ab\u00bb]*)\u00bb|\u00bb([^\u00ab\u00bb]*)\u00ab"
    "|\u300c([^\u300c\u300d]*)\u300d|\u300e([^\u300e\u300f]*)\u300f|\u301d([^\u301d-\u301f]*)[\u301e\u301f]"
)
# What ordinary words with a hyphen or apostrophe lack: characters of paths, calls and versions, digits, many hyphens.
_NAME = re.compile(r"[^\w'\u2019-]|[\d_]|-.*-")
# Vowel signs, accents and other marks, which ``\w`` does not match although they are parts of words.
MARKS = (
    "\u0300-\u036f\u0483-\u0489\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06dc"
    "\u06df-\u06e4\u06e7\u06e8\u06ea-\u06ed\u0711\u0730-\u074a\u07a6-\u07b0\u0816-\u0819\u081b-\u0823\u0825-\u0827\u0829-\u082d\u08d3-\u0903\u093a-\u093c\u093e-\u094f"
    "\u0951-\u0957\u0962\u0963\u0981-\u0983\u09bc\u09be-\u09cd\u09d7\u09e2\u09e3\u0a01-\u0a03\u0a3c-\u0a51\u0a70\u0a71\u0a75"
    "\u0a81-\u0a83\u0abc\u0abe-\u0acd\u0ae2\u0ae3\u0b01-\u0b03\u0b3c\u0b3e-\u0b57\u0b62\u0b63\u0b82\u0bbe-\u0bcd\u0bd7"
    "\u0c00-\u0c04\u0c3c\u0c3e-\u0c56\u0c62\u0c63\u0c81-\u0c83\u0cbc\u0cbe-\u0cd6\u0ce2\u0ce3\u0d00-\u0d03\u0d3b\u0d3c"
    "\u0d3e-\u0d4d\u0d57\u0d62\u0d63\u0d81-\u0d83\u0dca-\u0ddf\u0df2\u0df3\u0e31\u0e34-\u0e3a\u0e47-\u0e4e\u0eb1\u0eb4-\u0ebc"
    "\u0ec8-\u0ece\u0f18\u0f19\u0f35\u0f37\u0f39\u0f3e\u0f3f\u0f71-\u0f84\u0f86\u0f87\u0f8d-\u0fbc\u102b-\u103e\u1056-\u1059"
    "\u105e-\u1060\u1062-\u1064\u1067-\u106d\u1071-\u1074\u1082-\u108d\u108f\u109a-\u109d\u17b4-\u17d3\u17dd\u200c\u200d\u20d0-\u20f0"
)
_PIECE = re.compile(rf"(?:[^\W_][{MARKS}]*)+")
_EDGES = re.compile(rf"^[\W_]+|(?:(?![{MARKS}])[\W_])+$")
# Han, kana, Hangul, Thai, Lao, Burmese, Khmer: for the index, all text between two punctuation marks is one word.
UNSPACED = lazy_pattern(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3\uf900-\ufaff\uff66-\uff9d"
    "\U00020000-\U000323af]+"
)
_POSSESSIVE = re.compile("['\u2019][sS]$")


@dataclass(frozen=True, slots=True)
class Query:
    """A parsed question.

    Attributes:
        text: The question as valid Unicode without control characters.
        phrases: Texts in quotation marks, which an answer must contain.
        compounds: Words that the index stores as several: ``foo_bar.baz()``, ``src/a/b.py``, ``v1.2.3``.
        terms: Single words, those of the compounds too, without stop words.
        is_literal: The whole question is one compound, so something exact is wanted.
    """

    text: str
    phrases: tuple[str, ...]
    compounds: tuple[str, ...]
    terms: tuple[str, ...]
    is_literal: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """Return the identifiers, paths, versions and the like, unless the whole question is one of them."""
        found = [name for name in (*self.phrases, *self.compounds) if " " not in name and _NAME.search(name)]
        return () if self.is_literal else tuple(found[:MAX_NAMES])

    @property
    def has_words(self) -> bool:
        """Return True if there is anything to look up in a keyword index."""
        return bool(self.phrases or self.compounds or self.terms)

    @property
    def has_meaning(self) -> bool:
        """Return True if search by meaning is useful when no word is found: not so for ``ERR-4711`` or ``x.y()``."""
        return not self.has_words or (not self.is_literal and any(term.isalpha() for term in self.terms))


def without_phrases(asked: Query) -> Query:
    """Return the same question with the quoted words as separate words."""
    words = [word for phrase in asked.phrases for word in phrase.split()]
    compounds, terms = _sorted_out([word for word in words if not _is_stop(word)] or words)
    return replace(
        asked,
        phrases=(),
        compounds=_distinct([*asked.compounds, *compounds]),
        terms=_distinct([*asked.terms, *terms]),
    )


def parse_query(text: str) -> Query:
    """Parse a question; any string is accepted."""
    clean = " ".join(_UNUSABLE.sub(" ", text[:MAX_CHARACTERS]).split())
    phrases: list[str] = []

    def take(match: re.Match[str]) -> str:
        quoted = next(group for group in match.groups() if group is not None).strip()
        if _PIECE.search(quoted):
            phrases.append(quoted)
        return " "

    words = _QUOTED.sub(take, clean).split()
    kept = [word for word in words if not _is_stop(word)]
    if not kept and not phrases:
        kept = words
    compounds, terms = _sorted_out(kept)
    alone = len(words) == 1 and not phrases and bool(compounds)
    return Query(clean, _distinct(phrases), compounds, terms, is_literal=alone)


def in_short(name: str) -> str:
    """Return a name or phrase, shortened for a note."""
    return name if len(name) <= SHOWN else f"{name[:SHOWN]}..."


def has_content(text: str) -> bool:
    """Return True if a text has words other than time words and fillers; ``what did we do`` has none."""
    words = [_EDGES.sub("", word).casefold().replace("\u2019", "'") for word in _UNUSABLE.sub(" ", text).split()]
    return any(word and word not in STOP_WORDS and word not in _GENERIC for word in words)


def completions(word: str) -> tuple[str, ...]:
    """Return possible completions of a word with a cut-off English ending: ``organizatio`` gives ``organization``."""
    if not (word.isascii() and word.isalpha()):
        return ()
    small = word.lower()
    cuts = ((ending, at) for ending in ENDINGS for at in range(1, len(ending)) if small.endswith(ending[:at]))
    return tuple(dict.fromkeys(word + ending[at:] for ending, at in cuts))


def unspaced_pairs(text: str) -> tuple[str, ...]:
    """Return the substrings to look up in scripts without spaces: pairs of neighbouring characters, or a lone one."""
    runs = UNSPACED.findall(text)
    return tuple(dict.fromkeys(pair for run in runs for pair in character_pairs(run)))[:MAX_PAIRS]


def character_pairs(run: str) -> list[str]:
    """Return the pairs of neighbouring characters of a run, in order; a lone character is returned alone."""
    return [run[at : at + 2] for at in range(max(1, len(run) - 1))]


def _is_stop(word: str) -> bool:
    return _EDGES.sub("", word).casefold().replace("\u2019", "'") in STOP_WORDS


def _sorted_out(words: list[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    compounds: list[str] = []
    terms: list[str] = []
    for word in words:
        core = _POSSESSIVE.sub("", _EDGES.sub("", word))
        pieces = _PIECE.findall(core)
        if len(pieces) > 1:
            compounds.append(core)
            useful = [piece for piece in pieces if piece.casefold() not in STOP_WORDS]
            terms += useful or pieces
        else:
            terms += pieces
    return _distinct(compounds), _distinct(terms)


def _distinct(words: list[str]) -> tuple[str, ...]:
    found: dict[str, str] = {}
    for word in words:
        found.setdefault(word.casefold(), word)
    return tuple(found.values())[:MAX_TERMS]
