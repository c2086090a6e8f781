"""Render hits, messages, turns and memories as items of an answer: quoted, shortened, with their origin."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from crystal.app.context import Machine
from crystal.app.memory_queries import memory_of
from crystal.errors import CrystalError
from crystal.mcp.page import NONCE, AnswerItem, Json, Place
from crystal.model.capture import MIRROR_IDS, parse_hit_name
from crystal.model.recall import Hit, Neighbour, Remembered, Validity
from crystal.model.sources import FilePlace
from crystal.sessions.reading import ShownTurn, find_target
from crystal.store.sessions.conversations import Message
from crystal.text.quoting import quote, quote_line
from crystal.timewords.parse import iso, local

ItemMaker = Callable[[int], AnswerItem]
SHORT_SESSIONS = (5, 8, 12)
"""Lengths of short ids of sessions. A short id of digits only is not used, because it would be the id of a hit."""
SHORT_MEMORY = 10
AROUND = 300
MAX_LABEL = 120
AGES = ((365, "y"), (30, "mo"), (7, "w"), (1, "d"))

WEB_TOOL = re.compile(r"WebFetch|WebSearch|(?:^|_)(?:fetch|crawl|scrape|browse)|web_?search|browser", re.IGNORECASE)
"""Names of tools whose results come from the network: the client's own, and usual names in MCP servers."""
KINDS = ("user", "assistant", "tool", "web", "subagent", "summary", "file", "memory")


def label(text: str | None) -> str | None:
    """Return a name (of a project, a branch, a machine ...) as one short line; None stays None."""
    return None if text is None else quote_line(text, MAX_LABEL)


def place_of(timestamp: int | None, project: str | None, device: str | None, here: str) -> Place:
    """Return the day, and the project, with the device's name if it is not ``here``."""
    day = "undated" if timestamp is None else f"{local(timestamp):%Y-%m-%d}"
    other = None if device == here else label(device)
    return day, " ".join(part for part in (label(project), other) if part) or "no project"


def age_of(timestamp: int | None, now: int) -> str:
    """Return the age of a time (both in ms) in its largest unit: ``3d``, ``2w``, ``5mo`` of 30 days, ``2y``."""
    days = max(0, now - (timestamp or 0)) // 86_400_000
    return next(f"{days // size}{unit}" for size, unit in AGES if days >= 2 * size or size == 1)


def kind_of(role: str, tool: str | None = None, subagent: str | None = None) -> tuple[str, str]:
    """Return who wrote a text: one of ``KINDS``, and the words that an answer shows, such as ``call Bash``."""
    name = label(tool)
    if role == "tool_result" and tool is not None and WEB_TOOL.search(tool):
        return "web", f"web {name}"
    inside = ", in a subagent" if subagent else ""
    if role in ("tool_result", "tool_call"):
        whose = "tool" if role == "tool_result" else "call"
        return "tool", f"{whose} {name}{inside}" if name else f"{whose}{inside}"
    if role == "subagent" or subagent:
        return "subagent", "subagent"
    if role == "thinking":
        return "assistant", "thinking"
    known = {"source": "file"}.get(role, role)
    return (known, known) if known in KINDS else ("tool", label(role) or "unknown")


def _without_tool(by: str, text: str) -> str:
    """Return the words of ``kind_of`` without the name of the called tool if the text begins with it."""
    called, _, tool = by.partition(" ")
    return called if called == "call" and tool and text.startswith(tool) else by


def excerpt(text: str, max_chars: int, start: int = 0) -> tuple[str, int]:
    """Return up to ``max_chars`` characters of the quoted text from ``start`` on, and the number of those left."""
    whole = quote(text)
    part = whole[start : start + max(1, max_chars)]
    left = max(0, len(whole) - start - len(part))
    before, after = "[…] " if start else "", f" [… {left} more]" if left else ""
    return f"{before}{part}{after}", left


def hit_name(ident: int) -> str:
    """Return the id by which a hit is requested: ``17``, or ``m17`` if it is in the mirror."""
    return f"m{ident - MIRROR_IDS}" if ident > MIRROR_IDS else str(ident)


@dataclass(frozen=True, slots=True)
class ShortIds:
    """Short ids: prefixes that find the same session or memory; the whole id if no prefix does."""

    machine: Machine

    @property
    def device(self) -> str:
        """Return this machine's name."""
        return self.machine.config.device

    def session(self, ident: str) -> str:
        """Return the short id of a session."""
        stores = self.machine.stores
        whole = find_target(stores, ident)
        for short in (ident[:length] for length in SHORT_SESSIONS):
            with suppress(CrystalError):  # several ids begin with it
                if parse_hit_name(short) is None and find_target(stores, short) == whole:
                    return label(short) or short
        return label(ident) or ident

    def memory(self, ident: str) -> str:
        """Return the short id of a memory."""
        try:
            is_same = memory_of(self.machine, ident[:SHORT_MEMORY]).id == ident
        except CrystalError:
            return ident
        return ident[:SHORT_MEMORY] if is_same else ident


def quoted(head: str, place: Place, text: str, data: Json, start: int = 0) -> ItemMaker:
    """Return the function that renders a text from ``start`` on."""

    def make(max_chars: int) -> AnswerItem:
        shown, left = excerpt(text, max_chars, start)
        return AnswerItem(head, place, shown, {**data, "text": shown, "characters_left": left})

    return make


