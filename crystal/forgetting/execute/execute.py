"""Carry out a plan, and finish interrupted work.

The tombstones are written first: from then on they block what they name, and the next process knows what to do. Each
later step can be killed anywhere and is repeated. Work on files is recorded in the store and removed from there when it
is done. A failed step stays recorded, with the tombstones open, and the others continue.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

from crystal.capture.lock import try_lock
from crystal.config.paths import delete_file
from crystal.errors import CrystalError, UnavailableError
from crystal.forgetting.execute import delete_rows, file_cleanup
from crystal.forgetting.plan.planner import complete
from crystal.forgetting.request import ForgetContext, ForgetPlan, Forgotten, SearchedArchives
from crystal.forgetting.tombstone_file import reconcile_tombstones
from crystal.search.index import discard
from crystal.store import Store
from crystal.store.forget import forgetting, forgotten_rows, forgotten_work, unused_bytes
from crystal.store.forget.forgotten_work import ForgetWork
from crystal.store.search import space
from crystal.store.sessions.contexts import state_of_memory
from crystal.summarize.due import SummaryRun
from crystal.sync.mirror.fetching import MirrorFiles, remove_file

LOG_MS = 1_500
"""Time to wait for other processes that read."""

ATTEMPTS = 5
"""Another process may write between the moments when the log is emptied and when the file is locked."""


def carry_out(context: ForgetContext, plan: ForgetPlan, now: int) -> Forgotten:
    """Forget what a plan lists: block it first, then delete it. ``finish`` does what cannot be done now.

    Raises:
        StoreBusyError, StoreFullError, UnavailableError: Raised before the tombstones are written; nothing has changed.
    """
    plan = complete(context, plan)
    tombstones = []
    for kind, value, until in plan.kinds:
        if kind in ("session", "project", "before"):
            until = now if until is None else min(until, now)  # noqa: PLW2901 - the moment is now
        tombstones.append(forgetting.make_tombstone(kind, value, until, now, context.device, until, now))
    with context.capture_lock():
        is_same = plan.searched is not None and plan.searched.state == state_of_memory(context.store)
        with context.store.transaction():
            forgetting.add_tombstones(context.store, tombstones, now)
            for row, lines in plan.places:
                forgotten_work.add_work(context.store, delete_rows.ARCHIVE, str(row), list(lines), now)
            context.on_tombstones(context.store, tombstones)
        pending = _finish(context, now, plan.searched if is_same else None)
    counts = Counter(item.kind for item in plan.items)
    return Forgotten(
        counts["line"],
        counts["memory"],
        counts["note"],
        tuple(tombstone.uid for tombstone in tombstones),
        not forgetting.is_work_left(context.store),
        tuple(pending),
        tuple(context.machines(context.store)),
    )


def finish(context: ForgetContext, now: int) -> int:
    """Execute open tombstones. Return how many are still open. Idempotent, cheap if there are none.

    Raises:
        StoreBusyError, StoreFullError, UnavailableError: The rest is done by the next run.
    """
    reconcile_tombstones(context.store, context.ldm_home, now)
    if not forgetting.is_work_left(context.store):
        return 0
    with context.capture_lock():
        _finish(context, now)
    return len(forgetting.open_tombstones(context.store))


def _finish(context: ForgetContext, now: int, searched: SearchedArchives | None = None) -> Sequence[str]:
    """Delete rows, then do the resulting work on files. Return why something is left, in words."""
    try:
        reconcile_tombstones(context.store, context.ldm_home, now)
        with context.mirror() as (mirror, problem):
            delete_rows.delete_here(context, mirror, now, searched)
            return Finisher(context, mirror, now).run(problem)
    except CrystalError as error:
        return [error.message]


class Finisher:
    """One run over the remaining work on files, after the rows are deleted."""

    def __init__(self, context: ForgetContext, mirror: Store | None, now: int) -> None:
        self._context, self._now = context, now
        self._store = context.store
        self._stores = [self._store, *([] if mirror is None else [mirror])]
        self._pending: list[str] = []

    def run(self, problem: str | None) -> Sequence[str]:
        """Do what can be done. Return why something is left, in words, beginning with a problem that is known."""
        self._pending += [] if problem is None else [problem]
        self._archives()
        for work in forgotten_work.works(self._store, delete_rows.FILE):
            self._try(self._file, work, done=[work])
        self._try(self._leftovers)
        self._try(self._half_made_mirror)
        if self._context.outbox is not None:
            self._try(self._context.outbox.clean)
        for store in self._stores:
            told = partial(self._context.progress, "removing it from the search index")
            self._try(file_cleanup.purge_index, store, self._now, told)
        for work in forgotten_work.works(self._store, delete_rows.SESSION):
            self._try(self._session, work, done=[work])
        if not self._pending:
            self._end()
        return self._pending

    def _try(self, step: Callable[..., object], *values: object, done: Sequence[ForgetWork] = ()) -> None:
        """Take a step that finishes some work; note why if it cannot be taken now."""
        try:
            step(*values)
            forgotten_work.end_works(self._store, done)
        except CrystalError as error:
            if error.message not in self._pending:
                self._pending.append(error.message)

    # -- the steps ---------------------------------------------------------------------------------------------------

    def _archives(self) -> None:
        by_transcript: dict[int | None, list[ForgetWork]] = {}
        for work in forgotten_work.works(self._store, delete_rows.ARCHIVE):
            transcript = forgotten_rows.transcript_of_row(self._store, int(work.target))
            by_transcript.setdefault(transcript, []).append(work)
        forgotten_work.end_works(self._store, by_transcript.pop(None, []))
        for transcript, works in by_transcript.items():
            self._try(self._archive, transcript, works)

    def _archive(self, transcript: int, works: Sequence[ForgetWork]) -> None:
        gone: dict[int, set[int]] = {}
        for work in works:
            gone.setdefault(int(work.target), set()).update(work.detail)
        with self._store.transaction():
            file_cleanup.rewrite_archive(self._store, transcript, gone, self._context.ldm_home, self._now)
            forgotten_work.end_works(self._store, works)

    def _file(self, work: ForgetWork) -> None:
        """Delete an archive, first what a link in its place leads to: the proof looks there while the link stays."""
        for target in (*(work.detail or ()), work.target):
            delete_file(self._context.ldm_home / target)

    def _leftovers(self) -> None:
        newest = max((tombstone.made_at for _, tombstone in forgetting.open_tombstones(self._store)), default=0)
        file_cleanup.delete_leftovers(self._context.ldm_home, self._context.data_dir, newest, self._now)

    def _half_made_mirror(self) -> None:
        """Delete a mirror that is being built; it is built from scratch."""
        files = MirrorFiles(self._context.data_dir / "mirror.db")
        if not files.building.exists():
            return
        with try_lock(files.lock) as alone:
            if not alone:
                raise UnavailableError("the mirror is being fetched")
            remove_file(files.building)
            discard(files.building)

    def _session(self, work: ForgetWork) -> None:
        """Make a session's lines in the daily log, its title and its summary again from what is left."""
        agent, has_summary = work.detail
        with self._store.transaction():  # the log is written under the same lock
            file_cleanup.clean_daily(self._context.agent_folder(agent), work.target)
            title = file_cleanup.title_left(self._store, work.target, self._context.ldm_home)
            forgotten_work.log_again(self._store, work.target, title)
        if has_summary:
            SummaryRun(self._store, self._context.agent_folder, None, self._now).write_anew(work.target)

    # -- the end -----------------------------------------------------------------------------------------------------

    def _end(self) -> None:
        """Close the tombstones if no other file holds anything: empty the logs of the databases, and clear the files.

        All logs are emptied first: clearing one database is useless while another is being read.
        """
        clear = partial(clear_database, progress=partial(self._context.progress, "clearing the database"))
        for step in (empty_log, clear):
            for store in self._stores if not self._pending else ():
                self._try(step, store)
        if self._pending or forgotten_work.work_kinds(self._store) - {delete_rows.SWEPT}:
            return
        swept = forgotten_work.works(self._store, delete_rows.SWEPT)
        with self._store.transaction():
            forgotten_work.end_tombstones(self._store, [work.target for work in swept], self._now)
            forgotten_work.end_works(self._store, swept)


def empty_log(store: Store) -> None:
    """Write the log of a database into it.

    Raises:
        UnavailableError: Another process reads it.
    """
    if not space.empty_log(store, LOG_MS):
        raise UnavailableError(f"{store.path.name}: another process is reading it")


def clear_database(store: Store, progress: Callable[[int, int], None] = lambda *_: None) -> None:
    """Remove what was deleted from the file of a database: SQLite leaves copies between the cells of its pages.

    Raises:
        StoreBusyError, UnavailableError: Another process uses it, or the disk has no space for the copy.
    """
    if not unused_bytes.can_clear(store):
        if not space.rewrite(store):
            raise UnavailableError(f"{store.path.name}: the disk has no space for a copy of it")
    elif not any(_cleared(store, progress) for _ in range(ATTEMPTS)):
        raise UnavailableError(f"{store.path.name}: another process is writing to it")
    empty_log(store)


def _cleared(store: Store, progress: Callable[[int, int], None]) -> bool:
    empty_log(store)
    return unused_bytes.clear_unused(store, progress)
