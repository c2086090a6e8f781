"""Memories between a device and home: a message says how one is now, and home takes it if that is newer.

Every field is checked before any of it is used; what is wrong in one refuses the message. Source:
docs/spec/relay-messages.md.
"""

from __future__ import annotations

import json
import unicodedata
from typing import Any, cast

from crystal.envelope import Kind
from crystal.model import Category, MemoryStatus, Remembered
from crystal.paths import AGENT_ID
from crystal.relay.sending import Link, put_message
from crystal.relay.wire import MOST_KEY as MOST_SESSION
from crystal.relay.wire import MOST_NAME, BadRecord, Lane, is_unicode, project_from
from crystal.remembering import CATEGORIES, MEMORY_ID, MOST_KEY, MOST_TEXT, MOST_TIME, STATUSES
from crystal.store import Store
from crystal.store.memories import Version


def put_memory(store: Store, link: Link, version: Version, *, lane: Lane, now: int) -> None:
    """Seal a memory for home. Inside the transaction that changed it.

    Raises:
        WatermarkMoved: The link's keys were rotated meanwhile: look at the link again.
    """
    words = {"v": 1, "kind": "memory", "memory": memory_to_words(version)}
    put_message(store, link, json.dumps(words).encode(), kind=Kind.CONTROL, lane=lane, now=now)


def memory_to_words(version: Version) -> dict[str, Any]:
    """Write a memory as JSON."""
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


def memory_from_words(words: Any) -> Version:
    """Read a memory.

    Raises:
        BadRecord: A field is missing, or is not what it should be.
    """
    if not isinstance(words, dict):
        raise BadRecord("the message has no memory")
    place = None if words.get("project") is None else project_from(words["project"])
    agent = _text(words, "agent", MOST_NAME)
    if AGENT_ID.fullmatch(agent) is None:
        raise BadRecord("the memory has no agent")
    ident = _text(words, "id", MOST_NAME)
    if MEMORY_ID.fullmatch(ident) is None:
        raise BadRecord("the memory has no id")
    return Version(
        Remembered(
            id=ident,
            text=_told(words),
            category=cast("Category", _one_of(words, "category", CATEGORIES)),
            key=_key(words),
            project=None if place is None else place.name,
            cwd=None if place is None else place.cwd,
            status=cast("MemoryStatus", _one_of(words, "status", STATUSES)),
            source=_text(words, "source", MOST_NAME),
            agent=agent,
            device=_text(words, "device", MOST_NAME),
            session_id=None if words.get("session") is None else _text(words, "session", MOST_SESSION),
            created_at=_moment(words, "created_at"),
            updated_at=_moment(words, "updated_at"),
        ),
        place,
    )


def _told(words: dict[str, Any]) -> str:
    text = _text(words, "text", MOST_TEXT)
    if not text.strip():
        raise BadRecord("the memory has no text")
    return text


def _key(words: dict[str, Any]) -> str | None:
    if words.get("key") is None:
        return None
    key = _text(words, "key", MOST_KEY)
    is_plain = unicodedata.normalize("NFC", key).strip() == key
    if not is_plain or any(unicodedata.category(character) in ("Cc", "Zl", "Zp") for character in key):
        raise BadRecord("the memory has no key that can be one")
    return key


def _one_of(words: dict[str, Any], name: str, known: tuple[str, ...]) -> str:
    value = words.get(name)
    if value not in known:
        raise BadRecord(f"the memory has no {name} that this crystal knows", hint="update crystal")
    return str(value)


def _text(words: dict[str, Any], name: str, most: int) -> str:
    value = words.get(name)
    if not isinstance(value, str) or not 0 < len(value) <= most or not is_unicode(value) or "\0" in value:
        raise BadRecord(f"the memory has no {name}")
    return value


def _moment(words: dict[str, Any], name: str) -> int:
    value = words.get(name)
    if type(value) is not int or not 0 <= value <= MOST_TIME:
        raise BadRecord(f"the memory has no {name}")
    return value
