"""Turn a request into the list of what would be deleted. Changes nothing.

First the named targets are selected, then their duplicates, then lines that only archives have. A scope (a session, a
project, everything before a time) selects what is in it, and nothing because of its text.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from crystal.errors import NotFoundError, UsageError
from crystal.forgetting.archive_links import archives_elsewhere
from crystal.forgetting.match.archive_lines import ArchiveSearch, began_at
from crystal.forgetting.match.archive_words import rows_repeating
from crystal.forgetting.match.forgotten_text import text_matcher
from crystal.forgetting.match.patterns import TextMatcher
from crystal.forgetting.match.query_terms import Terms, folded
from crystal.forgetting.plan.select import (
    PreviewLimit,
    Scope,
    find_duplicates,
    find_target,
    folders_meant,
    select,
    sessions_meant,
)
from crystal.forgetting.request import (
    ArchivedMatch,
    Because,
    ForgetContext,
    ForgetItem,
    ForgetPlan,
    ForgetRequest,
    SearchedArchives,
    Selection,
    counted,
)
from crystal.model.capture import Memory, is_unicode
from crystal.store import Store
from crystal.store.forget import forgotten_rows, traces
from crystal.store.forget.forgetting import TombstoneKind
from crystal.store.forget.forgotten_rows import KeptRow
from crystal.store.memories.learned import learned_only_from
from crystal.store.memories.memories import memory_of
from crystal.store.search.candidates import each_file
from crystal.store.sessions.contexts import state_of_memory

TEXT_CHARACTERS = 300

MAX_READ = 1_500
"""Texts that a preview of a large memory reads: a third of a second."""

MAX_LOOKED_UP = 100
"""Texts whose repetitions such a preview looks up: another half."""

MAX_ARCHIVE_BYTES = 4 << 20
"""Compressed bytes of archives that such a preview reads."""

Stores = Sequence[tuple[Memory, Store]]


def plan(context: ForgetContext, request: ForgetRequest) -> ForgetPlan:
    """List what a request selects, with its repetitions. Changes nothing.

    In a large memory the list is limited to what can be read while a person waits; see ``complete``.

    Raises:
        UsageError: A target is unknown, or the request is empty.
    """
    if request.is_empty or (request.query is not None and Terms.of(request.query).is_empty):
        raise UsageError(
            "say what to forget",
            hint="give a memory (mem-...), a hit (h17), --query, --session, --project, --before or --key",
        )
    for value in (*request.targets, request.query, request.session, request.project, request.key):
        if value is not None and ("\0" in value or not is_unicode(value)):
            raise UsageError(f"{value!r} is not text", hint="write it in UTF-8")
    with _stores(context) as stores:
        return _Planner(context, request, stores).plan()


def complete(context: ForgetContext, plan: ForgetPlan) -> ForgetPlan:
    """Read what was left out when a plan was made: texts, repetitions, archives. Changes nothing."""
    if not plan.is_brief:
        return plan
    with _stores(context) as stores:
        return _Planner(context, plan.request, stores).complete(plan)


@contextmanager
def _stores(context: ForgetContext) -> Iterator[Stores]:
    """Return the memories of this machine: its own, and the copy of home's if there is one."""
    with context.mirror() as (mirror, _):
        yield [("local", context.store), *([("mirror", mirror)] if mirror is not None else [])]  # type: ignore[list-item]


