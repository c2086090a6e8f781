"""The Python interface: ``Crystal`` does what the commands do, with Python values instead of text.

Example:
    with Crystal() as memory:
        for hit in memory.search("database migration", limit=3).hits:
            print(hit.score, hit.text)
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crystal.app.context import Machine, open_machine, open_reader
from crystal.app.mirror import OpenMirror, open_mirror

if TYPE_CHECKING:
    from crystal.app.about import ThingHistory
    from crystal.app.blame import Blame
    from crystal.app.fixes import KnownFix
    from crystal.app.source_list import SourceState
    from crystal.app.sources import RemovedSource
    from crystal.app.work import ChangedFile, KnownCommand
    from crystal.capture.engine import Tally
    from crystal.forgetting.prove.prove import ForgetProof
    from crystal.forgetting.request import ForgetPlan, Forgotten
    from crystal.integrity.proof import Proof
    from crystal.integrity.restore import Restored
    from crystal.model.recall import FormerMemory, Remembered
    from crystal.search.request import SearchResult
    from crystal.sessions.reading import Conversation, SessionSummary
    from crystal.sessions.timeline import Day
    from crystal.sources.sync import SyncReport
    from crystal.store.sessions.conversations import Message


class Crystal:
    """This machine's memory. Use it as a context manager, or call ``close``; from one thread.

    Args:
        data_dir: The folder of crystal.db; None for the usual place (``CRYSTAL_DATA_DIR``, then ``~/.ldm/memory``).
        create: Make the memory if there is none, instead of raising.

    Raises:
        NotConfiguredError: There is no memory yet, and ``create`` is False.
        ForeignStoreError: The database belongs to another program or to a newer crystal.
    """

    def __init__(self, data_dir: str | Path | None = None, *, create: bool = False) -> None:
        overrides = {"data_dir": data_dir}
        self._exit = contextlib.ExitStack()
        if not create:
            with open_reader(overrides):
                pass
        self._machine: Machine = self._exit.enter_context(open_machine(overrides))
        self._mirror: OpenMirror | None = None

    @classmethod
    def reader(cls, data_dir: str | Path | None = None) -> Crystal:
        """Open this machine's memory for reading only: nothing is created, and methods that change it fail."""
        self = cls.__new__(cls)
        self._exit = contextlib.ExitStack()
        self._machine = self._exit.enter_context(open_reader({"data_dir": data_dir}))
        self._mirror = self._machine.mirror
        return self

    def close(self) -> None:
        """Close the memory. Closing twice does nothing."""
        self._exit.close()

    def __enter__(self) -> Crystal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def search(
        self, query: str, *other_wordings: str, limit: int = 10, since: int | str | None = None,
        before: int | str | None = None, project: str | None = None, session: str | None = None,
        role: str | None = None, agent: str | None = None, device: str | None = None, branch: str | None = None,
        source: str | None = None, as_of: int | str | None = None, recency: str | None = None,
        fusion: str | None = None, deep: bool = False,
    ) -> SearchResult:  # fmt: skip
        """Find what was said, best first.

        Args:
            query: Any text. Words in quotation marks must stand together.
            *other_wordings: Up to four other ways to put it: answers that several of them find come first.
            limit: How many hits at most, 1 to 1,000.
            since: Not older than this: ms since the epoch, or words like ``7d`` and ``2026-11-20``.
            before: Older than this, in the same forms.
            project: A project's name, or a folder and all below it.
            session: A session's id, or the beginning of it.
            role: ``user``, ``assistant``, ``thinking``, ``tool``, ``subagent``, ``summary`` ...; several with commas.
            agent: Only this agent: the name of an agent program, or crystal's id.
            device: Only this machine.
            branch: Only this git branch.
            source: ``conversation``, ``file`` or ``memory``; or a source of files, by its name.
            as_of: Search the memory as it was then (of a day, at its end), in the forms of ``since``. Time words in
                the question, ages and recency are relative to then.
            recency: How strongly newer hits win among hits nearly as good: ``off``, ``light``, ``strong``; None
                for the setting ``search.recency``.
            fusion: ``weighted``, ``rrf`` or ``similarity``; None for the setting ``search.fusion``.
            deep: Let the model of ``deep.provider`` find other wordings and put the best hits in order.

        Raises:
            UsageError: A value that cannot be used.
        """
        from crystal.app.search import checked_role, prepare_search
        from crystal.app.validity import search_with_validity
        from crystal.model.recall import Filters

        start, end = self._moment(since, "since"), self._moment(before, "before")
        filters = Filters(project, session, checked_role(role), agent, device, branch, source, start, end)
        sources, request = prepare_search(
            self._whole(), query, limit, filters,
            recency=recency, fusion=fusion, as_of=as_of, deep=deep, wordings=other_wordings,
        )  # fmt: skip
        return search_with_validity(self._whole(), sources, request)

    def show(self, target: str | int, *, context: int = 2) -> Conversation:
        """Return a whole session (its id or a prefix of it), or a hit (its number) with ``context`` turns around it.

        Raises:
            UsageError: There is no such thing, or more than one.
        """
        from crystal.sessions.reading import find_target, read

        stores = self._whole().stores
        return read(stores, find_target(stores, str(target)), context=context)

    def sessions(
        self, *, limit: int = 20, project: str | None = None, since: int | str | None = None,
        before: int | str | None = None, agent: str | None = None,
    ) -> Sequence[SessionSummary]:  # fmt: skip
        """Return the sessions, the latest first."""
        from crystal.sessions.reading import sessions

        start, end, stores = self._moment(since, "since"), self._moment(before, "before"), self._whole().stores
        return sessions(stores, project=project, agent=agent, since=start, before=end, limit=limit)[0]

    def recent(
        self, *, limit: int = 20, project: str | None = None, before: int | str | None = None,
        without: str | None = None,
    ) -> Sequence[Message]:  # fmt: skip
        """Return the last messages of users and assistants, the latest first; ``without`` leaves out a session."""
        from crystal.sessions.timeline import messages

        end, stores = self._moment(before, "before"), self._whole().stores
        return messages(stores, project=project, before=end, without=without, limit=limit)[0]

    def timeline(
        self, *, since: int | str = "7d", before: int | str | None = None, project: str | None = None, limit: int = 100
    ) -> Sequence[Day]:
        """Return the sessions (``limit`` at most) and memories of each day, the latest first."""
        from crystal.app.timeline import days

        start, end = self._moment(since, "since") or 0, self._moment(before, "before")
        return days(self._whole(), since=start, before=end, project=project, limit=limit)[0]

    def changed(
        self, *, session: str | None = None, since: int | str | None = None, before: int | str | None = None,
        project: str | None = None,
    ) -> Sequence[ChangedFile]:  # fmt: skip
        """Return the files that agents edited in a session or a time, the latest first."""
        from crystal.app.work import changed

        start, end = self._moment(since, "since"), self._moment(before, "before")
        return changed(self._whole(), session=session, since=start, before=end, project=project)

    def how(self, question: str, *, project: str | None = None) -> Sequence[KnownCommand]:
        """Return the commands that did something here and succeeded, best first."""
        from crystal.app.work import how

        return how(self._whole(), question, project=project)

    def fix(self, error: str, *, project: str | None = None) -> Sequence[KnownFix]:
        """Return what cured an error, best first: in the project first, then in all."""
        from crystal.app.fixes import fix

        return fix(self._whole(), error, project=project)

    def about(self, thing: str, *, project: str | None = None) -> ThingHistory:
        """Return the history of a file, symbol, error, branch and the like: in the project first, then in all."""
        from crystal.app.about import about

        return about(self._whole(), thing, project=project)

    def blame(self, place: str | Path, *, project: str | None = None) -> Blame:
        """Return which session wrote the lines of a file: ``FILE``, ``FILE:LINE`` or ``FILE:LINE-LINE``."""
        from crystal.app.blame import blame

        return blame(self._whole(), str(place), project=project)

    def status(self) -> dict[str, Any]:
        """Return what ``crystal status --json`` prints; times are ms since the epoch."""
        from crystal.app.status import gather

        return gather(self._machine)

    def sync(self) -> Tally:
        """Sweep every transcript, then embed and summarize what is due."""
        from crystal.app.background import enrich
        from crystal.app.capture import run_capture

        tally = run_capture(self._machine, lambda capture: capture.sweep())
        enrich(self._machine, budget_seconds=600)
        return tally

    def backfill(
        self, paths: Sequence[str | Path] = (), *, limit: int | None = None, since: int | str | None = None
    ) -> Tally:
        """Import past sessions, newest first, from ``paths`` or from all agents' folders."""
        from crystal.app.background import enrich
        from crystal.app.import_past import import_sessions, plan_import, plan_in_projects
        from crystal.capture.engine import Tally

        refused, given = Tally(), [Path(path).absolute() for path in paths]
        after = self._moment(since, "since")
        plan = plan_import(self._machine, given, after, refused)
        # Other processes would import the caller's script, which need not be made for that.
        tally = import_sessions(self._machine, plan[:limit], lambda _: None, cleaners=0)
        if not given and limit is None:
            more = plan_in_projects(self._machine, after, refused)
            tally.join(import_sessions(self._machine, more, lambda _: None, cleaners=0))
        tally.join(refused)
        enrich(self._machine, budget_seconds=24 * 3600)
        return tally

    def verify(self, *, repair: bool = False) -> Proof:
        """Prove that every byte is captured, private, or skipped by a named rule; with ``repair``, also repair."""
        from crystal.app.integrity import prove, repair_all

        proof = prove(self._machine, lambda _: None)
        if repair and proof.faults:
            repair_all(self._machine, proof)
            proof = prove(self._machine, lambda _: None)
        return proof

    def restore(self, session: str, *, project: str | Path | None = None) -> Sequence[Restored]:
        """Write an archived session back to where ``claude --resume`` finds it."""
        from crystal.app.integrity import restore_session

        folder = None if project is None else Path(project).absolute()
        return restore_session(self._machine, session, folder, dry_run=False)

    def remember(
        self, text: str, *, category: str | None = None, project: str | None = None, key: str | None = None,
        session: str | None = None, source: str = "python",
    ) -> Remembered:  # fmt: skip
        """Remember something; a key that is known gets the text as its new value.

        Raises:
            UsageError: A value that cannot be used, or a text that is nothing but secrets.
        """
        from crystal.app.memories import remember

        return self._remembered(
            remember(self._machine, text, category=category, project=project, key=key, session=session, source=source)
        )

    def memories(
        self, *, category: str | None = None, project: str | None = None, key: str | None = None,
        status: str | None = "active", limit: int = 100,
    ) -> Sequence[Remembered]:  # fmt: skip
        """Return the memories, the latest first; ``status`` None includes deprecated ones."""
        from crystal.app.memory_queries import list_memories

        return list_memories(self._machine, category=category, project=project, key=key, status=status, limit=limit)

    def get(self, memory: str | None = None, *, key: str | None = None) -> Remembered | None:
        """Return the memory with this id (or its unique prefix), or the active one with this key; None without one.

        Raises:
            NotFoundError: There is no memory with this id.
            UsageError: Not one of the two was given, or it is the beginning of several ids.
        """
        from crystal.app.memory_queries import by_key, memory_of
        from crystal.errors import UsageError

        if (memory is None) == (key is None):
            raise UsageError("give an id or a key", hint='try: get(key="user_name")')
        return memory_of(self._machine, memory or "") if key is None else by_key(self._machine, key)

    def edit(
        self, memory: str, *, text: str | None = None, category: str | None = None, key: str | None = None,
        project: str | None = None,
    ) -> Remembered:  # fmt: skip
        """Change a memory; None leaves a value as it is, an empty key or project removes it."""
        from crystal.app import memory_changes

        named = {"text": text, "category": category, "key": key, "project": project}
        return self._remembered(memory_changes.edit(self._machine, memory, **named))

    def deprecate(self, memory: str) -> Remembered:
        """Hide a memory: it is kept, and neither listed nor found."""
        from crystal.app import memory_changes

        return memory_changes.deprecate(self._machine, memory)

    def revive(self, memory: str) -> Remembered:
        """Bring a deprecated memory back."""
        from crystal.app import memory_changes

        return self._remembered(memory_changes.revive(self._machine, memory))

    def memory_history(self, memory: str) -> Sequence[FormerMemory]:
        """Return the former versions of a memory, the latest first."""
        from crystal.app.memory_queries import history

        return history(self._machine, memory)

    def plan_forget(
        self, *targets: str | int, query: str | None = None, session: str | None = None, project: str | None = None,
        before: int | str | None = None, key: str | None = None,
    ) -> ForgetPlan:  # fmt: skip
        """List what would be forgotten, in a large memory a part of it: memories (mem-...), hits, ids of lines.

        Raises:
            UsageError: A target is unknown, or nothing is named.
        """
        from crystal.app.forget import plan_forget
        from crystal.forgetting.request import ForgetRequest

        names, end = tuple(map(str, targets)), self._moment(before, "before")
        return plan_forget(self._machine, ForgetRequest(names, query, session, project, end, key))

    def forget(self, plan: ForgetPlan) -> Forgotten:
        """Delete permanently what a plan lists. It cannot be restored."""
        from crystal.app.forget import execute_plan

        return execute_plan(self._machine, plan)

    def forget_and_prove(self, plan: ForgetPlan) -> tuple[Forgotten, ForgetProof]:
        """Forget what a plan lists, then search every byte of crystal's files for what is left of it."""
        from crystal.app.forget import execute_and_prove

        return execute_and_prove(self._machine, plan)

    def on(self, session: str | None = None) -> None:
        """Capture again from here on."""
        from crystal.app.capture_switch import turn_on

        turn_on(self._machine, session)

    def off(self, session: str | None = None) -> None:
        """Capture nothing that is said from now on, in one session or in all."""
        from crystal.app.capture_switch import turn_off

        turn_off(self._machine, session)

    def sources_add(self, folder: str | Path, name: str | None = None, *, vault: bool = False) -> SyncReport:
        """Add a folder to the sources, and index its files; ``vault``: its Markdown files are notes of Obsidian."""
        from crystal.app.sources import add_source

        return self.sources_sync(add_source(self._machine, Path(folder), name, is_vault=vault).name)[0]

    def sources_sync(self, name: str | None = None) -> Sequence[SyncReport]:
        """Read what has changed in all sources, or in one, and embed it."""
        from crystal.app.sources import sync_and_embed

        return sync_and_embed(self._machine, name)

    def sources_status(self) -> Sequence[SourceState]:
        """Return the sources, by name."""
        from crystal.app.source_list import list_sources

        return list_sources(self._machine)

    def sources_remove(self, name: str) -> RemovedSource:
        """Remove a source with all that is stored of it; the files themselves stay."""
        from crystal.app.sources import remove_source

        return remove_source(self._machine, name)

    def _remembered(self, one: Remembered) -> Remembered:
        """Embed a new memory at once, if that is quick, so that it is found by meaning."""
        from crystal.app.background import embed_soon

        embed_soon(self._machine)
        return one

    def _whole(self) -> Machine:
        """Return the machine with the mirror of home's memory, opened once there is one."""
        if self._mirror is None or self._mirror.store is None:
            self._mirror = self._exit.enter_context(open_mirror(self._machine.places, self._machine.config.role))
        return self._machine.with_mirror(self._mirror)

    def _moment(self, value: int | str | None, name: str) -> int | None:
        from crystal.timewords.parse import parse_when

        return parse_when(value, now=self._machine.now(), name=name) if isinstance(value, str) else value
