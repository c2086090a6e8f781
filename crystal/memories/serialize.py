"""Convert a memory to a JSON-compatible dictionary and back, strictly: every field is checked before any is used."""

from __future__ import annotations

import unicodedata
from typing import Any, cast

from crystal.config.paths import AGENT_ID
from crystal.errors import DamagedError
from crystal.memories.rules import CATEGORIES, MAX_KEY, MAX_TEXT, MAX_TIME, MEMORY_ID, STATUSES
from crystal.model.capture import Category, MemoryStatus, Project, is_unicode
from crystal.model.recall import Remembered
from crystal.store.memories.memories import Version

MAX_NAME_CHARS = 400
MAX_PATH_CHARS = 8192
MAX_SESSION_CHARS = 4096


class InvalidMemoryError(DamagedError):
    """A field is missing or invalid: the writer has a fault, or is another version."""


def memory_to_dict(version: Version) -> dict[str, Any]:
    """Return the fields of a memory in JSON-compatible form."""
    one, place = version.memory, version.project
    return {
        "id": one.id,
        "text": one.text,
        "category": one.category,
        "key": one.key,
        "project": None if place is None else [place.cwd, place.git_root, place.remote, place.name],
        "status": one.status,
        "source": one.source,
        "agent": one.agent,
        "device": one.device,
        "session": one.session_id,
        "created_at": one.created_at,
        "updated_at": one.updated_at,
    }


def memory_from_dict(words: Any) -> Version:
    """Read a memory from a dictionary.

    Raises:
        InvalidMemoryError: A field is missing or invalid.
    """
    if not isinstance(words, dict):
        raise InvalidMemoryError("the message has no memory")
    place = None if words.get("project") is None else _project(words["project"])
    agent = _text(words, "agent", MAX_NAME_CHARS)
    if AGENT_ID.fullmatch(agent) is None:
        raise InvalidMemoryError("the memory has no agent")
    ident = _text(words, "id", MAX_NAME_CHARS)
    if MEMORY_ID.fullmatch(ident) is None:
        raise InvalidMemoryError("the memory has no id")
    return Version(
        Remembered(
            id=ident,
            text=_told(words),
            category=cast("Category", _one_of(words, "category", CATEGORIES)),
            key=_key(words),
            project=None if place is None else place.name,
            cwd=None if place is None else place.cwd,
            status=cast("MemoryStatus", _one_of(words, "status", STATUSES)),
            source=_text(words, "source", MAX_NAME_CHARS),
            agent=agent,
            device=_text(words, "device", MAX_NAME_CHARS),
            session_id=None if words.get("session") is None else _text(words, "session", MAX_SESSION_CHARS),
            created_at=_moment(words, "created_at"),
            updated_at=_moment(words, "updated_at"),
        ),
        place,
    )


def _told(words: dict[str, Any]) -> str:
    text = _text(words, "text", MAX_TEXT)
    if not text.strip():
        raise InvalidMemoryError("the memory has no text")
    return text


def _key(words: dict[str, Any]) -> str | None:
    if words.get("key") is None:
        return None
    key = _text(words, "key", MAX_KEY)
    is_plain = unicodedata.normalize("NFC", key).strip() == key
    if not is_plain or any(unicodedata.category(character) in ("Cc", "Zl", "Zp") for character in key):
        raise InvalidMemoryError("the memory has no key that can be one")
    return key


def _one_of(words: dict[str, Any], name: str, known: tuple[str, ...]) -> str:
    value = words.get(name)
    if value not in known:
        raise InvalidMemoryError(f"the memory has no {name} that this crystal knows", hint="update crystal")
    return str(value)


def _text(words: dict[str, Any], name: str, most: int) -> str:
    value = words.get(name)
    if not isinstance(value, str) or not 0 < len(value) <= most or not is_unicode(value) or "\0" in value:
        raise InvalidMemoryError(f"the memory has no {name}")
    return value


def _moment(words: dict[str, Any], name: str) -> int:
    value = words.get(name)
    if type(value) is not int or not 0 <= value <= MAX_TIME:
        raise InvalidMemoryError(f"the memory has no {name}")
    return value


def _project(row: Any) -> Project:
    is_row = isinstance(row, list) and len(row) == 4
    if not is_row or not row[0] or row[3] is None or not all(_is_project_field(field) for field in row):
        raise InvalidMemoryError("the memory has an invalid project")
    return Project(*row)


def _is_project_field(value: Any) -> bool:
    if value is None:
        return True
    return isinstance(value, str) and len(value) <= MAX_PATH_CHARS and "\0" not in value and is_unicode(value)
