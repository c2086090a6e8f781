"""Delete the rows named by open tombstones, and record which files still hold their text.

The text is needed to find its copies, and it is deleted with the rows. So the copies are found first and recorded as
places, in the transaction that deletes the first rows.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from crystal.errors import CrystalError
from crystal.forgetting.execute.derived_files import documents_with
from crystal.forgetting.match.archive_lines import LineMatcher, Scope, Searcher, began_at
from crystal.forgetting.match.multi_pattern import MIN_LENGTH, MultiPatternMatcher
from crystal.forgetting.match.needles import Needles
from crystal.forgetting.match.plan_needles import needles_for
from crystal.forgetting.plan.duplicates import find_duplicates
from crystal.forgetting.request import ForgetContext, ForgetPlan, ForgetRequest, counted
from crystal.ingest.forgotten_filter import BY_FORGETTING
from crystal.store import Store
from crystal.store.capture.privacy import add_private_lines
from crystal.store.forget import forgotten_rows, forgotten_work, traces
from crystal.store.forget.forgetting import Tombstone, add_tombstones, open_tombstones, taint_sessions
from crystal.summarize.markdown import file_stem

ARCHIVE = "archive"
"""Work: lines of an archived row. The target is the row, the detail their numbers or null for all."""
DAILY = "daily"
"""Work: a session's lines in the daily logs of an agent."""
SUMMARY = "summary"
"""Work: a session whose summary is to be written again from what is left."""
TITLE = "title"
"""Work: a session whose title is to be found in what is left."""
DOCUMENT = "document"
"""Work: a summary that is to be deleted; a path below the LDM home."""
OUTBOX = "outbox"
"""Work: blobs of the outbox."""
WORDS = "words"
"""Work: the keyword index still has deleted words, which merging removes."""
SWEPT = "swept"
"""Tombstone whose rows are deleted and whose files are recorded."""


@dataclass
class DeletionSet:
    """Rows to delete here: ids of lines and memories; sessions that lose title and summary; scopes."""

    lines: set[str] = field(default_factory=set)
    memories: set[str] = field(default_factory=set)
    sessions: set[str] = field(default_factory=set)
    scopes: list[Scope] = field(default_factory=list)
    whole: set[str] = field(default_factory=set)
    has_words: bool = False


def delete_here(grounds: ForgetContext, mirror: Store | None, now: int) -> None:
    """Delete the rows of open tombstones here and in the copy of home's memory. Idempotent."""
    store = grounds.store
    swept = {work.target for work in forgotten_work.works(store, SWEPT)}
    todo = [tombstone for _, tombstone in open_tombstones(store) if tombstone.uid not in swept]
    if not todo:
        return
    stores = [store, *([] if mirror is None else [mirror])]
    gone, more = _gather(grounds, stores, todo, now, _hand_over(grounds, stores, todo))
    needles = needles_for(grounds, _as_plan(gone)) if gone.has_words else None
    places = _search(grounds, stores, gone, needles)
    for one in stores:
        gone.sessions |= forgotten_rows.sessions_of(one, gone.lines)
    touched = sorted(gone.sessions)
    more += _tell_sessions(grounds.device, touched, todo, now)
    blobs = _blobs(grounds, _Matcher(gone, needles))
    documents = _documents(grounds, store, gone, needles)
    if mirror is not None:
        _delete(mirror, gone, now)
        _clean_documents(mirror, gone, needles)
    with store.transaction():
        add_tombstones(store, more, now)
        add_private_lines(store, sorted(gone.lines))
        taint_sessions(store, touched)
        if more:
            grounds.on_tombstones(store, more)
        for row, numbers in sorted(places.items()):
            forgotten_work.add_work(store, ARCHIVE, str(row), None if numbers is None else sorted(numbers), now)
        for path in documents:
            forgotten_work.add_work(store, DOCUMENT, path, None, now)
        if blobs != []:
            forgotten_work.add_work(store, OUTBOX, "", blobs, now)
    _delete(store, gone, now, agents=grounds, tombstones=[*todo, *more])


