"""Define the requests and responses of pages. Pages do not handle HTTP: they take values and return values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode

from crystal.export.labels import Wording


@dataclass(frozen=True, slots=True)
class RequestValues:
    """The values of a request.

    Attributes:
        path: The parts of the address, such as a session's id.
        values: The query, or the fields of a form.
    """

    path: Mapping[str, Any]
    values: Mapping[str, str]

    def text(self, name: str) -> str | None:
        """Return a value without surrounding space; None if it is missing or blank."""
        return self.values.get(name, "").strip() or None

    def number(self, name: str) -> int | None:
        """Return a value as a whole number; None if it is missing or not one."""
        word = self.values.get(name, "")
        return int(word) if word.isascii() and word.isdecimal() and len(word) < 19 else None


@dataclass(frozen=True, slots=True)
class Page:
    """A template and what it shows."""

    template: str
    title: str
    values: Mapping[str, Any] = field(default_factory=dict)
    status: int = 200


@dataclass(frozen=True, slots=True)
class PlainText:
    """Plain text; ``write`` returns it, given the names of speakers."""

    write: Callable[[Wording], str]


@dataclass(frozen=True, slots=True)
class Redirect:
    """The page to go to after an action."""

    to: str


Answer = Page | PlainText | Redirect


def address(path: str, values: Mapping[str, object], name: str = "") -> str:
    """Return an escaped path with the values that are not empty as its query; ``name`` is its last, free part."""
    query = urlencode({key: value for key, value in values.items() if value not in (None, "")})
    return quote(path) + quote(name, safe="") + (f"?{query}" if query else "")


def session_address(ident: str, **values: object) -> str:
    """Return the address of a session's page."""
    return address("/session/", values, ident)
