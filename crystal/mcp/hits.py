"""Hits, messages, turns and memories as items of an answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from crystal.app.context import Machine
from crystal.app.memory_queries import memory_of
from crystal.errors import CrystalError
from crystal.mcp.page import AnswerItem
from crystal.mcp.said import Attribution, excerpt, kind_of, label
from crystal.model.capture import MIRROR_IDS
from crystal.model.recall import Hit, Remembered
from crystal.sessions.reading import ShownTurn, find_target
from crystal.sessions.timeline import Message
from crystal.text.quoting import quote
from crystal.timewords.parse import iso

Make = Callable[[int], AnswerItem]
SHORT_SESSION = 8
SHORT_MEMORY = 10
AROUND = 300


def hit_name(ident: int) -> str:
    """Return the id by which a hit is requested: ``17``, or ``m17`` if it is in the mirror."""
    return f"m{ident - MIRROR_IDS}" if ident > MIRROR_IDS else str(ident)


@dataclass(frozen=True, slots=True)
class ShortIds:
    """Beginnings of ids that find the same thing; where the beginning finds another, the whole id."""

    machine: Machine

    @property
    def device(self) -> str:
        """Return this machine's name."""
        return self.machine.config.device

    def session(self, ident: str) -> str:
        """Return how a session is named in an answer."""
        store, mirror = self.machine.store, self.machine.mirror_store
        short = ident[:SHORT_SESSION]
        try:
            if find_target(store, short, mirror=mirror) == find_target(store, ident, mirror=mirror):
                return label(short) or short
        except CrystalError:  # it is the beginning of several
            pass
        return label(ident) or ident

    def memory(self, ident: str) -> str:
        """Return how a memory is named in an answer."""
        try:
            is_same = memory_of(self.machine, ident[:SHORT_MEMORY]).id == ident
        except CrystalError:
            return ident
        return ident[:SHORT_MEMORY] if is_same else ident


def hit_item(hit: Hit, ids: ShortIds, *, around: bool = False) -> Make:
    """Return the function that renders a search hit; ``around``: with the messages just before and after it."""
    is_memory = hit.source == "memory"
    kind, by = ("memory", _memory_words(hit.category, hit.key)) if is_memory else _kind_of_hit(hit)
    origin = Attribution(kind, by, hit.timestamp, hit.project, hit.device)
    name = hit.uuid if is_memory and hit.uuid else hit_name(hit.id)
    copies = f" x{hit.copies}" if hit.copies > 1 else ""
    head = f"{ids.memory(name) if is_memory else name} {by}{copies}"
    beside = {
        where: f"{kind_of(said.role)[1]}: {excerpt(said.text, AROUND)[0]}"
        for where, said in (("before", hit.before), ("after", hit.after))
        if said is not None and around
    }

    def make(room: int) -> AnswerItem:
        text, left = excerpt(hit.text, room)
        data = {
            "id": name, "score": hit.score, "text": text, "origin": kind, "by": by, "when": iso(hit.timestamp),
            "project": label(hit.project), "branch": label(hit.branch), "device": label(hit.device),
            "session_id": hit.session_id or None, "freshness": hit.freshness, "source": hit.source,
            "copies": hit.copies, "similar": hit.similar, "characters_left": left, **beside,
        }  # fmt: skip
        shown = [f"[{where}] {said}" for where, said in beside.items()]
        whole = "\n".join([*shown[: "before" in beside], text, *shown["before" in beside :]])
        return AnswerItem(head, origin.place(ids.device), whole, data)

    return make


def _kind_of_hit(hit: Hit) -> tuple[str, str]:
    return kind_of(hit.role, hit.tool, hit.subagent)


def _memory_words(category: str | None, key: str | None) -> str:
    return " ".join(part for part in (category or "memory", f"key {label(key)}" if key else None) if part)


def message_item(message: Message, ids: ShortIds) -> Make:
    """Return the function that renders a message of a conversation."""
    kind, by = kind_of(message.role)
    origin = Attribution(kind, by, message.timestamp, message.project, message.device)
    name = hit_name(message.hit)

    def make(room: int) -> AnswerItem:
        text, left = excerpt(message.text, room)
        data = {
            "id": name, "text": text, "origin": kind, "by": by, "when": iso(message.timestamp),
            "project": label(message.project), "device": label(message.device), "session_id": message.session_id,
            "characters_left": left,
        }  # fmt: skip
        return AnswerItem(f"{name} {by}", origin.place(ids.device), text, data)

    return make


def turn_item(
    turn: ShownTurn, origin: Attribution, number: int | None = None, start: int = 0, most: int | None = None
) -> Make:
    """Return the function that renders a turn of a conversation; at most ``most`` characters of it are shown."""
    name = hit_name(turn.hit)

    def make(room: int) -> AnswerItem:
        text, left = excerpt(turn.text, min(room, most or room), start)
        data = {
            "id": name, "number": number, "text": text, "origin": origin.kind, "by": origin.by,
            "when": iso(turn.timestamp), "focus": turn.focus, "characters_left": left,
            "characters_archived": max(0, turn.full_length - len(turn.text)),
        }  # fmt: skip
        mark = ", asked for" if turn.focus else ""
        go_on = f"\n[start {len(quote(turn.text)) - left} goes on]" if left and turn.focus else ""
        return AnswerItem(f"{name} {origin.by}{mark}", "", f"{text}{go_on}", data)

    return make


def memory_item(memory: Remembered, ids: ShortIds, start: int = 0) -> Make:
    """Return the function that renders a memory."""
    by = f"{_memory_words(memory.category, memory.key)} via {label(memory.source)}"
    place = Attribution("memory", by, memory.updated_at, memory.project, memory.device).place(ids.device)
    head = f"{ids.memory(memory.id)} {by}"

    def make(room: int) -> AnswerItem:
        text, left = excerpt(memory.text, room, start)
        return AnswerItem(head, place, text, {**memory_data(memory), "text": text, "characters_left": left})

    return make


def memory_data(memory: Remembered) -> dict[str, Any]:
    """Return what is known of a memory besides its text."""
    return {
        "id": memory.id, "category": memory.category, "key": label(memory.key), "project": label(memory.project),
        "status": memory.status, "source": label(memory.source), "device": label(memory.device),
        "created_at": iso(memory.created_at), "updated_at": iso(memory.updated_at),
    }  # fmt: skip