# -------------------------------------------------------------------------------------------------------- gathering


def _hand_over(grounds: ForgetContext, stores: Sequence[Store], todo: Sequence[Tombstone]) -> set[str]:
    """Return rows of deleted forks to sessions that stay: backfill may have read a fork before its original."""
    kept: set[str] = set()
    sessions = sorted({session for one in todo if one.kind == "session" for session in one.sessions})
    for session in sessions:
        began = began_at(forgotten_rows.kept_rows_of_session(grounds.store, session), grounds.ldm_home)
        if began is None:
            continue
        for store in stores:
            lent = forgotten_rows.uuids_lent(store, sessions, began) & forgotten_rows.uuids_of_sessions(
                store, [session], began
            )
            if lent and store is grounds.store:
                with store.transaction():
                    forgotten_work.hand_over(store, lent, sessions)
            kept |= lent
    return kept


def _gather(
    grounds: ForgetContext, stores: Sequence[Store], todo: Sequence[Tombstone], now: int, kept: Collection[str]
) -> tuple[DeletionSet, list[Tombstone]]:
    """Collect the rows of tombstones, and make tombstones for copies that only this machine knows.

    ``kept`` are lines that a session only copied from another one.
    """
    gone = DeletionSet()
    for tombstone in todo:
        gone.lines |= set(tombstone.lines)
        gone.memories |= set(tombstone.memories)
        gone.sessions |= set(tombstone.sessions)
        gone.has_words |= tombstone.kind in ("lines", "memory") and bool(tombstone.lines or tombstone.memories)
        if tombstone.until_at is not None:
            _add_scope(gone, stores, tombstone, tombstone.until_at, set(kept) - set(tombstone.lines))
    foreign = [one for one in todo if one.device != grounds.device]
    lines = {uuid for one in foreign if one.kind == "lines" for uuid in one.lines}
    memories = {uid for one in foreign for uid in one.memories}
    new_lines: set[str] = set()
    new_memories = gone.memories - {uid for one in todo for uid in one.memories}
    if lines or memories:
        for found, _ in find_duplicates(stores, lines, memories):
            new_lines |= found.lines - gone.lines
            new_memories |= found.memories - gone.memories
    for store in stores:
        new_lines |= forgotten_rows.summaries_after(store, gone.lines) - gone.lines
    gone.lines |= new_lines
    gone.memories |= new_memories
    return gone, _own_tombstones(grounds.device, new_lines, new_memories, now)


def _add_scope(
    gone: DeletionSet, stores: Sequence[Store], tombstone: Tombstone, until: int, kept: Collection[str] = ()
) -> None:
    for store in stores:
        if tombstone.kind == "session":
            gone.lines |= forgotten_rows.uuids_of_sessions(store, tombstone.sessions, until) - set(kept)
        elif tombstone.kind == "project":
            projects = forgotten_rows.folders_within(store, tombstone.folders)
            gone.lines |= forgotten_rows.uuids_of_projects(store, projects, until)
        elif tombstone.kind == "before":
            gone.lines |= forgotten_rows.uuids_before(store, until)
    if tombstone.kind == "session":
        gone.scopes += [Scope(session, None, until) for session in tombstone.sessions]
        gone.whole |= set(tombstone.sessions)
    elif tombstone.kind == "project":
        gone.scopes += [Scope(None, folder, until) for folder in tombstone.folders]
    elif tombstone.kind == "before":
        gone.scopes.append(Scope(None, None, until))


def _own_tombstones(device: str, lines: Collection[str], memories: Collection[str], now: int) -> list[Tombstone]:
    made = []
    if lines:
        made.append(_made("lines", {"lines": sorted(lines), "sessions": []}, device, now))
    if memories:
        made.append(_made("memory", {"memories": sorted(memories), "sessions": []}, device, now))
    return made


