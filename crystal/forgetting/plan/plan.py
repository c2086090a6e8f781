"""Turn a request into the list of what would be deleted. Changes nothing.

First the named targets are selected, then their duplicates, then lines that only archives have. A scope (a session, a
project, everything before a time) selects what lies in it, and nothing because of its text.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from crystal.errors import NotFound, UsageProblem
from crystal.forgetting.match.archive_lines import Found, LineMatcher, Searcher, began_at
from crystal.forgetting.match.plan_needles import needles_for
from crystal.forgetting.match.terms import Terms
from crystal.forgetting.plan.duplicates import find_duplicates
from crystal.forgetting.plan.select import Selection, find_target, folders_meant, select, sessions_meant
from crystal.forgetting.request import Because, ForgetContext, ForgetPlan, ForgetRequest, Item, Place, counted
from crystal.model.capture import Memory, is_unicode
from crystal.store import Store
from crystal.store.forget import forgotten_rows, traces
from crystal.store.memories.memories import memory_of

TOMBSTONE_NAMES = 2_000
"""Maximum ids in one tombstone; further ids go into other tombstones."""

TEXT_CHARACTERS = 300

Stores = Sequence[tuple[Memory, Store]]


def plan(grounds: ForgetContext, wish: ForgetRequest) -> ForgetPlan:
    """List what a request selects, with all duplicates. Changes nothing.

    Raises:
        UsageProblem: A target is unknown, or the request is empty.
    """
    if wish.is_empty or (wish.query is not None and Terms.of(wish.query).is_empty):
        raise UsageProblem(
            "nothing is named that should be forgotten",
            hint="name a memory (mem-...), a hit's number, --query, --session, --project, --before or --key",
        )
    for value in (*wish.targets, wish.query, wish.session, wish.project, wish.key):
        if value is not None and not _is_text(value):
            raise UsageProblem(f"{value!r} is no text", hint="write it in UTF-8")
    with _stores(grounds) as stores:
        return _Planner(grounds, wish, stores).plan()


def complete(grounds: ForgetContext, plan: ForgetPlan) -> ForgetPlan:
    """Search all archives for what a plan lists, if that was not done when it was made. Changes nothing."""
    if not plan.is_brief:
        return plan
    with _stores(grounds) as stores:
        return _Planner(grounds, plan.wish, stores).complete(plan)


@contextmanager
def _stores(grounds: ForgetContext) -> Iterator[Stores]:
    """Return the memories of this machine: its own, and the copy of home's if there is one."""
    with grounds.mirror() as (mirror, _):
        yield [("local", grounds.store), *([("mirror", mirror)] if mirror is not None else [])]  # type: ignore[list-item]


def _is_text(value: str) -> bool:
    return "\0" not in value and is_unicode(value)