class _Planner:
    """Plan under construction: ``lines`` and ``memories`` by id, each with its reason."""

    def __init__(self, context: ForgetContext, request: ForgetRequest, stores: Stores) -> None:
        self.context, self.request, self.stores = context, request, stores
        self.every = [store for _, store in stores]
        self.sessions = sessions_meant(self.every, request.session) if request.session is not None else ()
        self.folders = folders_meant(self.every, request.project) if request.project is not None else ()
        self.is_scope = not request.targets and request.query is None and request.key is None
        self.lines: dict[str, Because] = {}
        self.memories: dict[str, Because] = {}
        self.notes: dict[tuple[int, int], ArchivedMatch] = {}
        self.unread = 0
        self.searched: SearchedArchives | None = None
        self.state = state_of_memory(context.store)

    def _refuse_unknown(self) -> None:
        for target in self.request.targets:
            if all(find_target(store, target, which) is None for which, store in self.stores):
                hint = "name a memory (mem-...), a hit (h17) or a line by its uuid; a session with --session ID"
                raise NotFoundError(f"there is no memory, hit or line {target!r}", hint=hint)

    def plan(self) -> ForgetPlan:
        """Run all steps, in a large memory with limits."""
        self._refuse_unknown()
        is_large = not self.is_scope and any(map(forgotten_rows.is_large, self.every))
        self._select(MAX_READ if is_large else None)
        is_brief = is_large and bool(self.lines or self.memories or self.unread)
        self._add_repetitions(PreviewLimit(MAX_LOOKED_UP, MAX_READ) if is_brief else None)
        if not self.unread:
            (self._search_some_archives if is_brief else self._search_archives)()
        plan = replace(self._listed(), is_brief=is_brief, unread=self.unread, source_files=self._source_files())
        if plan.is_empty and self.request.query is not None:
            return replace(plan, suggestions=tuple(self.context.suggest(self.request.query)))
        # One word or phrase alone may not occur anywhere any more.
        terms = self._only_terms()
        if terms is not None and self.request.query is not None and len(terms.words) + len(terms.phrases) == 1:
            plan = replace(plan, needles=(self.request.query.strip().strip('"').strip(),))
        return plan

    def complete(self, plan: ForgetPlan) -> ForgetPlan:
        """Run all steps without limits, starting with what another plan lists."""
        reasons = {item.uuid: item.because for item in plan.items}
        for _, value, _ in plan.kinds:
            self.lines.update((uuid, reasons.get(uuid, "asked")) for uuid in value.get("lines", ()))
            self.memories.update((uid, reasons.get(uid, "asked")) for uid in value.get("memories", ()))
        if plan.unread:
            self._select(None)
        self._add_repetitions(None)
        self._search_archives()
        return replace(self._listed(), needles=plan.needles, source_files=plan.source_files)

    # -- what the memories have --------------------------------------------------------------------------------------

    def _select(self, limit: int | None) -> None:
        """Select what the request names; of a query's candidates read at most ``limit`` in each memory."""
        asked = self._scope_name()
        rows = [row for name in self.sessions for row in forgotten_rows.kept_rows_of_session(self.context.store, name)]
        began = began_at(rows, self.context.ldm_home)
        for which, store in self.stores:
            own = forgotten_rows.uuids_repeated(store, self.sessions, began) if began is not None else set()
            scope = Scope(self.sessions, self.folders, own, limit, self.context.progress)
            found, unread = select(store, self.request, which, scope)
            if began is not None:
                found.lines -= forgotten_rows.uuids_lent(store, self.sessions, began)
            self._add(found, asked)
            self.unread += unread

    def _add_repetitions(self, limit: PreviewLimit | None) -> None:
        """Add what repeats the selected texts, as far as a ``limit`` allows; and later summaries."""
        if not self.is_scope:
            for found, because in find_duplicates(
                self.every, dict(self.lines), dict(self.memories), self._only_terms(), limit
            ):
                self._add(found, because)
        for store in self.every:  # also for a scope: they were written later, elsewhere
            self._add(Selection(forgotten_rows.summaries_after(store, self.lines)), "summary")
            if not self.request.keep_memories:
                self._add(Selection(memories=learned_only_from(store, self.lines)), "learned")

    def _scope_name(self) -> Literal["asked", "session", "project", "before"]:
        if not self.is_scope or (self.request.session is not None and self.request.project is not None):
            return "asked"
        return "session" if self.request.session else "project" if self.request.project else "before"

    def _add(self, found: Selection, because: Because) -> None:
        for uuid in found.lines:
            self.lines.setdefault(uuid, because)
        for uid in found.memories:
            self.memories.setdefault(uid, because)

    # -- what only archives have -------------------------------------------------------------------------------------

    def _search_some_archives(self) -> None:
        """Search the archives of affected sessions, if they are small, for notes; not for copies elsewhere."""
        rows = forgotten_rows.kept_rows(self.context.store, self._touched()) if self._is_in_archives() else []
        if sum(row.length for row in rows) <= MAX_ARCHIVE_BYTES:
            self._search_rows(rows, None)

    def _search_archives(self) -> None:
        """Search all archives for notes and copies of what was selected by id or by words."""
        if not self._is_in_archives():
            return
        rows = forgotten_rows.kept_rows(self.context.store, None)
        texts = None
        if rows and (self.lines or self.memories):
            texts = text_matcher(self.every, self.lines, self.memories, self.context.progress)
        ids, sessions = frozenset(self.lines).union(self.memories), self._touched()
        matches = self._search_rows(rows, texts)
        while texts is not None and (
            new := self._touched() - sessions
        ):  # there, a line goes also for a stretch or a word in common
            sessions |= new
            matches += self._search_rows([row for row in rows if row.session_id in new], texts)
        # What is found beyond these ids may be repeated elsewhere: archives are then searched for that, too.
        self.searched = SearchedArchives(self.state, ids, frozenset(self._touched()), frozenset(rows), tuple(matches))

    def _is_in_archives(self) -> bool:
        """Return whether only archives may have something of what is requested: notes, or copies."""
        return not self.is_scope and bool(self.lines or self.memories or self._only_terms() is not None)

    def _search_rows(self, rows: Sequence[KeptRow], texts: TextMatcher | None) -> list[ArchivedMatch]:
        """Add what some archives have, and return it."""
        terms = self._only_terms()
        repeating = rows_repeating(self.context.store, rows, texts, terms)
        if terms is not None and not self.lines and texts is None:  # only the words can make a line go
            rows = repeating
        search = ArchiveSearch(frozenset(self.lines), texts, self._touched(), terms, self._stays, (), set(repeating))
        told = counted(rows, "looking through the archives", len(rows), self.context.progress)
        matches = list(search.run(told, self.context.ldm_home))
        for found in matches:
            self._add(Selection(found.names), found.because)
            if found.because != "copy" and not found.turns:
                self.notes.setdefault((found.row.id, found.number), found)
        return matches

    def _only_terms(self) -> Terms | None:
        """Return the words of the query if nothing else is requested, or None."""
        is_alone = self.request.query is not None and self.request == ForgetRequest(query=self.request.query)
        return Terms.of(str(self.request.query)) if is_alone else None

    def _source_files(self) -> tuple[Path, ...]:
        """Return the files of sources with the words of a query: the memory follows them, so they are only named."""
        terms, files = self._only_terms(), each_file(self.context.store)
        return tuple(Path(path) for path, text in files if terms.are_in(folded(text))) if terms is not None else ()

    def _stays(self, uuid: str) -> bool:
        return uuid not in self.lines and any(traces.has_line(store, uuid) for store in self.every)

    # -- the list ----------------------------------------------------------------------------------------------------

    def _listed(self) -> ForgetPlan:
        items = [*self._line_items(), *self._memory_items()]
        places: dict[int, set[int]] = {}
        for found in self.notes.values():
            session, device = found.row.session_id, found.row.device
            items.append(ForgetItem("note", found.uuid or "", found.because, "note", "", session, None, device))
            if found.uuid is None:
                places.setdefault(found.row.id, set()).add(found.number)
        items.sort(key=lambda item: (item.timestamp is None, item.timestamp or 0, item.kind, item.uuid))
        listed = tuple((row, tuple(sorted(numbers))) for row, numbers in sorted(places.items()))
        sessions = tuple(sorted(self._touched()))
        kinds = tuple(self._kinds(sessions))
        if self.is_scope and not items and not self.sessions:
            kinds = ()  # it was never here
        times = [item.timestamp for item in items if item.timestamp is not None]
        held = map(os.fsdecode, forgotten_rows.files_of_sessions(self.context.store, sessions, self.context.device))
        archives = (row.archive for row in forgotten_rows.kept_rows(self.context.store, sessions))
        files = [*map(Path, held), *archives_elsewhere(archives, self.context.ldm_home)]
        # Exactly what would be deleted, without the time "now":
        text = json.dumps([kinds, listed, self.unread], sort_keys=True)
        return ForgetPlan(
            request=self.request,
            items=tuple(items),
            kinds=kinds,
            places=listed,
            sessions=sessions,
            devices=tuple(sorted({item.device for item in items if item.device})),
            first_at=min(times, default=None),
            last_at=max(times, default=None),
            still_held=tuple(dict.fromkeys(path for path in files if path.is_file())),
            token=hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12],
            searched=self.searched,
        )

    def _touched(self) -> set[str]:
        """Return the ids of the sessions from which something goes."""
        named = {found.row.session_id for found in self.notes.values()} | set(self.sessions)
        return named.union(*(forgotten_rows.sessions_of(store, self.lines) for store in self.every))

    def _line_items(self) -> Iterator[ForgetItem]:
        left = set(self.lines)
        for which, store in self.stores:
            for line in list(forgotten_rows.lines_named(store, left)):
                left.discard(line[0])
                *facts, harness, parts = line[1:]
                item = ForgetItem("line", line[0], self.lines[line[0]], *facts)
                yield replace(item, memory=which, harness=harness, parts=parts)

    def _memory_items(self) -> Iterator[ForgetItem]:
        left = dict(self.memories)
        for which, store in self.stores:
            for uid, because in list(left.items()):
                one = memory_of(store, uid)
                if one is not None:
                    del left[uid]
                    text, place = one.text[:TEXT_CHARACTERS], (one.session_id, one.project, one.device)
                    yield ForgetItem("memory", uid, because, "memory", text, *place, one.created_at, which)

    def _kinds(self, sessions: Sequence[str]) -> Iterator[tuple[TombstoneKind, dict[str, Any], int | None]]:
        """Return the tombstones: one each for the scope, for lines and for memories."""
        lines, scope = sorted(self.lines), self._scope_name()
        if self.is_scope and scope != "asked":
            where: dict[str, Any] = {"session": self.sessions[0]} if self.sessions else {"sessions": list(sessions)}
            if self.folders:
                where["folders"] = sorted(self.folders)
            yield scope, {"lines": lines, **where}, self.request.before
            lines = []
        # Where nothing has an id, naming the sessions blocks their notes from now on.
        # A scope names the sessions that it affects besides its own: forks have copies.
        besides = self.is_scope and bool(self.sessions) and not set(sessions) <= {self.sessions[0]}
        if lines or besides or (self.notes and not (self.lines or self.memories)):
            yield "lines", {"lines": lines, "sessions": list(sessions)}, None
        if self.memories:
            yield "memory", {"memories": sorted(self.memories), "sessions": list(sessions)}, None