def hit_item(hit: Hit, ids: ShortIds, around: Mapping[str, Neighbour] | None = None) -> ItemMaker:
    """Return the function that renders a search hit, with its neighbours ``before`` and ``after`` in ``around``."""
    is_memory = hit.source == "memory"
    kind, by = kind_of(hit.role, hit.tool, hit.subagent)
    if is_memory:
        kind, by = "memory", _memory_words(hit.category, hit.key)
    place = place_of(hit.timestamp, hit.project, hit.device, ids.device) + _file_words(hit.file)
    name = hit.uuid if is_memory and hit.uuid else hit_name(hit.id)
    copies = f" x{hit.copies}" if hit.copies > 1 else ""
    head = f"{ids.memory(name) if is_memory else name} {_without_tool(by, hit.text)}{copies}{_since(hit.validity)}"
    beside = {where: (kind_of(one.role)[1], quote_line(one.text, AROUND)) for where, one in (around or {}).items()}

    def make(max_chars: int) -> AnswerItem:
        text, left = excerpt(hit.text, max_chars)
        data = {
            "id": name, "score": hit.score, "text": text, "origin": kind, "by": by, "when": iso(hit.timestamp),
            "project": label(hit.project), "branch": label(hit.branch), "device": label(hit.device),
            "session_id": hit.session_id or None, "freshness": hit.freshness, "source": hit.source,
            "copies": hit.copies, "similar": hit.similar, "characters_left": left, **_file_data(hit.file),
            **_validity_data(hit.validity), **{where: ": ".join(said) for where, said in beside.items()},
        }  # fmt: skip
        whose = {where: f"{where} {who}".removesuffix(" assistant") for where, (who, _) in beside.items()}
        shown = "".join(f"\n[{NONCE} {whose[where]}] {said}" for where, (_, said) in beside.items())
        return AnswerItem(head, place, f"{text}{shown}", data)

    return make


def _file_words(place: FilePlace | None) -> Place:
    """Return the file and lines of a text, to be appended to its ``Place``."""
    return () if place is None else (f"{label(place.name)}: {label(place.path)}:{place.lines}",)


def _file_data(place: FilePlace | None) -> Json:
    if place is None:
        return {}
    return {"file": {"source": label(place.name), "path": label(f"{place.folder}/{place.path}"),
                     "title": label(place.title), "lines": place.lines}}  # fmt: skip


def _since(validity: Validity | None) -> str:
    """Return the suffix of a text's head that says how a file or decision has changed since; empty if unchanged."""
    if validity is None or validity.state == "unchanged":
        return ""
    if validity.state == "superseded":
        return f"; superseded by {label(validity.what)}"
    by = f" in {validity.commit[:8]}" if validity.commit else ""
    return f"; {quote_line(validity.what.rpartition('/')[2], MAX_LABEL)} {validity.state} since{by}"


def _validity_data(validity: Validity | None) -> Json:
    if validity is None:
        return {}
    return {"validity": {"what": label(validity.what), "state": validity.state, "commit": validity.commit,
                       "session": validity.session, "at": iso(validity.at)}}  # fmt: skip


def _memory_words(category: str | None, key: str | None) -> str:
    return " ".join(part for part in (category or "memory", f"key {label(key)}" if key else None) if part)


def message_item(message: Message, ids: ShortIds) -> ItemMaker:
    """Return the function that renders a message of a conversation."""
    kind, by = kind_of(message.role)
    place = place_of(message.timestamp, message.project, message.device, ids.device)
    name = hit_name(message.hit)
    data = {
        "id": name, "origin": kind, "by": by, "when": iso(message.timestamp), "project": label(message.project),
        "device": label(message.device), "session_id": message.session_id,
    }  # fmt: skip
    return quoted(f"{name} {by}", place, message.text, data)


def turn_item(turn: ShownTurn, number: int | None = None, start: int = 0, most: int | None = None) -> ItemMaker:
    """Return the function that renders a turn of a conversation; at most ``most`` characters of it are shown."""
    name = hit_name(turn.hit)
    kind, by = kind_of(turn.role, turn.tool, turn.subagent)
    place = ("", *_file_words(turn.file))

    def make(max_chars: int) -> AnswerItem:
        text, left = excerpt(turn.text, min(max_chars, most or max_chars), start)
        data = {
            "id": name, "number": number, "text": text, "origin": kind, "by": by,
            "when": iso(turn.timestamp), "focus": turn.focus, "characters_left": left,
            "characters_archived": max(0, turn.full_length - len(turn.text)), **_file_data(turn.file),
            **_validity_data(turn.validity),
        }  # fmt: skip
        go_on = f"\n[start {len(quote(turn.text)) - left} goes on]" if left and turn.focus else ""
        return AnswerItem(f"{name} {_without_tool(by, text)}{_since(turn.validity)}", place, f"{text}{go_on}", data)

    return make


def memory_item(memory: Remembered, ids: ShortIds, start: int = 0, validity: Validity | None = None) -> ItemMaker:
    """Return the function that renders a memory."""
    by = f"{_memory_words(memory.category, memory.key)} via {label(memory.source)}"
    place = place_of(memory.updated_at, memory.project, memory.device, ids.device)
    data = {**memory_data(memory), **_validity_data(validity)}
    return quoted(f"{ids.memory(memory.id)} {by}{_since(validity)}", place, memory.text, data, start)


def memory_data(memory: Remembered) -> dict[str, Any]:
    """Return the JSON fields of a memory, without its text."""
    return {
        "id": memory.id, "category": memory.category, "key": label(memory.key), "project": label(memory.project),
        "status": memory.status, "source": label(memory.source), "device": label(memory.device),
        "created_at": iso(memory.created_at), "updated_at": iso(memory.updated_at),
    }  # fmt: skip
