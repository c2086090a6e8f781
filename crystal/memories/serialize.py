"""Convert a memory to a JSON-compatible dictionary and back, strictly: every field is checked before any is used."""

from __future__ import annotations

import unicodedata
from typing import Any

from crystal.config.paths import AGENT_ID
from crystal.errors import DamagedError
from crystal.memories.rules import CATEGORIES, MAX_KEY, MAX_TEXT, MAX_TIME, MEMORY_ID, STATUSES
from crystal.model.capture import Project, is_unicode
from crystal.model.recall import Remembered
from crystal.store.memories.memories import Version

MAX_PATH_CHARS = 8192
MAX_CHARS = {
    "id": 400, "text": MAX_TEXT, "category": 400, "key": MAX_KEY, "status": 400, "source": 400, "agent": 400,
    "device": 400, "session": 4096,
}  # fmt: skip
_TIMES = ("created_at", "updated_at")
_OPTIONAL = ("key", "session")


class InvalidMemoryError(DamagedError):
    """A field is missing or invalid: the writer has a fault, or is another version."""


def memory_to_dict(version: Version) -> dict[str, Any]:
    """Return the fields of a memory in JSON-compatible form."""
    one, place = version.memory, version.project
    fields = {name: getattr(one, name) for name in (*MAX_CHARS, *_TIMES) if name != "session"}
    project = None if place is None else [place.cwd, place.git_root, place.remote, place.name]
    return {**fields, "session": one.session_id, "project": project}


def memory_from_dict(words: Any) -> Version:
    """Read a memory from a dictionary.

    Raises:
        InvalidMemoryError: A field is missing or invalid.
    """
    if not isinstance(words, dict):
        raise InvalidMemoryError("the message has no memory")
    texts: dict[str, Any] = {name: words.get(name) for name in MAX_CHARS}
    for name, most in MAX_CHARS.items():
        is_left_out = texts[name] is None and name in _OPTIONAL
        if not is_left_out and not _is_text(texts[name], 1, most):
            raise InvalidMemoryError(f"the memory has no {name}")
    times: dict[str, Any] = {name: words.get(name) for name in _TIMES}
    if not all(type(time) is int and 0 <= time <= MAX_TIME for time in times.values()):
        raise InvalidMemoryError("the memory has no time")
    _check_forms(texts)
    place = None if words.get("project") is None else _project(words["project"])
    session, project = texts.pop("session"), None if place is None else place.name
    cwd = None if place is None else place.cwd
    return Version(Remembered(**texts, **times, session_id=session, project=project, cwd=cwd), place)


def _check_forms(texts: dict[str, Any]) -> None:
    for name, known in (("category", CATEGORIES), ("status", STATUSES)):
        if texts[name] not in known:
            raise InvalidMemoryError(f"the memory has no {name} that this crystal knows", hint="update crystal")
    if not AGENT_ID.fullmatch(texts["agent"]) or not MEMORY_ID.fullmatch(texts["id"]) or not texts["text"].strip():
        raise InvalidMemoryError("the memory has no agent, no id or no text")
    key = texts["key"] or ""
    is_plain = unicodedata.normalize("NFC", key).strip() == key
    if not is_plain or any(unicodedata.category(character) in ("Cc", "Zl", "Zp") for character in key):
        raise InvalidMemoryError("the memory has no key that can be one")


def _project(row: Any) -> Project:
    is_row = isinstance(row, list) and len(row) == 4 and bool(row[0]) and row[3] is not None
    if not is_row or not all(field is None or _is_text(field, 0, MAX_PATH_CHARS) for field in row):
        raise InvalidMemoryError("the memory has an invalid project")
    return Project(*row)


def _is_text(value: Any, least: int, most: int) -> bool:
    return isinstance(value, str) and least <= len(value) <= most and "\0" not in value and is_unicode(value)
