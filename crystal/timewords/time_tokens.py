"""Split a question into tokens with the tags of the lexicon. Quotations, names, paths, versions and code are hidden."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from crystal.timewords.lexicon import Tags, fold, lexicon

_QUOTED = re.compile(
    "\"[^\"]*\"|`[^`]*`|(?<![^\\s(])'[^']*'(?!\\w)|\u2018[^\u2018\u2019]*\u2019(?!\\w)"
    "|\u201c[^\u201c\u201d]*\u201d|\u201e[^\u201c\u201d]*[\u201c\u201d]|\u00ab[^\u00bb]*\u00bb|\u00bb[^\u00ab]*\u00ab"
    "|\u300c[^\u300d]*\u300d|\u300e[^\u300f]*\u300f"
)
_CHUNK = re.compile(
    "(?P<unspaced>[\u3005\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3]+)"
    "|(?P<spaced>[^\\s\u3000-\u9fff\uac00-\ud7a3\uff01-\uff0f\uff1a-\uff20]+)|(?P<sign>\\S)"
)
_EDGE = "[][.,;:!?(){}<>'\"\u2019\u2026*~\0-]*"
_MONTH = r"(0?[1-9]|1[0-2])"
_TIME = r"(?:T[\d:.]{4,15}(?:Z|[+-]\d\d:?\d\d)?)?"
_DATES = [
    (re.compile(f"{_EDGE}(?P<date>{form})(?:['\u2019]s)?{_EDGE}"), tag, order)
    for form, tag, order in (
        (rf"((?:19|20)\d\d)([-/]){_MONTH}(?:\3(\d\d?){_TIME})?", "date", "y-md"),
        (r"(\d\d?)\.(\d\d?)\.(\d{4})", "date", "dmy"),
        (r"(\d\d?)\.(\d\d?)\.(\d\d)?", "short_date", "dmy"),
        (r"(\d\d?)/(\d\d?)/(\d{4}|\d\d)", "date", "mdy"),
        (rf"{_MONTH}/((?:19|20)\d\d)", "date", "my"),
    )
]
_CODE = re.compile(r"[_\\@=#$&|^+%]|::|\w\(|\w:\w|\d\.\d|\A--?[^\W\d]|[\w.][-\u2010/.]\w|/")
_NEVER_WORDS = re.compile(r"[_\\@=#$&|^+%:(]|\d\.\d|\A[-/]|/\Z")
_PIECE = re.compile(
    r"(?P<nth>\d\d?(?:(?:st|nd|rd|th|er)(?!\w)|\.(?![\d/])))|(?P<number>\d+)|(?P<word>[^\W\d_]\w*)"
    r"|(?P<joint>(?<=\w)['\u2019](?=\w))|(?P<sign>\S)",
    re.IGNORECASE,
)
_MAX_LENGTH, _MAX_UNSPACED = 5, 5
"""Maximum words of a phrase, and maximum characters of one in a script without spaces."""
_DASHES = "-\u2010\u2013\u2014~\u301c\uff5e"
_SIGNS = {",": "comma", ".": "dot", "/": "slash", "\0": "hidden"} | dict.fromkeys(_DASHES, "dash strong_link")


@dataclass(frozen=True, slots=True)
class TimeToken:
    """A word, a phrase of the lexicon, a number, a sign, or a time that was found.

    Attributes:
        text: The folded words.
        start: Its position in the question.
        end: The position after it.
        tags: Its possible meanings, with a value for each.
        is_capital: Whether it begins with a capital letter.
    """

    text: str
    start: int
    end: int
    tags: Tags
    is_capital: bool = False

    def has(self, tags: str) -> bool:
        """Return whether it has one of the tags in ``tags``, separated by spaces."""
        return any(tag in self.tags for tag in tags.split())


def tokenize(text: str) -> list[TimeToken]:
    """Split a question into tokens."""
    text = _QUOTED.sub(lambda match: "\0" * len(match[0]), text)
    tokens: list[TimeToken] = []
    for match in _CHUNK.finditer(text):
        if match.lastgroup == "unspaced":
            tokens += _unspaced(match[0], match.start())
        else:
            tokens += _spaced(match[0], match.start())
    return list(_phrases(tokens))


def _spaced(chunk: str, at: int) -> list[TimeToken]:
    """Split text without spaces into tokens."""
    if date := _date(chunk, at):
        return [date]
    if chunk in _DASHES:
        return [TimeToken(chunk, at, at + 1, {"strong_link": ""})]
    pieces = [_piece(match, at) for match in _PIECE.finditer(chunk) if match.lastgroup != "joint"]
    is_known = all(not piece.has("word") or piece.text in lexicon().words for piece in pieces)
    if _CODE.search(chunk) and (not is_known or _NEVER_WORDS.search(chunk)):
        return [TimeToken("", at, at + len(chunk), {"hidden": ""})]
    return pieces


def _piece(match: re.Match[str], at: int) -> TimeToken:
    text, start, end = match[0], at + match.start(), at + match.end()
    if match.lastgroup == "word":
        return TimeToken(fold(text), start, end, {"word": ""}, text[0].isupper())
    if match.lastgroup == "nth":
        day = re.sub(r"\D", "", text)
        return TimeToken(text, start, end, {"nth": day, "day": day})
    if match.lastgroup == "number":
        return TimeToken(text, start, end, _number(text))
    return TimeToken(text, start, end, dict.fromkeys(_SIGNS.get(text, "sign").split(), ""))


def _number(digits: str) -> Tags:
    if len(digits) > 4:
        return {"hidden": ""}
    if len(digits) < 3:
        return {"number": digits, "day": digits}
    return {"number": digits, "year": digits} if len(digits) == 4 and 1950 <= int(digits) < 2100 else {"number": digits}


def _date(chunk: str, at: int) -> TimeToken | None:
    """Parse a numeric date: year, month and day. A year or a day may be missing; 05/08/2023 has two readings."""
    for form, tag, order in _DATES:
        if match := form.fullmatch(chunk):
            digits = dict(zip(order, match.groups()[1:], strict=True))
            year, month, day = (int(digits.get(letter) or -1) for letter in "ymd")
            year += 2000 if 0 <= year < 100 else 0
            fields = [(year, month, day), (year, day, month)] if order == "mdy" else [(year, month, day)]
            kept = [tuple(None if one < 0 else one for one in each) for each in dict.fromkeys(fields) if each[1] <= 12]
            return TimeToken(
                "", at + match.start("date"), at + match.end("date"), {tag: kept} if kept else {"hidden": ""}
            )
    return None


def _unspaced(run: str, at: int) -> Iterator[TimeToken]:
    """Yield the longest phrase at each character of a script without spaces."""
    phrases = lexicon().phrases
    start = 0
    while start < len(run):
        for end in range(min(len(run), start + _MAX_UNSPACED), start, -1):
            tags = phrases.get(run[start:end])
            if tags and "apart" not in phrases.get(run[end - 1 : end + 1], ()):
                break
        else:
            end, tags = start + 1, None
        yield TimeToken(run[start:end], at + start, at + end, tags or {"word": ""})
        start = end


def _phrases(tokens: list[TimeToken]) -> Iterator[TimeToken]:
    """Combine words to the longest phrases of the lexicon."""
    start = 0
    while start < len(tokens):
        first = tokens[start]
        size = 1
        if first.text in lexicon().words:
            for count in range(_MAX_LENGTH, 0, -1):
                words = tokens[start : start + count]
                text = " ".join(word.text for word in words)
                tags = lexicon().phrases.get(text)
                if tags and len(words) == count and (count > 1 or not first.has("nth")):
                    first, size = TimeToken(text, first.start, words[-1].end, tags, first.is_capital), count
                    break
        yield first
        start += size
