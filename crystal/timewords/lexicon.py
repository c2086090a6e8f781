"""Load the words of ``lexicon.json`` with their tags, and the patterns of ``grammar.json`` over these tags.

``lexicon.json`` has an object for each language: a tag, and its phrases, separated by commas. A list
numbers its values from 1 (``month``), an object names them. Case and accents are ignored. A phrase may have several
tags.

A pattern such as ``<number> <unit> ago`` is beside the name of the function in ``meanings`` that reads its matches.
``<tag>`` and ``<name=tag>`` are groups, capitals are macros, spaces are ignored.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from crystal.model.quick_dataclass import dataclass

_FOLDER = Path(__file__).parent
_MARKS = "[\u0300-\u036f]+"
_TAG = r"<(?:(\w+)=)?(\w+)>|(\w+)|\s+"
_OTHER_TAGS = ("word", "hidden", "comma", "dot", "dash strong_link", "strong_link", "slash", "sign",
               "number", "number day", "nth day", "number year", "date", "short_date", "time",
               "time weekday_time")  # fmt: skip
"""Tags that depend on a token's form instead of the lexicon."""

_CUES = frozenset(
    "month short_month weekday short_weekday season unit half_year day_word night quarter relative_year".split()
)

Tags = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Lexicon:
    """The phrases of all languages.

    Attributes:
        phrases: The tags of a phrase and their values, by its folded words.
        words: All single words of the phrases.
        cues: The first words of phrases that may be a time without a number.
        symbols: One character for each set of tags that a token may have.
    """

    phrases: Mapping[str, Tags]
    words: frozenset[str]
    cues: frozenset[str]
    symbols: Mapping[frozenset[str], str]


def fold(text: str) -> str:
    """Remove case and accents; Japanese and Korean characters stay whole."""
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFC", re.sub(_MARKS, "", unicodedata.normalize("NFD", text))).lower()


@cache
def lexicon() -> Lexicon:
    """Read the words, once per process."""
    phrases: dict[str, dict[str, str]] = {}
    for language, tags in json.loads(fold((_FOLDER / "lexicon.json").read_text("utf-8"))).items():
        for tag, values in tags.items():
            more = {language: ""} if tag == "function" else {}
            for value, listed in _by_value(values):
                for phrase in filter(None, listed.split(", ")):
                    key = " ".join(phrase.replace("'", " ").replace("-", " - ").split())
                    phrases.setdefault(key, {}).update({tag: value}, **more)
    sets = dict.fromkeys([*(frozenset(tags.split()) for tags in _OTHER_TAGS), *map(frozenset, phrases.values())])
    words = frozenset(word for phrase in phrases for word in phrase.split())
    cues = frozenset(phrase.split()[0] for phrase, tags in phrases.items() if not _CUES.isdisjoint(tags))
    return Lexicon(phrases, words, cues, {tags: chr(at) for at, tags in enumerate(sets)})


def may_name_time(text: str) -> bool:
    """Return whether a pattern may match, so that most questions take almost no time."""
    if any(character.isdigit() or character >= "\u3040" for character in text):  # scripts without spaces begin there
        return True
    return not lexicon().cues.isdisjoint(re.findall(r"\w+", fold(text)))


@cache
def patterns() -> list[tuple[re.Pattern[str], Mapping[str, str], str]]:
    """Compile the patterns, once per process: an expression over symbols, the tags of its groups, a meaning."""
    grammar = json.loads((_FOLDER / "grammar.json").read_text("utf-8"))
    compiled: list[tuple[re.Pattern[str], Mapping[str, str], str]] = []
    for written, meaning in grammar["patterns"]:
        pattern = re.sub(r"\b[A-Z_]+\b", lambda match: grammar["macros"][match[0]], written)
        names = {match[1] or match[2]: match[2] for match in re.finditer(_TAG, pattern) if match[2]}
        expression = re.sub(_TAG, _expression, pattern.replace("(", "(?:"))
        compiled.append((re.compile(expression), names, meaning))
    return compiled


def _expression(match: re.Match[str]) -> str:
    tag = match[2] or match[3]
    if tag is None:
        return ""
    symbols = re.escape("".join(symbol for tags, symbol in lexicon().symbols.items() if tag in tags))
    return f"(?P<{match[1] or tag}>[{symbols}])" if match[2] else f"[{symbols}]"


def _by_value(values: Any) -> Iterable[tuple[str, str]]:
    if isinstance(values, str):
        return [("", values)]
    return values.items() if isinstance(values, dict) else [(str(at), words) for at, words in enumerate(values, 1)]
