"""Find duplicates of what is forgotten in the memories of this machine. Read-only."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from crystal.forgetting.match.terms import folded, repetitions
from crystal.forgetting.plan.candidates import turns_repeating
from crystal.forgetting.request import Because, Selection
from crystal.store import Store
from crystal.store.forget import forgotten_rows
from crystal.store.memories.memories import memory_of


def find_duplicates(
    stores: Sequence[Store], lines: Collection[str], memories: Collection[str]
) -> Iterator[tuple[Selection, Because]]:
    """Return equal texts, quotations, requests to remember one of the memories, and the client's summaries."""
    texts = forgotten_rows.texts_of(stores, lines, memories)
    gone = set(lines)
    for store in stores:
        same, quoting = repetitions(texts, forgotten_rows.each_text(store, turns_repeating(store, texts)))
        asking = Selection(_words_of_asking(store, memories))
        yield from ((same, "same-text"), (quoting, "quote"), (asking, "remembered"))
        gone |= same.lines | quoting.lines | asking.lines
    for store in stores:
        yield Selection(forgotten_rows.summaries_after(store, gone)), "summary"


ASKING = ("remember", "/remember", "please remember", "please, remember", "记住", "記住", "请记住", "請記住")
"""Beginnings of prompts that ask to remember something; see docs/how-to/start-with-context.md."""


def _words_of_asking(store: Store, memories: Collection[str]) -> set[str]:
    """Return the lines that asked for a memory, also of one too short to be searched for everywhere."""
    found: set[str] = set()
    for uid in memories:
        memory = memory_of(store, uid)
        if memory is None or memory.session_id is None:
            continue
        text = folded(memory.text)
        for uuid, role, tool, said in forgotten_rows.turns_of_session(store, memory.session_id):
            if text and text in folded(said) and (_asks(said) if role == "user" else _is_ours(tool)):
                found.add(uuid)
    return found


def _asks(text: str) -> bool:
    """Return True if a prompt asks to remember something."""
    return folded(text).startswith(ASKING)


def _is_ours(tool: str | None) -> bool:
    """Return True if a tool is one that remembers."""
    return tool is not None and ("remember" in tool or "save_memory" in tool)
