"""Clean up after the rows are deleted: archives, files, the index, the log of the database.

Each piece of work is recorded in the store and removed from there when it is done. A failed one stays recorded, with
the tombstones open, and the others continue.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from crystal.errors import CrystalError
from crystal.forgetting.execute import archives, derived_files, rows
from crystal.forgetting.request import ForgetContext
from crystal.search.index import discard
from crystal.store import Store
from crystal.store.forget import forgotten_rows, forgotten_work
from crystal.store.forget.forgetting import open_tombstones
from crystal.store.forget.forgotten_work import Work
from crystal.store.forget.scrub import scrub
from crystal.summarize import summarize_anew
from crystal.sync.mirror.place import remove_file, try_alone


class Finisher:
    """One run over the remaining work."""

    def __init__(self, grounds: ForgetContext, mirror: Store | None, now: int, before: Sequence[str] = ()) -> None:
        self._grounds, self._mirror, self._now = grounds, mirror, now
        self._store = grounds.store
        self._before, self._pending = before, list[str]()

    def run(self) -> Sequence[str]:
        """Do what can be done. Return why something is left, in words."""
        self._try(self._archives)
        for kind, step in (
            (archives.FILE, self._delete),
            (rows.DOCUMENT, self._delete),
            (rows.DAILY, self._daily),
            (rows.TITLE, self._title),
            (rows.OUTBOX, self._outbox),
            (rows.WORDS, self._words),
        ):
            for work in forgotten_work.works(self._store, kind):
                self._try(lambda work=work, step=step: self._do(work, step))  # type: ignore[misc]
        self._try(lambda: derived_files.delete_copies(self._grounds.data_dir, self._now))
        self._try(lambda: derived_files.delete_damaged_lines(self._grounds.ldm_home / "agents"))
        newest = max((tombstone.made_at for _, tombstone in open_tombstones(self._store)), default=0)
        self._try(lambda: derived_files.delete_damaged(self._grounds.data_dir, newest))
        folders = (self._grounds.ldm_home, self._grounds.data_dir)
        self._try(lambda: derived_files.delete_temporaries(folders, self._now))
        self._try(self._half_made_mirror)
        self._grounds.progress("taking it out of the search index", 0, 0)
        for store in (self._store, *([] if self._mirror is None else [self._mirror])):
            self._try(lambda store=store: derived_files.purge_index(store, self._now))  # type: ignore[misc]
        self._try(self._summaries)
        self._grounds.progress("clearing what was deleted from the files", 0, 0)
        if not self._pending and not self._before:
            self._end()
        return self._pending

    def _try(self, step: Callable[[], None]) -> None:
        try:
            step()
        except CrystalError as error:
            if error.message not in self._pending:
                self._pending.append(error.message)

    def _do(self, work: Work, step: Callable[[Work], None]) -> None:
        step(work)
        forgotten_work.end_works(self._store, [work])

    # -- the steps ---------------------------------------------------------------------------------------------------

    def _archives(self) -> None:
        by_transcript: dict[int, list[Work]] = {}
        void: list[Work] = []
        for work in forgotten_work.works(self._store, rows.ARCHIVE):
            transcript = forgotten_rows.transcript_of_row(self._store, int(work.target))
            by_transcript.setdefault(transcript, []).append(work) if transcript is not None else void.append(work)
        forgotten_work.end_works(self._store, void)
        for transcript, works in by_transcript.items():
            self._try(lambda transcript=transcript, works=works: self._archive(transcript, works))  # type: ignore[misc]

    def _archive(self, transcript: int, works: Sequence[Work]) -> None:
        gone: dict[int, frozenset[int] | None] = {}
        for work in works:
            row, numbers = int(work.target), work.detail
            known = gone.get(row, frozenset())
            gone[row] = None if numbers is None or known is None else known | frozenset(map(int, numbers))
        with self._store.transaction():
            archives.rewrite(self._store, transcript, gone, self._grounds.ldm_home, self._now)
            forgotten_work.end_works(self._store, works)

    def _delete(self, work: Work) -> None:
        derived_files.delete_file(self._path(work.target))

    def _path(self, name: str) -> Path:
        return self._grounds.ldm_home / name

    def _daily(self, work: Work) -> None:
        with self._store.transaction():  # the log is written under the same lock
            derived_files.clean_daily(self._grounds.agent_folder(str(work.detail)), work.target)
            forgotten_work.log_again(self._store, work.target)

    def _title(self, work: Work) -> None:
        with self._store.transaction():
            title = archives.title_left(self._store, work.target, self._grounds.ldm_home)
            if title is not None:
                forgotten_work.give_title(self._store, work.target, title)

    def _half_made_mirror(self) -> None:
        """Delete a mirror that is being built; it is built from scratch."""
        path = self._grounds.data_dir / "mirror.db.new"
        if not path.exists():
            return
        with try_alone(path.with_name("mirror.db.lock")) as alone:
            if not alone:
                self._pending.append("the mirror is being fetched just now")
                return
            remove_file(path)
            discard(path)

    def _outbox(self, work: Work) -> None:
        if self._grounds.outbox is None:
            return
        found = work.detail
        if found is None:  # it could not be opened while the text was known: match by ids
            found = self._grounds.outbox.find(rows.matcher_of(self._store))
        self._grounds.outbox.clean(found)

    def _words(self, _: Work) -> None:
        forgotten_work.merge_words(self._store)

    def _summaries(self) -> None:
        works = forgotten_work.works(self._store, rows.SUMMARY)
        if works:
            names = [work.target for work in works]
            summarize_anew(self._store, names, agent_folder=self._grounds.agent_folder, now=self._now)
            forgotten_work.end_works(self._store, works)

    # -- the end -----------------------------------------------------------------------------------------------------

    def _end(self) -> None:
        """Close the tombstones if no other file holds anything: clear free pages and logs of the databases."""
        for store in (self._store, *([] if self._mirror is None else [self._mirror])):
            if not scrub(store):
                self._pending.append(f"{store.path.name}: another process reads it just now")
        kinds = forgotten_work.work_kinds(self._store)
        if self._pending or set(kinds) - {rows.SWEPT}:
            return
        swept = forgotten_work.works(self._store, rows.SWEPT)
        with self._store.transaction():
            forgotten_work.end_tombstones(self._store, [work.target for work in swept], self._now)
            forgotten_work.end_works(self._store, swept)
