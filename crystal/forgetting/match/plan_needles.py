"""Build the needles of a plan from its texts and words, while they still exist."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from crystal import transcript
from crystal.errors import Damaged
from crystal.forgetting.match.needles import Archived, Needles, is_word, needles_of, with_bodies
from crystal.forgetting.request import ForgetContext, ForgetPlan, counted
from crystal.ingest import archive
from crystal.store import Store
from crystal.store.forget import forgotten_rows, traces
from crystal.store.search.scope import is_within
from crystal.store.search.words import tokenizer

SCOPES = ("session", "project", "before")
PIECE_BODIES = 2_000


def needles_for(grounds: ForgetContext, plan: ForgetPlan, *, for_proof: bool = False) -> Needles:
    """Return the needles for a proof of this plan. Call it before the plan is carried out, while the text still exists.

    Args:
        grounds: This machine.
        plan: What is to be forgotten.
        for_proof: Also search for the compressed form of the store: in files only, not in archives.
    """
    lines = {uuid for _, value, _ in plan.kinds for uuid in _names(value, "lines")}
    memories = {uid for _, value, _ in plan.kinds for uid in _names(value, "memories")}
    sessions = set(plan.sessions)
    with grounds.open_mirror() as mirror:
        stores = [grounds.store, *([mirror] if mirror is not None else [])]
        for store in stores:  # forks have its title too
            sessions |= forgotten_rows.sessions_of(store, lines)
        texts = [text for store in stores for text in traces.said_texts(store, lines, memories)]

        def staying() -> Iterator[str]:
            for store in stores:
                texts = traces.staying_texts(store, lines, memories, sessions)
                yield from counted(texts, "reading what stays", traces.count_turns(store), grounds.progress)

        needles = needles_of(
            [*texts, *(text for text in plan.needles if not is_word(text))],
            words=filter(is_word, plan.needles),
            staying=staying(),
            archived=Archived(_archived(grounds, plan, sessions), any(kind in SCOPES for kind, _, _ in plan.kinds)),
            is_said=lambda word: any(traces.is_said(store, word, lines, memories) for store in stores),
            tokenize=tokenizer(grounds.store),
            lines=lines,
            memories=memories,
        )
        if not for_proof:
            return needles
        gone, kept = (_bodies(stores, lines, memories, are_gone=gone) for gone in (True, False))
        return with_bodies(needles, gone, _batched(kept))


def _bodies(
    stores: Sequence[Store], lines: Collection[str], memories: Collection[str], *, are_gone: bool
) -> Iterator[bytes]:
    for store in stores:
        yield from traces.bodies(store, lines, memories, are_gone=are_gone)


def _batched(bodies: Iterator[bytes]) -> Iterator[bytes]:
    while batch := list(islice(bodies, PIECE_BODIES)):
        yield b"\0".join(batch)


def _archived(grounds: ForgetContext, plan: ForgetPlan, touched: Collection[str]) -> Iterator[bytes]:
    """Return the archived lines of unaffected sessions, and those outside of a scope."""
    for row in forgotten_rows.kept_rows(grounds.store):
        is_touched = row.session_id in touched
        if is_touched and not any(kind in ("project", "before") for kind, _, _ in plan.kinds):
            continue
        with contextlib.suppress(Damaged):
            text = archive.read_frame(grounds.ldm_home / row.archive, archive.Frame(row.offset, row.length))
            yield b"\n".join(line for line in text.split(b"\n") if _is_outside(plan, line)) if is_touched else text


def _is_outside(plan: ForgetPlan, line: bytes) -> bool:
    """Return True if the line itself shows that it is outside of all scopes."""
    facts = transcript.line_facts(line)
    return facts.uuid is not None and all(
        (until is not None and facts.timestamp_ms is not None and facts.timestamp_ms >= until)
        or (kind == "project" and facts.cwd is not None and not _is_in(facts.cwd, _names(value, "folders")))
        for kind, value, until in plan.kinds
        if kind in SCOPES
    )


def _is_in(cwd: str, folders: Sequence[str]) -> bool:
    return any(is_within(cwd, folder) for folder in folders)


def _names(value: Mapping[str, Any], what: str) -> Sequence[str]:
    found = value.get(what)
    return [name for name in found if isinstance(name, str)] if isinstance(found, list | tuple) else []
