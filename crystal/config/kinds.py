"""Define the kinds of values of settings: parse and check them, wherever they come from.

A value arrives as text (environment, flags) or as a TOML value (the settings file); both end in the same check.
"""

import math
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from crystal.config.paths import AGENT_ID, AGENT_ID_WORDS
from crystal.model.named_tuple import NamedTuple

_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")
# Patterns as text: ``re`` compiles each at its first use, and a turn uses few.
_UNPRINTABLE = r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]"
_URL = r"(?i)https?://(?:[^/?#@\s]*@)?(?:\[[0-9a-f:.%]+\]|[^/?#@\s:\[\]]+)(?::[0-9]{1,5})?(?:/[^?#\s]*)?"
_KEYLIKE = r"\b(?:sk|pa|rk|ghp|gho|xox[a-z])[-_][A-Za-z0-9_-]{12,}|\bAIza[A-Za-z0-9_-]{12,}"
_USERINFO = r"(?<=://)[^/\s]*@"


class ValueKind(NamedTuple):
    """A kind of value.

    Attributes:
        name: Its name in the documentation.
        accepts: The accepted values in words, for error messages and documentation.
        check: Returns the value to use for a TOML value, or raises ValueError.
        from_text: Converts the text of a variable or a flag into a TOML value, or raises ValueError.
        is_list: Whether a value is a list of texts.
    """

    name: str
    accepts: str
    check: Callable[[Any], Any]
    from_text: Callable[[str], Any] = str.strip
    is_list: bool = False


def choice(*names: str) -> ValueKind:
    """Describe a choice of names; upper and lower case do not matter."""

    def check(value: Any) -> str:
        name = _text(value).lower()
        _expect(name in names)
        return name

    return ValueKind("choice", ", ".join(names[:-1]) + " or " + names[-1], check)


def whole(least: int, most: int) -> ValueKind:
    """Describe an integer within bounds."""

    def check(value: Any) -> int:
        _expect(type(value) is int and least <= value <= most)
        return int(value)

    return ValueKind("whole number", f"a whole number from {least} to {most}", check, _whole_from_text)


def number(least: float, most: float) -> ValueKind:
    """Describe a finite number within bounds."""

    def check(value: Any) -> float:
        _expect(type(value) in (int, float) and math.isfinite(value) and least <= value <= most)
        return float(value)

    return ValueKind("number", f"a number from {least:g} to {most:g}", check, _number_from_text)


def shown(value: object) -> str:
    """Return a value as text safe to print: one line, without an address's password or what looks like a key."""
    if value is None:
        return "(not set)"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ", ".join(shown(item) for item in value) or "(none)"
    return re.sub(
        _UNPRINTABLE, "\N{REPLACEMENT CHARACTER}", re.sub(_KEYLIKE, "***", re.sub(_USERINFO, "***@", str(value)))
    )


def _expect(good: bool) -> None:
    if not good:
        raise ValueError


def _text(value: Any) -> str:
    _expect(isinstance(value, str) and bool(value.strip()))
    _expect(value.isprintable() or not re.search(_UNPRINTABLE, value))
    return str(value).strip()


def _boolean(value: Any) -> bool:
    _expect(isinstance(value, bool))
    return bool(value)


def _url(value: Any) -> str:
    address = _text(value)
    _expect(re.fullmatch(_URL, address) is not None)
    return address.rstrip("/")


def _agent_id(value: Any) -> str:
    _expect(isinstance(value, str) and AGENT_ID.fullmatch(value) is not None)
    return str(value)


def _patterns(value: Any) -> tuple[str, ...]:
    _expect(isinstance(value, list | tuple))
    return tuple(_text(pattern) for pattern in value)


def _folder_patterns(value: Any) -> tuple[str, ...]:
    """Refuse a relative pattern, which would match no folder and so keep nothing private."""
    patterns = _patterns(value)
    _expect(all(pattern.startswith(("/", "~", "*")) or Path(pattern).is_absolute() for pattern in patterns))
    return patterns


def _boolean_from_text(text: str) -> bool:
    word = text.strip().lower()
    _expect(word in _TRUE + _FALSE)
    return word in _TRUE


def _whole_from_text(text: str) -> int:
    _expect(re.fullmatch(r"[+-]?[0-9]{1,18}", text.strip()) is not None)
    return int(text)


def _number_from_text(text: str) -> float:
    _expect(re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]{1,3})?", text.strip().lower()) is not None)
    return float(text)


def _url_from_text(text: str) -> str:
    """Accept ``host:port``, as Ollama's own variable does."""
    return text.strip() if "://" in text else "http://" + text.strip()


def _patterns_from_text(text: str) -> list[str]:
    return [pattern.strip() for pattern in text.split(os.pathsep) if pattern.strip()]


_SEPARATED = f"(in a variable: separated by {os.pathsep!r})"

TEXT = ValueKind("text", "text of one line, not empty", _text)
BOOLEAN = ValueKind("boolean", "true or false", _boolean, _boolean_from_text)
URL = ValueKind("address", "an address that starts with http:// or https://", _url, _url_from_text)
AGENT = ValueKind("agent id", AGENT_ID_WORDS, _agent_id)
PATTERNS = ValueKind(
    "list of patterns", f"a list of patterns {_SEPARATED}", _patterns, _patterns_from_text, is_list=True
)
FOLDERS = ValueKind(
    "list of folder patterns",
    f"a list of patterns of whole paths, each starting with '/', '~' or '*' {_SEPARATED}",
    _folder_patterns,
    _patterns_from_text,
    is_list=True,
)
