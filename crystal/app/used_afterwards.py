"""Measure how much of what a session was told, or opened after a search, it used: whether it said its words.

Words are compared, not meanings: what is followed silently counts as unused, and words that would have been said anyway
count as use. Nothing is stored: crystal keeps neither searches nor their results, but a transcript has its agent's
calls. What was forgotten is not counted.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import chain, groupby, islice

from crystal.app.context import Machine
from crystal.app.memory_queries import memory_of
from crystal.errors import CrystalError
from crystal.model.named_tuple import NamedTuple
from crystal.sessions.reading import find_target, read
from crystal.store import Store
from crystal.store.sessions.contexts import Injection
from crystal.store.sessions.conversations import said_after
from crystal.store.sessions.turn_texts import turn_texts
from crystal.store.work.queries import MemoryCall, memory_calls
from crystal.text.query import STOP_WORDS
from crystal.work.calls import commands_of, tool_name

MAX_SESSIONS, MAX_TURNS = 50, 200
"""Limits: the latest sessions of a period that are read, and the turns of each, the first after it was told."""
MAX_SAID, MAX_OPENED = 5_000, 2_000
"""Limits: turns of a session in which hits were opened, and characters of a hit."""
MIN_WORDS, MIN_LETTERS = 2, 4
_WORD = re.compile(r"\w(?:[\w./:-]*\w)?")
_IS_NAME = re.compile(r"[\d_./:]")
_THING = re.compile(r"(?=.*[\d_./:]).*[^\W\d_]")
"""A name with a letter. Of a whole message other words would too often be said anyway."""
_SEARCHES = ("crystal_search", "search_memory", "memory_search")
_OPENED = re.compile(r"^id: (\S+)", re.MULTILINE)
_COMMAND = re.compile(
    r"(?:^|[;&|(`]|\b(?:then|do|else|time)\b) *(?:\w+=\S* +)*(?:\S*/)?"
    r"crystal +(?:search|show +(?:--?[\w-]+ +)*(h\d+|mem-[\w-]+))\b",
    re.MULTILINE,
)
"""A search, or a hit opened by its id: which one a place such as ``1`` or ``@2`` meant is not known later."""
_NOT_RUN = re.compile(
    r"<<-?\s*(?P<mark>['\"]?)(?P<end>\w+)(?P=mark)(?P<rest>.*)\n(?:.*\n)*?\s*(?P=end)$"
    r"|\\\n|'[^']*'|\"(?:[^\"\\$`]|\\.)*\"|(?<!\S)#.*",
    re.MULTILINE,
)
"""Text in a command that no shell runs: here-documents, quoted text without a command in it, comments."""


class Used(NamedTuple):
    """Number of memories that a session was told, or of hits that it opened after a search, and of those used later."""

    at: int
    known: int
    used: int


def told_and_used(store: Store, log: Sequence[Injection], texts: Mapping[str, str]) -> list[Used]:
    """Return for the latest sessions of a log how many memories were told and used; ``texts`` are those by id."""
    found: list[Used] = []
    for one in log:
        told = {ident: texts[ident] for ident in one.chosen if ident in texts}
        if told and len(found) < MAX_SESSIONS:
            said = [text for _, text in said_after(store, one.session_id, one.at, MAX_TURNS)]
            if said:
                found.append(Used(one.at, len(told), len(find_used(told, said))))
    return found


def find_used(told: Mapping[str, str], said: Iterable[str]) -> list[str]:
    """Return the ids of the memories of which a text says one name, such as a file's, or two other words.

    Only words count that no other of the memories has.
    """
    heard, words = words_of(" ".join(said)), {ident: words_of(text) for ident, text in told.items()}
    used = []
    for ident, own in words.items():
        common = set().union(*(words[other] for other in words if other != ident))
        if is_used(own, common, heard, min(MIN_WORDS, max(1, len(own)))):
            used.append(ident)
    return used


def found_and_used(machine: Machine, since: int) -> list[Used]:
    """Return for each search of an agent how many hits the agent opened before its next search, and used.

    Read are the latest sessions since a moment that have searches, of this machine alone: the ids of hits are others
    elsewhere.
    """
    calls_here = memory_calls(machine.store, since, machine.config.device)
    by_session = groupby(calls_here, key=lambda one: one.session_id)
    sessions = filter(None, (_searches(machine, session, [*calls]) for session, calls in by_session))
    return list(chain.from_iterable(islice(sessions, MAX_SESSIONS)))


def _searches(machine: Machine, session: str, calls: Sequence[MemoryCall]) -> list[Used]:
    found, said = list[Used](), list[tuple[int, set[str]]]()
    texts = turn_texts(machine.store, [one.turn for one in calls], MAX_OPENED)
    for call in calls:
        for opened in _steps(call, texts[call.turn][1] if call.turn in texts else ""):
            text = _hit_text(machine, opened) if opened and found else None
            if not opened:
                found.append(Used(call.at, 0, 0))
            elif text:
                said = said or said_words(machine.store, session, MAX_SAID)
                is_new = is_used(filter(_THING.search, words_of(text)), *words_around(said, call.at))
                found[-1] = Used(found[-1].at, found[-1].known + 1, found[-1].used + is_new)
    return found


def _steps(call: MemoryCall, text: str) -> list[str]:
    """Return the ids that a call opens, and an empty one for each search."""
    if call.command is not None:
        run = (_NOT_RUN.sub(_quoted_word, each) for each in commands_of(call.tool, text))
        return [each[1] or "" for command in run for each in _COMMAND.finditer(command)]
    if tool_name(call.tool).endswith(_SEARCHES):
        return [""]
    return _OPENED.findall(text)[:1] if tool_name(call.tool).endswith("crystal_get") else []


def _quoted_word(found: re.Match[str]) -> str:
    """Return the replacement for text that no shell runs: a quoted id, or what follows a here-document's mark.

    A command goes on after a line break with a backslash.
    """
    if found[0] == "\\\n":
        return " "
    return f"{found[0]}"[1:-1] if re.fullmatch(r"(['\"])[\w-]+\1", found[0]) else found["rest"] or " _ "


def _hit_text(machine: Machine, ident: str) -> str | None:
    """Return the beginning of a hit's or a memory's text; None for a session, or if it is missing."""
    with suppress(CrystalError):
        if ident.lower().startswith("mem-"):
            return memory_of(machine, ident).text
        target = find_target(machine.stores, ident)
        if target.chunk is not None:
            return read(machine.stores, target, context=0).turns[0].text[:MAX_OPENED]
    return None


def is_used(own: Iterable[str], before: Collection[str], after: Collection[str], least: int = MIN_WORDS) -> bool:
    """Return whether of a text's own words some are new after a moment: one name, or so many others."""
    new = {word for word in own if word in after and word not in before}
    return any(map(_IS_NAME.search, new)) or len(new) >= least


def said_words(store: Store, session_id: str, limit: int) -> list[tuple[int, set[str]]]:
    """Return (time, words) of what user and assistant said and called in a session, its first turns."""
    return [(at, words_of(text)) for at, text in said_after(store, session_id, 0, limit)]


def words_around(said: Sequence[tuple[int, set[str]]], moment: int) -> tuple[set[str], set[str]]:
    """Return the words that were said until a moment, and after it."""
    before, after = set[str](), set[str]()
    for at, words in said:
        (after if at > moment else before).update(words)
    return before, after


def words_of(text: str) -> set[str]:
    """Return the names in a text, and its words that are long and not common."""
    words = set(_WORD.findall(text.casefold()))
    return {word for word in words - STOP_WORDS if len(word) >= MIN_LETTERS or _IS_NAME.search(word)}
