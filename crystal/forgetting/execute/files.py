"""Clean up after the rows are deleted: archives, files, the index, the log of the database.

Each piece of work is recorded in the store and removed from there when it is done. A failed one stays recorded, with
the tombstones open, and the others continue.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from crystal.capture.lock import try_lock
from crystal.errors import CrystalError, UnavailableError
from crystal.forgetting.execute import archives, derived_files, rows
from crystal.forgetting.request import ForgetContext
from crystal.search.index import discard
from crystal.store import Store
from crystal.store.forget import forgotten_rows, forgotten_work
from crystal.store.forget.forgetting import open_tombstones
from crystal.store.forget.forgotten_work import ForgetWork
from crystal.store.search import space
from crystal.summarize.due import summarize_anew
from crystal.sync.mirror.fetching import MirrorFiles, remove_file

LOG_MS = 1_500
"""Time to wait for other processes that read."""


class Finisher:
    """One run over the remaining work."""

    def __init__(self, context: ForgetContext, mirror: Store | None, now: int) -> None:
        self._context, self._now = context, now
        self._store = context.store
        self._stores = [self._store, *([] if mirror is None else [mirror])]
        self._pending: list[str] = []

    def run(self, problem: str | None) -> Sequence[str]:
        """Do what can be done. Return why something is left, in words, beginning with a problem that is known."""
        self._pending += [] if problem is None else [problem]
        context = self._context
        self._archives()
        for work in forgotten_work.works(self._store, rows.FILE):
            self._try(derived_files.delete_file, context.ldm_home / work.target, done=[work])
        self._try(self._leftovers)
        self._try(self._half_made_mirror)
        if context.outbox is not None:
            self._try(context.outbox.clean)
        for store in self._stores:
            self._try(_merge_words, store)
        context.progress("removing it from the search index", 0, 0)
        for store in self._stores:
            self._try(derived_files.purge_index, store, self._now)
        for work in forgotten_work.works(self._store, rows.SESSION):
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
        for work in forgotten_work.works(self._store, rows.ARCHIVE):
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
            archives.rewrite(self._store, transcript, gone, self._context.ldm_home, self._now)
            forgotten_work.end_works(self._store, works)

    def _leftovers(self) -> None:
        home, data_dir = self._context.ldm_home, self._context.data_dir
        newest = max((tombstone.made_at for _, tombstone in open_tombstones(self._store)), default=0)
        derived_files.delete_leftovers(home, data_dir, newest, self._now)
        derived_files.delete_temporaries((home, data_dir), self._now)

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
            derived_files.clean_daily(self._context.agent_folder(agent), work.target)
            forgotten_work.log_again(self._store, work.target)
            title = archives.title_left(self._store, work.target, self._context.ldm_home)
            if title is not None:
                forgotten_work.give_title(self._store, work.target, title)
        if has_summary:
            summarize_anew(self._store, [work.target], agent_folder=self._context.agent_folder, now=self._now)

    # -- the end -----------------------------------------------------------------------------------------------------

    def _end(self) -> None:
        """Close the tombstones if no other file holds anything: rewrite the databases, and empty their logs."""
        self._context.progress("rewriting the database", 0, 0)
        for store in self._stores:
            self._try(rewrite, store)
        kinds = forgotten_work.work_kinds(self._store)
        if self._pending or set(kinds) - {rows.SWEPT}:
            return
        swept = forgotten_work.works(self._store, rows.SWEPT)
        with self._store.transaction():
            forgotten_work.end_tombstones(self._store, [work.target for work in swept], self._now)
            forgotten_work.end_works(self._store, swept)


def _merge_words(store: Store) -> None:
    works = forgotten_work.works(store, rows.WORDS)
    if works:
        space.merge_words(store)
        forgotten_work.end_works(store, works)


def rewrite(store: Store) -> None:
    """Rewrite a database: SQLite deletes securely, but leaves copies between the cells when it moves them.

    Raises:
        StoreBusyError, Unavailable: Another process reads it, or the disk has no space for the copy.
    """
    if not space.empty_log(store, LOG_MS):
        raise UnavailableError(f"{store.path.name}: another process is reading it")
    if not space.rewrite(store):
        raise UnavailableError(f"{store.path.name}: the disk has no space for a copy of it")
    if not space.empty_log(store, LOG_MS):
        raise UnavailableError(f"{store.path.name}: another process is reading it")