def _tell_sessions(device: str, touched: Sequence[str], todo: Sequence[Tombstone], now: int) -> list[Tombstone]:
    """Return a tombstone for affected sessions that only this machine knows: other machines may have copies."""
    untold = sorted(set(touched) - {session for one in todo for session in one.sessions})
    return [_made("lines", {"lines": [], "sessions": untold}, device, now)] if untold else []


def _made(kind: Literal["lines", "memory"], value: dict[str, list[str]], device: str, now: int) -> Tombstone:
    text = json.dumps([kind, value, device], sort_keys=True)
    uid = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return Tombstone(uid, kind, value, None, now, device)


def _as_plan(gone: DeletionSet) -> ForgetPlan:
    """Return the deletions as a plan, as the builder of needles needs it."""
    lines, memories = {"lines": sorted(gone.lines)}, {"memories": sorted(gone.memories)}
    return ForgetPlan(
        ForgetRequest(), kinds=(("lines", lines, None), ("memory", memories, None)), sessions=(*gone.sessions,)
    )


# -------------------------------------------------------------------------------------------------------- searching


def _search(
    grounds: ForgetContext, stores: Sequence[Store], gone: DeletionSet, needles: Needles | None
) -> dict[int, set[int] | None]:
    """Return the archived lines to delete, by ledger row."""
    judge = LineMatcher(
        frozenset(gone.lines),
        tuple(gone.scopes),
        needles,
        None,
        lambda uuid: uuid not in gone.lines and any(traces.has_line(store, uuid) for store in stores),
    )
    places: dict[int, set[int] | None] = {}
    rows = forgotten_rows.kept_rows(grounds.store)
    told = counted(rows, "looking through the archives", len(rows), grounds.progress)
    for found in Searcher(judge).search(told, grounds.ldm_home):
        places.setdefault(found.row.id, set()).add(found.number)  # type: ignore[union-attr]
        gone.sessions.add(found.row.session_id)
        if found.because == "copy" or (found.because == "session" and any(judge.stays(turn) for turn in found.turns)):
            continue  # lines that a forgotten session copied from another one stay there
        gone.lines |= {name for name in (found.uuid, *found.turns) if name is not None}
    return places


def _documents(grounds: ForgetContext, store: Store, gone: DeletionSet, needles: Needles | None) -> list[str]:
    """Return summaries of unaffected sessions that still hold the text; their log lines are deleted as well."""
    if needles is None:
        return []
    found: list[str] = []
    stems = {file_stem(session): session for session in forgotten_rows.session_ids(store)}
    for path in documents_with(grounds.ldm_home / "agents", lambda data: _is_hit(needles, data)):
        kind = path.parent.name
        if kind == "sessions":
            found.append(path.relative_to(grounds.ldm_home).as_posix())
            session = stems.get(path.stem.partition("--")[2])
            gone.sessions |= {session} if session is not None else set()
        elif kind == "daily":
            for line in path.read_bytes().splitlines():
                if _is_hit(needles, line):
                    gone.sessions |= {session for stem, session in stems.items() if f"<!-- {stem} ".encode() in line}
    return found


def _is_hit(needles: Needles, data: bytes) -> bool:
    return next(needles.seeker.find(data), None) is not None


class _Matcher:
    """Predicate: the plain bytes of a message hold something to delete."""

    def __init__(self, gone: DeletionSet, needles: Needles | None) -> None:
        names = {*gone.lines, *gone.memories, *gone.sessions, *(one.folder for one in gone.scopes if one.folder)}
        ids = {name.encode("utf-8", "surrogatepass") for name in names}
        self._ids = MultiPatternMatcher(sorted(name for name in ids if len(name) >= MIN_LENGTH))
        self._short = [name for name in ids if len(name) < MIN_LENGTH]
        self._needles = needles
        self._every = any(one.session is None and one.folder is None for one in gone.scopes)

    def __call__(self, data: bytes) -> bool:
        return (
            self._every
            or next(self._ids.find(data), None) is not None
            or any(name in data for name in self._short)
            or (self._needles is not None and _is_hit(self._needles, data))
        )


