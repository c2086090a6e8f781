"""What a setting is, and what values each kind accepts: pure words about one key, never where its value comes from.

Values arrive as text (environment, flags) or as TOML values (the settings file); both go through the same ``Kind``.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from crystal.paths import AGENT_ID, AGENT_ID_WORDS

_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_URL = re.compile(r"https?://[^/?#\s]+[^?#\s]*", re.IGNORECASE)
_USERINFO = re.compile(r"(?<=://)[^/@\s]*@")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Kind:
    """A family of values.

    Attributes:
        name: What the documentation calls it.
        accepts: The accepted values in words, for error messages and documentation.
        check: Gives the value to use for a TOML value, or raises ValueError.
        from_text: Turns the text of a variable or a flag into the TOML value that it stands for, or raises ValueError.
    """

    name: str
    accepts: str
    check: Callable[[Any], Any]
    from_text: Callable[[str], Any] = str.strip


@dataclass(frozen=True, slots=True)
class Alias:
    """Another environment variable for a key; with ``when``, only while that key has that value."""

    variable: str
    when: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Setting:
    """One key of the configuration.

    Attributes:
        key: Its dotted name, ``table.key``, or just ``key`` at the top of the file.
        kind: Which values it takes.
        meaning: What it does, one or two sentences for the documentation.
        aliases: Variables besides ``variable``; the first that is set wins.
        default_words: The default in words where the value alone does not say it.
        only_environment: The file may not hold it, because the one who needs it (the hook) reads no file.
    """

    key: str
    kind: Kind
    meaning: str
    aliases: tuple[Alias, ...] = ()
    default_words: str | None = None
    only_environment: bool = False

    @property
    def attribute(self) -> str:
        """The name of the attribute of ``Config``."""
        return self.key.replace(".", "_")

    @property
    def variable(self) -> str:
        """The environment variable that every key has."""
        return "CRYSTAL_" + self.attribute.upper()

    @property
    def variables(self) -> tuple[Alias, ...]:
        """All its environment variables, the strongest first."""
        return (Alias(self.variable), *(alias for alias in self.aliases if alias.variable != self.variable))


def choice(*names: str) -> Kind:
    """One of a few names, in any case."""

    def check(value: Any) -> str:
        return _expect(isinstance(value, str) and value.strip().lower() in names, lambda: cast("str", value).strip().lower())

    return Kind("choice", ", ".join(names[:-1]) + " or " + names[-1], check)


def whole(least: int, most: int) -> Kind:
    """An integer within bounds."""

    def check(value: Any) -> int:
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        return _expect(is_whole and least <= value <= most, lambda: cast("int", value))

    return Kind("whole number", f"a whole number from {least} to {most}", check, _whole_from_text)


def number(least: float, most: float) -> Kind:
    """A finite number within bounds."""

    def check(value: Any) -> float:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return _expect(is_number and math.isfinite(value) and least <= value <= most, lambda: float(value))

    return Kind("number", f"a number from {least:g} to {most:g}", check, _number_from_text)


def _text(value: Any) -> str:
    good = isinstance(value, str) and bool(value.strip()) and not _CONTROL.search(value)
    return _expect(good, lambda: cast("str", value).strip())


def _boolean(value: Any) -> bool:
    return _expect(isinstance(value, bool), lambda: cast("bool", value))


def _url(value: Any) -> str:
    good = isinstance(value, str) and _URL.fullmatch(value.strip()) is not None
    return _expect(good, lambda: cast("str", value).strip().rstrip("/"))


def _agent_id(value: Any) -> str:
    return _expect(isinstance(value, str) and AGENT_ID.fullmatch(value) is not None, lambda: cast("str", value))


def _globs(value: Any) -> tuple[str, ...]:
    good = isinstance(value, list | tuple) and all(isinstance(glob, str) for glob in value)
    return tuple(_text(glob) for glob in _expect(good, lambda: value))


def _folder_globs(value: Any) -> tuple[str, ...]:
    """A relative pattern would match no folder, and so keep nothing private: refuse it."""
    globs = _globs(value)
    return _expect(all(glob.startswith(("/", "~", "*")) or os.path.isabs(glob) for glob in globs), lambda: globs)


def _boolean_from_text(text: str) -> bool:
    word = text.strip().lower()
    return _expect(word in _TRUE + _FALSE, lambda: word in _TRUE)


def _whole_from_text(text: str) -> int:
    return _expect(re.fullmatch(r"[+-]?[0-9]{1,18}", text.strip()) is not None, lambda: int(text))


def _number_from_text(text: str) -> float:
    pattern = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]{1,3})?"
    return _expect(re.fullmatch(pattern, text.strip().lower()) is not None, lambda: float(text))


def _url_from_text(text: str) -> str:
    """``host:port`` is enough, as for Ollama's own variable."""
    return text.strip() if "://" in text else "http://" + text.strip()


def _globs_from_text(text: str) -> list[str]:
    return [glob.strip() for glob in text.split(os.pathsep) if glob.strip()]


def _expect(good: bool, value: Callable[[], T]) -> T:
    if not good:
        raise ValueError
    return value()


TEXT = Kind("text", "text of one line, not empty", _text)
BOOLEAN = Kind("boolean", "true or false", _boolean, _boolean_from_text)
URL = Kind("address", "an address that starts with http:// or https://", _url, _url_from_text)
AGENT = Kind("agent id", AGENT_ID_WORDS, _agent_id)
GLOBS = Kind("list of patterns", f"a list of patterns (in a variable: separated by '{os.pathsep}')", _globs, _globs_from_text)
FOLDER_GLOBS = Kind(
    "list of folder patterns",
    f"a list of patterns of whole paths, each starting with '/', '~' or '*' (in a variable: separated by '{os.pathsep}')",
    _folder_globs,
    _globs_from_text,
)


def shown(value: object) -> str:
    """A value in words that may be printed: the user and password of an address are left out."""
    if value is None:
        return "(not set)"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ", ".join(shown(item) for item in value) or "(none)"
    return _USERINFO.sub("***@", str(value))
