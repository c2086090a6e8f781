"""Delete the rows named by open tombstones, and record which files still hold their text.

The text is needed to find its copies, and it is deleted with the rows. So the copies are found first and recorded as
places, in the transaction that deletes the first rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from crystal.forgetting.match.archive_lines import ArchiveSearch, began_at
from crystal.forgetting.match.archive_words import rows_repeating
from crystal.forgetting.match.forgotten_text import text_matcher
from crystal.forgetting.plan.select import find_duplicates
from crystal.forgetting.request import (
    ArchivedMatch,
    ForgetContext,
    Progress,
    SearchedArchives,
    Selection,
    counted,
)
from crystal.ingest.forgotten_filter import BY_FORGETTING
from crystal.ingest.said_by_agent import said_by_agent
from crystal.store import Store
from crystal.store.capture.privacy import add_private_lines
from crystal.store.forget import forgotten_rows, forgotten_work, traces
from crystal.store.forget.forgetting import (
    ForgottenScope,
    Tombstone,
    add_tombstones,
    make_tombstone,
    open_tombstones,
    taint_sessions,
)
from crystal.store.forget.forgotten_rows import KeptRow
from crystal.store.memories.learned import drop_answers, learned_only_from
from crystal.store.memories.memories import delete_memories
from crystal.store.search import space

ARCHIVE = "archive"
"""Work: lines of an archived row. The target is the row, the detail their numbers."""
FILE = "file"
"""Work: a file that is to be deleted; a path below the LDM home. The detail is where a person moved it."""
SESSION = "session"
"""Work: a session whose log, title and summary are to be made again from what is left. The detail is its agent."""
SWEPT = "swept"
"""Tombstone whose rows are deleted and whose files are recorded."""


@dataclass
class DeletionSet(Selection):
    """Rows to delete here.

    Attributes:
        sessions: Sessions that lose title and summary; those in ``whole`` are forgotten as a whole.
        scopes: Places and times of lines that only archives have.
        has_words: True if the text of the lines is to be found elsewhere, too.
    """

    sessions: set[str] = field(default_factory=set)
    scopes: list[ForgottenScope] = field(default_factory=list)
    whole: set[str] = field(default_factory=set)
    has_words: bool = False


def delete_here(
    context: ForgetContext, mirror: Store | None, now: int, searched: SearchedArchives | None = None
) -> None:
    """Delete the rows of open tombstones here and in the copy of home's memory. Idempotent.

    Archives that were ``searched`` for all of it, and have not changed since, are not searched again.
    """
    store = context.store
    swept = {work.target for work in forgotten_work.works(store, SWEPT)}
    todo = [tombstone for _, tombstone in open_tombstones(store) if tombstone.uid not in swept]
    if not todo:
        return
    stores = [one for one in (store, mirror) if one is not None]
    gone, more = _gather(context, stores, todo, now, _hand_over(context, stores, todo))
    places = _search(context, stores, gone, searched)
    gone.sessions.update(*(forgotten_rows.sessions_of(one, gone.lines) for one in stores))
    unnamed_sessions = gone.sessions - {session for one in todo for session in one.sessions}
    if unnamed_sessions:  # other machines may have copies of them
        more.append(_made("lines", (), unnamed_sessions, context.device, now))
    if mirror is not None:
        _delete_many(mirror, gone, context.progress)
        with mirror.transaction():
            _delete(mirror, gone)
    with store.transaction():
        add_tombstones(store, more, now)
        add_private_lines(store, sorted(gone.lines))
        taint_sessions(store, sorted(gone.sessions))
        if more:
            context.on_tombstones(store, more)
        for row, numbers in sorted(places.items()):
            forgotten_work.add_work(store, ARCHIVE, str(row), sorted(numbers), now)
    _delete_many(store, gone, context.progress)
    with store.transaction():
        resets = _delete(store, gone)
        forgotten_rows.close_relayed(store, gone.whole, BY_FORGETTING)
        _note_summaries(context, resets, now)
        for tombstone in (*todo, *more):
            forgotten_work.add_work(store, SWEPT, tombstone.uid, None, now)


def _note_summaries(context: ForgetContext, resets: Iterable[tuple[str, str, str | None]], now: int) -> None:
    """Note the sessions whose summaries are to be made anew, and the files of the old ones."""
    for session, agent, summary in resets:
        if summary is not None:
            path = context.agent_folder(agent) / summary
            name = path.relative_to(context.ldm_home) if path.is_relative_to(context.ldm_home) else path
            forgotten_work.add_work(context.store, FILE, name.as_posix(), None, now)
        forgotten_work.add_work(context.store, SESSION, session, [agent, summary is not None], now)


# -------------------------------------------------------------------------------------------------------- gathering


def _hand_over(context: ForgetContext, stores: Sequence[Store], todo: Sequence[Tombstone]) -> set[str]:
    """Return rows of deleted forks to sessions that stay: backfill may have read a fork before its original."""
    kept: set[str] = set()
    sessions = sorted({session for one in todo if one.kind == "session" for session in one.sessions})
    for session in sessions:
        began = began_at(forgotten_rows.kept_rows_of_session(context.store, session), context.ldm_home)
        if began is None:
            continue
        for store in stores:
            said = forgotten_rows.lines_where(store, sessions=[session], before=began)
            lent = said & forgotten_rows.uuids_lent(store, sessions, began)
            if lent and store is context.store:
                with store.transaction():
                    forgotten_work.move_turns_to_copies(store, lent, sessions)
            kept |= lent
    return kept


def _gather(
    context: ForgetContext, stores: Sequence[Store], todo: Sequence[Tombstone], now: int, kept: Collection[str]
) -> tuple[DeletionSet, list[Tombstone]]:
    """Collect the rows of tombstones, and make tombstones for copies that only this machine knows.

    ``kept`` are lines that a session only copied from another one.
    """
    gone, taught = _named(context, stores, todo, kept)
    new = _unnamed_copies(context, stores, todo, gone)
    for session in gone.sessions.union(*(forgotten_rows.sessions_of(one, gone.lines) for one in stores)):
        twins = said_by_agent(context.store, context.ldm_home, session)
        new.lines |= {uuid for (uuid, _), line in twins.items() if line in gone.lines} - gone.lines
    for store in stores:
        new.lines |= forgotten_rows.summaries_after(store, gone.lines) - gone.lines
        new.memories |= learned_only_from(store, taught) - gone.memories
    gone.lines |= new.lines
    gone.memories |= new.memories
    made = [("lines", new.lines), ("memory", new.memories)]
    return gone, [_made(kind, names, (), context.device, now) for kind, names in made if names]  # type: ignore[arg-type]


def _named(
    context: ForgetContext, stores: Sequence[Store], todo: Sequence[Tombstone], kept: Collection[str]
) -> tuple[DeletionSet, set[str]]:
    """Return the rows that tombstones name, and lines whose memories are to be forgotten, too."""
    gone, taught = DeletionSet(), set[str]()
    for tombstone in todo:
        gone.lines |= set(tombstone.lines)
        gone.memories |= set(tombstone.memories)
        gone.sessions |= set(tombstone.sessions)
        gone.has_words |= tombstone.kind in ("lines", "memory") and bool(tombstone.lines or tombstone.memories)
        gone.scopes += tombstone.scopes
        gone.whole |= set(tombstone.sessions) if tombstone.kind == "session" and tombstone.scopes else set()
        spared = set(kept) - set(tombstone.lines) if tombstone.kind == "session" else set()
        for scope, store in itertools.product(tombstone.scopes, stores):
            gone.lines |= _lines_in(store, scope) - spared
        if tombstone.device != context.device and tombstone.kind != "before":  # what is old may have taught what stays
            taught |= {*tombstone.lines, *gone.lines}
    return gone, taught


def _unnamed_copies(
    context: ForgetContext, stores: Sequence[Store], todo: Sequence[Tombstone], gone: DeletionSet
) -> Selection:
    """Return copies of what other machines forgot: they cannot name the rows that only this machine has."""
    foreign = [one for one in todo if one.device != context.device]
    lines = {uuid for one in foreign if one.kind == "lines" for uuid in one.lines}
    memories = {uid for one in foreign for uid in one.memories}
    new = Selection()
    for found, _ in find_duplicates(stores, lines, memories) if lines or memories else ():
        new.lines |= found.lines - gone.lines
        new.memories |= found.memories - gone.memories
    return new


def _lines_in(store: Store, scope: ForgottenScope) -> set[str]:
    sessions = None if scope.session is None else [scope.session]
    projects = None if scope.folder is None else forgotten_rows.folders_within(store, [scope.folder])
    return forgotten_rows.lines_where(store, sessions=sessions, projects=projects, before=scope.until)


def _made(
    kind: Literal["lines", "memory"], names: Iterable[str], sessions: Iterable[str], device: str, now: int
) -> Tombstone:
    value = {"lines" if kind == "lines" else "memories": sorted(names), "sessions": sorted(sessions)}
    return make_tombstone(kind, value, None, now, device)


# -------------------------------------------------------------------------------------------------------- searching


def _search(
    context: ForgetContext, stores: Sequence[Store], gone: DeletionSet, searched: SearchedArchives | None
) -> dict[int, set[int]]:
    """Return the numbers of the archived lines to delete, by ledger row."""
    touched = gone.sessions.union(*(forgotten_rows.sessions_of(store, gone.lines) for store in stores))
    kept = forgotten_rows.kept_rows(context.store)
    if searched is None or gone.scopes:
        searched = SearchedArchives()

    def stays(uuid: str) -> bool:
        return uuid not in gone.lines and any(traces.has_line(store, uuid) for store in stores)

    def search(rows: Sequence[KeptRow], known: frozenset[str]) -> Iterator[ArchivedMatch]:
        lines = frozenset(gone.lines - known)
        if not rows or not (gone.scopes or lines or gone.memories - known):
            return
        texts = None
        if gone.has_words:
            texts = text_matcher(stores, gone.lines, gone.memories, context.progress, known)
        told = counted(rows, "looking through the archives", len(rows), context.progress)
        repeating = set(rows_repeating(context.store, rows, texts))
        finder = ArchiveSearch(lines, texts, touched, None, stays, tuple(gone.scopes), repeating)
        yield from finder.run(told, context.ldm_home)

    # Rows that were searched are searched only for what was found since.
    anew, rest = list[KeptRow](), list[KeptRow]()
    new_sessions = touched - searched.sessions
    for row in kept:
        (anew if row not in searched.rows or row.session_id in new_sessions else rest).append(row)
    unchanged = searched.rows.intersection(kept)
    known = [found for found in searched.matches if found.row in unchanged]
    places: dict[int, set[int]] = {}
    for found in itertools.chain(known, search(anew, frozenset()), search(rest, searched.ids)):
        places.setdefault(found.row.id, set()).add(found.number)
        gone.sessions.add(found.row.session_id)
        if found.because == "copy" or (found.because == "session" and any(map(stays, found.turns))):
            continue  # lines that a forgotten session copied from another one stay there
        gone.lines |= found.names
    return places


# --------------------------------------------------------------------------------------------------------- deleting


def _delete_many(store: Store, gone: DeletionSet, progress: Progress) -> None:
    """Delete the chunks in separate short transactions if there are very many."""
    chunks = forgotten_work.chunks_of(store, gone.lines)
    if len(chunks) <= forgotten_work.MANY:
        return
    for at in range(0, len(chunks), forgotten_work.BATCH):
        progress("deleting the messages", at, len(chunks))
        with store.transaction():
            space.delete_chunks(store, chunks[at : at + forgotten_work.BATCH])


def _delete(store: Store, gone: DeletionSet) -> list[tuple[str, str, str | None]]:
    """Delete the rows; return the sessions that lost title and summary. Inside a transaction."""
    drop_answers(store, gone.lines)
    forgotten_work.delete_lines(store, gone.lines, gone.whole)
    delete_memories(store, sorted(gone.memories))
    return forgotten_work.reset_sessions(store, gone.sessions)