def _blobs(grounds: ForgetContext, matcher: _Matcher) -> list[Any] | None:
    """Return the blobs of the outbox that match; None if it cannot be opened now."""
    try:
        return [] if grounds.outbox is None else grounds.outbox.find(matcher)
    except CrystalError:
        return None


def matcher_of(store: Store) -> Callable[[bytes], bool]:
    """Return the same predicate using only the ids of open tombstones."""
    gone = DeletionSet()
    for _, tombstone in open_tombstones(store):
        gone.lines |= set(tombstone.lines)
        gone.memories |= set(tombstone.memories)
        if tombstone.until_at is not None:
            _add_scope(gone, [], tombstone, tombstone.until_at)
    return _Matcher(gone, None)


# --------------------------------------------------------------------------------------------------------- deleting


def _delete(
    store: Store,
    gone: DeletionSet,
    now: int,
    *,
    agents: ForgetContext | None = None,
    tombstones: Iterable[Tombstone] = (),
) -> None:
    """Delete the rows. If there are very many, delete the chunks first, in separate short transactions."""
    chunks = forgotten_work.chunks_of(store, gone.lines)
    if len(chunks) > forgotten_work.MANY:
        for at in range(0, len(chunks), forgotten_work.BATCH):
            with store.transaction():
                forgotten_work.delete_marked(store, chunks[at : at + forgotten_work.BATCH])
                forgotten_work.add_work(store, WORDS, "", None, now)
    with store.transaction():
        forgotten_work.delete_copies(store, gone.whole)
        forgotten_work.delete_lines(store, gone.lines)
        forgotten_work.delete_remembered(store, sorted(gone.memories))
        resets = forgotten_work.reset_sessions(store, gone.sessions)
        if agents is None:
            return
        forgotten_rows.close_relayed(store, gone.whole, BY_FORGETTING)
        for reset in resets:
            folder = agents.agent_folder(reset.agent)
            if reset.summary_path is not None:
                path = _below(folder / reset.summary_path, agents.ldm_home)
                forgotten_work.add_work(store, DOCUMENT, path, None, now)
                if not reset.is_gone:
                    forgotten_work.add_work(store, SUMMARY, reset.session_id, None, now)
            forgotten_work.add_work(store, DAILY, reset.session_id, reset.agent, now)
            if not reset.is_gone:
                forgotten_work.add_work(store, TITLE, reset.session_id, None, now)
        for tombstone in tombstones:
            forgotten_work.add_work(store, SWEPT, tombstone.uid, None, now)


def _below(path: Path, folder: Path) -> str:
    return path.relative_to(folder).as_posix() if path.is_relative_to(folder) else path.as_posix()


def _clean_documents(mirror: Store, gone: DeletionSet, needles: Needles | None) -> None:
    """Remove the text from the copies of home's summaries and logs; home sends them again."""
    stems = {file_stem(session) for session in gone.sessions}
    for name, content in list(_touched(mirror, stems, needles)):
        with mirror.transaction():
            forgotten_work.write_document(mirror, name, content)


def _touched(mirror: Store, stems: set[str], needles: Needles | None) -> Iterator[tuple[str, bytes]]:
    marks = [f"<!-- {stem} ".encode() for stem in stems]
    for name, content in forgotten_work.documents(mirror):
        if any(name.endswith(f"--{stem}.md") for stem in stems):
            yield name, b""
            continue
        lines = content.splitlines(keepends=True)
        kept = [
            line
            for line in lines
            if not any(mark in line for mark in marks) and not (needles is not None and _is_hit(needles, line))
        ]
        if len(kept) != len(lines):
            yield name, b"".join(kept)
