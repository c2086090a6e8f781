"""Hits, messages, turns and memories as items of an answer."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from crystal.mcp.page import Item
from crystal.mcp.said import Origin, kind_of, label, plain, recalled
from crystal.model import MIRROR_IDS, Hit, Neighbour, Remembered
from crystal.reading import ShownTurn
from crystal.timeline import Message
from crystal.when import iso

Make = Callable[[int], Item]
AROUND = 300


def hit_name(ident: int) -> str:
    """How a hit is named when it is asked for: ``17``, or ``m17`` when it is in the mirror."""
    return f"m{ident - MIRROR_IDS}" if ident > MIRROR_IDS else str(ident)


def hit_item(hit: Hit, number: int, seen: Collection[str]) -> Make:
    """A hit of a search with what was said around it, unless that is among the hits itself (``seen``: their uuids)."""
    is_memory = hit.source == "memory"
    kind, by = ("memory", "memory") if is_memory else kind_of(hit.role, hit.tool, hit.subagent)
    origin = Origin(kind, by, hit.timestamp, hit.project, hit.device, hit.session_id or None)
    name = hit.uuid if is_memory and hit.uuid else hit_name(hit.id)
    before, after = (
        None if said is None or said.uuid in seen else _around(said, origin, where)
        for said, where in ((hit.before, "just before"), (hit.after, "just after"))
    )

    def make(room: int) -> Item:
        text, left = recalled(hit.text, origin, room)
        said = [one for one in (before, text, after) if one is not None]
        copies = f" · said {hit.copies} times" if hit.copies > 1 else ""
        lines = [f"{number}. id {name} · score {hit.score:.3f}{copies}", *said]
        data = {
            "id": name, "score": hit.score, "text": text, "origin": kind, "by": by, "when": iso(hit.timestamp),
            "project": label(hit.project), "branch": label(hit.branch), "device": label(hit.device),
            "session_id": hit.session_id or None, "freshness": hit.freshness, "source": hit.source,
            "copies": hit.copies, "similar": hit.similar, "characters_left": left, "before": before, "after": after,
        }  # fmt: skip
        return Item("\n".join(lines), data)

    return make


def _around(said: Neighbour, origin: Origin, where: str) -> str:
    kind, by = kind_of(said.role)
    place = Origin(kind, f"{by}, {where}", said.timestamp, origin.project, origin.device, origin.session)
    return recalled(said.text, place, AROUND)[0]


def message_item(message: Message) -> Make:
    """A message of a conversation."""
    kind, by = kind_of(message.role)
    origin = Origin(kind, by, message.timestamp, message.project, message.device, message.session_id)
    name = hit_name(message.hit)

    def make(room: int) -> Item:
        text, left = recalled(message.text, origin, room)
        data = {
            "id": name, "text": text, "origin": kind, "by": by, "when": iso(message.timestamp),
            "project": label(message.project), "device": label(message.device), "session_id": message.session_id,
            "characters_left": left,
        }  # fmt: skip
        return Item(f"id {name}\n{text}", data)

    return make


def turn_item(
    turn: ShownTurn, origin: Origin, number: int | None = None, start: int = 0, most: int | None = None
) -> Make:
    """A turn of a conversation that is read; ``most`` is how much of it is shown at most."""
    name = hit_name(turn.hit)

    def make(room: int) -> Item:
        text, left = recalled(turn.text, origin, min(room, most or room), start)
        data = {
            "id": name, "number": number, "text": text, "origin": origin.kind, "by": origin.by,
            "when": iso(turn.timestamp), "focus": turn.focus, "characters_left": left,
            "characters_archived": max(0, turn.full_length - len(turn.text)),
        }  # fmt: skip
        at = "" if number is None else f"turn {number} · "
        mark = " · this one was asked for" if turn.focus else ""
        go_on = f"\ncrystal_get with id {name} and start {len(plain(turn.text)) - left} goes on" if left else ""
        return Item(f"{at}id {name}{mark}\n{text}{go_on if turn.focus else ''}", data)

    return make


def memory_item(memory: Remembered, start: int = 0) -> Make:
    """A memory."""
    named = f", key {label(memory.key)}" if memory.key else ""
    by = f"memory, a {memory.category}{named}, by {label(memory.source)}"
    origin = Origin("memory", by, memory.updated_at, memory.project, memory.device)

    def make(room: int) -> Item:
        text, left = recalled(memory.text, origin, room, start)
        return Item(f"id {memory.id}\n{text}", {**memory_data(memory), "text": text, "characters_left": left})

    return make


def memory_data(memory: Remembered) -> dict[str, Any]:
    """What is known of a memory besides its text."""
    return {
        "id": memory.id, "category": memory.category, "key": label(memory.key), "project": label(memory.project),
        "status": memory.status, "source": label(memory.source), "device": label(memory.device),
        "created_at": iso(memory.created_at), "updated_at": iso(memory.updated_at),
    }  # fmt: skip
