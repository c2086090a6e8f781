"""Convert JSON5 to JSON and keep each character's position, so that documents with comments can be edited as text.

Only the positions of the values matter, and whether two values are the same: a number that JSON lacks becomes a
string. Source: https://spec.json5.org.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Sequence

from crystal.install import jsontext
from crystal.install.jsontext import JsonSyntaxError
from crystal.model.named_tuple import NamedTuple
from crystal.text.lazy_pattern import lazy_pattern

_COMMENT = r"//[^\n]*(?=\n|\Z)|/\*(?:[^*]|\*(?!/))*\*/"  # one way to match: backtracking would not end
_BLANK = rf"(?:\s|\ufeff|{_COMMENT})"
_TOKEN = lazy_pattern(
    rf"""(?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<blank>{_COMMENT}|(?<![\[{{,]),(?={_BLANK}*[}}\]])|[^\S \t\r\n]|\ufeff)
    |(?P<word>(?<![\w$])[\w$]+(?={_BLANK}*:)|[+-]?(?:Infinity|NaN|0[xX][\da-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)(?![\w$.]))
    """,
    re.DOTALL | re.VERBOSE,
)
_NUMBER = lazy_pattern(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")
_ESCAPED = lazy_pattern(r'\\(x[\da-fA-F]{2}|\r\n|.)|"', re.DOTALL)


class JsonText(NamedTuple):
    """A document as JSON without comments, with the original position of each of its characters and of its end."""

    text: str
    places: Sequence[int]


@functools.lru_cache(maxsize=2)  # called before and after each edit
def as_json(text: str) -> JsonText:
    """Convert a document to JSON. In a JSON document only comments change, and all positions stay.

    Raises:
        JsonSyntaxError: It is not JSON5, or has a key twice.
    """
    parts, places, at = list[str](), list[int](), 0
    for token in _TOKEN.finditer(text):
        start, end = token.span()
        new = _TRANSLATED[str(token.lastgroup)](token[0])
        parts += [text[at:start], new]
        places += range(at, start)
        places += range(start, end) if len(new) == end - start else [start] * len(new)
        at = end
    plain = JsonText("".join([*parts, text[at:]]), [*places, *range(at, len(text) + 1)])
    try:
        jsontext.parse(plain.text)
    except JsonSyntaxError as error:
        raise JsonSyntaxError(error.problem, plain.places[error.position]) from error
    return plain


def _string(token: str) -> str:
    return f'"{_ESCAPED.sub(_character, token[1:-1])}"'


def _character(match: re.Match[str]) -> str:
    """Return an escaped character of a string in JSON's notation."""
    escaped = match[1]
    if escaped is None:
        return '\\"'
    if escaped[0] in '"\\/bfnrtu':
        return match[0]
    code = {"v": "000b", "0": "0000", "x": f"00{escaped[1:]}"}.get(escaped[0])
    return f"\\u{code}" if code else "" if escaped.isspace() else escaped


def _word(token: str) -> str:
    return token if _NUMBER.fullmatch(token) else json.dumps(token, ensure_ascii=False)


_TRANSLATED = {"string": _string, "blank": lambda token: re.sub(r"[^\r\n]", " ", token), "word": _word}