class _Planner:
    """Plan under construction: ``lines`` and ``memories`` by id, each with its reason."""

    def __init__(self, grounds: ForgetContext, wish: ForgetRequest, stores: Stores) -> None:
        self.grounds, self.wish, self.stores = grounds, wish, stores
        every = [store for _, store in stores]
        self.sessions = sessions_meant(every, wish.session) if wish.session is not None else ()
        self.folders = folders_meant(every, wish.project) if wish.project is not None else ()
        self.is_scope = not wish.targets and wish.query is None and wish.key is None
        self.lines: dict[str, Because] = {}
        self.memories: dict[str, Because] = {}
        self.notes: list[Found] = []

    def plan(self) -> ForgetPlan:
        """Run all steps."""
        self._check_targets()
        asked = self._scope_name()
        rows = [row for name in self.sessions for row in forgotten_rows.kept_rows_of_session(self.grounds.store, name)]
        began = began_at(rows, self.grounds.ldm_home)
        for which, store in self.stores:
            own = forgotten_rows.uuids_repeated(store, self.sessions, began) if began is not None else set()
            found = select(store, self.wish, which, self.sessions, self.folders, own)
            if began is not None:
                found.lines -= forgotten_rows.uuids_lent(store, self.sessions, began)
            self._add(found, asked)
        if not self.is_scope:
            self._add_what_repeats()
        for _, store in self.stores:  # also for a scope: they were written later, elsewhere
            self._add(Selection(forgotten_rows.summaries_after(store, self.lines), set()), "summary")
        plan = self._listed()
        is_brief = not plan.is_empty and any(forgotten_rows.is_large(store) for _, store in self.stores)
        self._search_archives(plan, is_brief=is_brief)
        plan = replace(self._listed(), is_brief=is_brief)
        if plan.is_empty and self.wish.query is not None:
            return replace(plan, suggestions=tuple(self.grounds.suggest(self.wish.query)))
        return replace(plan, needles=tuple(self._needles()))

    def complete(self, plan: ForgetPlan) -> ForgetPlan:
        """Search the archives for what another plan lists, and add what only they have."""
        reasons = {item.uuid: item.because for item in plan.items}
        for _, value, _ in plan.kinds:
            self.lines.update((uuid, reasons.get(uuid, "asked")) for uuid in value.get("lines", ()))
            self.memories.update((uid, reasons.get(uid, "asked")) for uid in value.get("memories", ()))
        self._search_archives(plan, is_brief=False)
        return replace(self._listed(), needles=plan.needles)

    def _scope_name(self) -> Because:
        if not self.is_scope or (self.wish.session is not None and self.wish.project is not None):
            return "asked"
        return "session" if self.wish.session else "project" if self.wish.project else "before"

    def _check_targets(self) -> None:
        for target in self.wish.targets:
            if all(find_target(store, target, which) is None for which, store in self.stores):
                hint = "name a memory (mem-...), a hit (h17) or a line by its uuid; a session with --session ID"
                raise NotFound(f"there is no memory, hit or line {target!r}", hint=hint)

    def _add(self, found: Selection, because: Because) -> None:
        for uuid in found.lines:
            self.lines.setdefault(uuid, because)
        for uid in found.memories:
            self.memories.setdefault(uid, because)

    # -- what says the same ------------------------------------------------------------------------------------------

    def _add_what_repeats(self) -> None:
        every = [store for _, store in self.stores]
        for found, because in find_duplicates(every, dict(self.lines), dict(self.memories)):
            self._add(found, because)

    # -- what only archives have -------------------------------------------------------------------------------------

    def _search_archives(self, plan: ForgetPlan, *, is_brief: bool) -> None:
        """Search the archives for notes and copies of what was selected by id or by words.

        ``is_brief``: search only the archives of affected sessions, not for copies elsewhere.
        """
        terms = Terms.of(self.wish.query) if self._is_query_alone() and self.wish.query is not None else None
        if self.is_scope or (plan.is_empty and terms is None):
            return
        rows = forgotten_rows.kept_rows(self.grounds.store)
        if is_brief:
            rows = [row for row in rows if row.session_id in plan.sessions]
        needles = None if plan.is_empty or is_brief else needles_for(self.grounds, plan)
        judge = LineMatcher(frozenset(self.lines), (), needles, terms, self._stays)
        told = counted(rows, "looking through the archives", len(rows), self.grounds.progress)
        for found in Searcher(judge).search(told, self.grounds.ldm_home):
            if found.because == "copy":
                if found.uuid is not None:
                    self.lines.setdefault(found.uuid, "copy")
                continue
            for name in dict.fromkeys((found.uuid, *found.turns)):
                if name is not None:
                    self.lines.setdefault(name, found.because)
            if not found.turns:
                self.notes.append(found)

    def _is_query_alone(self) -> bool:
        return self.wish == ForgetRequest(query=self.wish.query)

    def _stays(self, uuid: str) -> bool:
        return uuid not in self.lines and any(traces.has_line(store, uuid) for _, store in self.stores)

    # -- the list ----------------------------------------------------------------------------------------------------

    def _listed(self) -> ForgetPlan:
        items = [*self._line_items(), *self._memory_items(), *map(_note_item, self.notes)]
        items.sort(key=lambda item: (item.timestamp is None, item.timestamp or 0, item.kind, item.uuid))
        places = tuple(_places(found for found in self.notes if found.uuid is None))
        touched = {found.row.session_id for found in self.notes} | set(self.sessions)
        for _, store in self.stores:
            touched |= forgotten_rows.sessions_of(store, self.lines)
        sessions = tuple(sorted(touched))
        kinds = tuple(self._kinds(sessions))
        if self.is_scope and not items and not self.sessions:
            kinds = ()  # it was never here
        times = [item.timestamp for item in items if item.timestamp is not None]
        return ForgetPlan(
            wish=self.wish,
            items=tuple(items),
            kinds=kinds,
            places=places,
            sessions=sessions,
            devices=tuple(sorted({item.device for item in items if item.device})),
            first_at=min(times, default=None),
            last_at=max(times, default=None),
            still_held=tuple(self._still_held(sessions)),
            token=_token(kinds, places),
        )

    def _line_items(self) -> Iterator[Item]:
        seen: set[str] = set()
        for which, store in self.stores:
            for line in forgotten_rows.lines_named(store, [uuid for uuid in self.lines if uuid not in seen], which):
                seen.add(line.uuid)
                yield Item(
                    "line",
                    line.uuid,
                    self.lines[line.uuid],
                    line.role,
                    line.text,
                    line.session_id,
                    line.project,
                    line.device,
                    line.timestamp,
                    which,
                )

    def _memory_items(self) -> Iterator[Item]:
        seen: set[str] = set()
        for which, store in self.stores:
            for uid, because in self.memories.items():
                memory = None if uid in seen else memory_of(store, uid)
                if memory is not None:
                    seen.add(uid)
                    yield Item(
                        "memory",
                        uid,
                        because,
                        "memory",
                        memory.text[:TEXT_CHARACTERS],
                        memory.session_id,
                        memory.project,
                        memory.device,
                        memory.created_at,
                        which,
                    )

    def _kinds(self, sessions: Sequence[str]) -> Iterator[tuple[str, dict[str, Any], int | None]]:
        """Return the tombstones: one for the scope, and as many as needed for lines and memories."""
        lines = sorted(self.lines)
        if self.notes and not lines and not self.memories:  # nothing has an id: block the session's notes from now on
            yield "lines", {"lines": [], "sessions": list(sessions)}, None
        if self.is_scope and self._scope_name() != "asked":
            scope: dict[str, Any] = {"lines": lines[:TOMBSTONE_NAMES]}
            if self.sessions:
                scope["session"] = self.sessions[0]
            else:
                scope["sessions"] = list(sessions)
            if self.folders:
                scope["folders"] = sorted(self.folders)
            yield self._scope_name(), scope, self.wish.before
            lines = lines[TOMBSTONE_NAMES:]
        for at in range(0, max(len(lines), bool(self._touched_besides(sessions))), TOMBSTONE_NAMES):
            yield "lines", {"lines": lines[at : at + TOMBSTONE_NAMES], "sessions": list(sessions)}, None
        memories = sorted(self.memories)
        for at in range(0, len(memories), TOMBSTONE_NAMES):
            yield "memory", {"memories": memories[at : at + TOMBSTONE_NAMES], "sessions": list(sessions)}, None

    def _touched_besides(self, sessions: Sequence[str]) -> bool:
        """Return True if a scope affects sessions that it does not name: forks have copies."""
        return self.is_scope and bool(self.sessions) and not set(sessions) <= {self.sessions[0]}

    def _still_held(self, sessions: Sequence[str]) -> Iterator[Path]:
        """Return Claude Code's own files of the sessions: crystal does not change them."""
        paths = forgotten_rows.files_of_sessions(self.grounds.store, sessions, self.grounds.device)
        for path in dict.fromkeys(Path(os.fsdecode(path)) for path in paths):
            if path.is_file():
                yield path

    def _needles(self) -> Iterator[str]:
        """Return the words of the query if there is one: they may not occur anywhere any more."""
        if self.wish.query is None or not self._is_query_alone():
            return
        terms = Terms.of(self.wish.query)
        if len(terms.words) + len(terms.phrases) == 1:
            yield self.wish.query.strip().strip('"').strip()


def _note_item(found: Found) -> Item:
    row = found.row
    return Item("note", found.uuid or "", found.because, "note", "", row.session_id, None, row.device)


def _places(notes: Iterator[Found]) -> list[Place]:
    rows: dict[int, set[int]] = {}
    for found in notes:
        rows.setdefault(found.row.id, set()).add(found.number)
    return [Place(row, tuple(sorted(numbers))) for row, numbers in sorted(rows.items())]


def _token(kinds: Sequence[tuple[str, Mapping[str, Any], int | None]], places: Collection[Place]) -> str:
    """Return a short digest of exactly what would be deleted, without the time "now" of a scope."""
    text = json.dumps([kinds, [[place.row, place.lines] for place in places]], sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]
