"""Memories between a device and home: a message contains the current state, and home stores it if it is newer.

Every field is checked before any is used; one wrong field refuses the message. Source: docs/spec/relay-messages.md.
"""

from __future__ import annotations

import json

from crystal.memories.serialize import memory_to_dict
from crystal.store import Store
from crystal.store.memories.memories import Version
from crystal.sync.envelope import Kind
from crystal.sync.sending import Link, put_message
from crystal.sync.wire import Lane


def put_memory(store: Store, link: Link, version: Version, *, lane: Lane, now: int) -> None:
    """Seal a memory for home. Runs inside the transaction that changed it.

    Raises:
        WatermarkMoved: The link's keys were rotated meanwhile: load the link again.
    """
    words = {"v": 1, "kind": "memory", "memory": memory_to_dict(version)}
    put_message(store, link, json.dumps(words).encode(), kind=Kind.CONTROL, lane=lane, now=now)
