"""Interfaces of transcript readers, and the lookup of a harness's reader.

A reader knows how one harness writes: which session a file belongs to, and what its lines say. Where its files are is
a row in ``crystal.config.harnesses``. Everything else asks ``reader_of(origin.harness)``.

A transcript is a file that only grows, read by lines from a watermark in bytes. What its lines do not say (folder,
branch, model) is their ``Context``, which capture writes into them. Of a harness that rewrites its files or keeps a
database, a ``SnapshotReader`` gives the records; each new one becomes a line. Archive, ledger, privacy and forgetting
see lines only.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path, PurePath
from typing import Any

from crystal.config.harnesses import CLAUDE_CODE, HARNESSES
from crystal.errors import CrystalError, UnavailableError, UsageError
from crystal.model.capture import Turn
from crystal.model.named_tuple import NamedTuple
from crystal.transcript.line import Fields, digest, format_line, parse_line
from crystal.transcript.line_context import Context, complete, parse_completed
from crystal.transcript.snapshot import Snapshot

MISTAKES = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""Exceptions of a reader that meets an unknown form."""

FORGOTTEN = "crystalForgotten"
"""Field of a line whose text was forgotten: its place in the conversation is kept, without content."""


class LineFacts(NamedTuple):
    """Facts of a line. None if missing or invalid.

    Attributes:
        uuid: Its id, the same in every copy of the line, and in no other line of any harness.
        timestamp_ms: When it was written.
        cwd: The folder in which the agent worked.
        session_id: The session that it names.
        is_conversation: Whether somebody said or did it; else it is the harness's own note.
        is_summary: Whether it summarizes what is before it.
    """

    uuid: str | None = None
    timestamp_ms: int | None = None
    cwd: str | None = None
    session_id: str | None = None
    is_conversation: bool = False
    is_summary: bool = False

    @property
    def is_bookkeeping(self) -> bool:
        """Return True for a note of the harness without an id: it is unknown what it repeats."""
        return self.uuid is None and not self.is_conversation


class Identity(NamedTuple):
    """Transcript, session and subagent that a file belongs to.

    Attributes:
        key: Identifies the transcript on its machine: ``<session>``, or ``<session>/<name>`` for a subagent's. It does
            not change when the file moves to another folder.
        session: The session's id, or None where only the lines name it.
        subagent: The subagent's id, or None for the session's own transcript.
    """

    key: str
    session: str | None = None
    subagent: str | None = None


class TranscriptReader(ABC):
    """Reads the transcripts of one harness.

    Every method is pure and never raises, whatever the lines hold: what is not understood is left out. The same lines
    give the same turns.
    """

    envelope: frozenset[str] = frozenset()
    """Fields of a line that tell place and time, and are not searched for words."""

    lines_are_complete: bool = False
    """True if every line names itself, its session, folder, branch and model, so that it needs no context.

    Else capture gives it one; to a line of the conversation that has no id, also an id.
    """

    context_marks: tuple[bytes, ...] = ()
    """Texts of which every line that changes the context has one; ``advance`` is asked for no other line."""

    silent_kinds: tuple[str, ...] = ()
    """Kinds of records that may say nothing, as patterns of ``fnmatch``. A silent one of another kind is unknown."""

    kinds_are_named: bool = False
    """True if every record has a kind, so that a silent one without is unknown."""

    @abstractmethod
    def identify(self, path: PurePath) -> Identity:
        """Return what a file belongs to, by its name and its folder."""

    @abstractmethod
    def facts(self, line: bytes) -> LineFacts:
        """Return the facts of a line."""

    @abstractmethod
    def turns(self, lines: Iterable[tuple[int, bytes]], key: str, *, subagent: bool) -> Iterator[Turn]:
        """Yield the turns of the lines, in their order.

        Args:
            lines: (offset of the line in its file, the line without its newline).
            key: The transcript's key; part of the identity of lines that have no id.
            subagent: The transcript is a subagent's own: its turns have the role ``subagent``.
        """

    def kind(self, fields: Mapping[str, Any]) -> str | None:
        """Return the kind of a record in the harness's own words, None if it has none."""
        found = (fields.get(name) for name in ("type", "role", "kind"))
        return next((str(kind) for kind in found if isinstance(kind, str | int)), None)

    def side_files(self, path: PurePath) -> tuple[PurePath, ...]:  # noqa: ARG002 - the interface's
        """Return the small files beside a transcript that tell something of it. They need not exist."""
        return ()

    def first_context(self, path: PurePath, sides: Mapping[PurePath, bytes]) -> Context:  # noqa: ARG002 - the interface's
        """Return what holds from the first line on, by the path and the side files that exist."""
        return Context()

    def advance(self, context: Context, line: bytes) -> Context:  # noqa: ARG002 - the interface's
        """Return the context that holds from this line on, for itself too."""
        return context

    def owner(self, first: Iterable[bytes], context: Context) -> tuple[str | None, str | None]:
        """Return the session and the subagent that the first lines of a file name, each None if they do not.

        It is asked where ``identify`` finds no session whose id has the right form; also for archived lines, whose
        contexts name both.
        """
        if context.session is not None:
            return context.session, context.subagent
        for line in first:
            fields, known = parse_completed(line)
            session, subagent = (known.session, None) if known.session is not None else self.owner_of(line, fields)
            if session is not None:
                return session, subagent or known.subagent
        return None, None

    def owner_of(self, line: bytes, fields: Fields) -> tuple[str | None, str | None]:  # noqa: ARG002 - the interface's
        """Return the session and the subagent that a line names, each None if it does not."""
        return self.facts(line).session_id, None

    def title(self, lines: Iterable[tuple[int, bytes]]) -> str | None:
        """Return the title that lines give their session, or None: the newest in their contexts."""
        titles = (parse_completed(line)[1].title for _, line in lines if b'"title"' in line)
        return next((title for title in reversed(list(titles)) if title), None)

    def answers(self, line: bytes) -> list[str]:
        """Return the agent's texts in a line, as its hook reports the last of them."""
        return [turn.text for turn in self.turns([(0, line)], "", subagent=False) if turn.role == "assistant"]

    def is_session_id(self, name: str) -> bool:  # noqa: ARG002 - the interface's
        """Return whether a name has the form of a session's id, which nothing else has: the lines need not be asked."""
        return False

    def shell_of(self, line: bytes) -> bytes:
        """Return what remains of a forgotten line, as long as the line."""
        return b" " * len(line)

    def path_of(self, session: str, name: str) -> PurePath:
        """Return the path of a transcript in the folder of its session's own; ``name`` is a subagent's, else empty."""
        return PurePath(session, f"{name}.jsonl") if name else PurePath(f"{session}.jsonl")

    def resume_folder(self, root: Path, cwd: str | None) -> Path:  # noqa: ARG002 - the interface's
        """Return the folder in which the harness finds the transcript of a session to resume in ``cwd``.

        Raises:
            UsageError: It resumes none.
        """
        problem = "this session cannot be restored: its agent does not read a transcript that is written back"
        raise UsageError(problem, hint="read it with: crystal show ID; take it out with: crystal export --session ID")

    def relinked(self, lines: list[bytes]) -> list[bytes]:
        """Return a session's lines such that the harness reads on where lines were left out."""
        return lines


class SessionStamp(NamedTuple):
    """A conversation in a source.

    Attributes:
        session: The session's id.
        stamp: A text that differs whenever anything in the conversation differs.
        subagent: The subagent's id, if it is one's own conversation.
    """

    session: str
    stamp: str
    subagent: str | None = None


class Record(NamedTuple):
    """One record of a conversation: a message, or a part of one.

    Attributes:
        id: Its id, unique in its harness if it is the same in copies of the conversation, else in its conversation.
        line: The record as JSON, in one line, unchanged as far as possible.
        context: What holds for it; ``id`` and ``session`` are filled in by capture.
    """

    id: str
    line: bytes
    context: Context = Context()


def unnamed_record(session: str, line: bytes, context: Context) -> Record:
    """Return a record without an id of its own: it is known by its content."""
    return Record(f"{session}-{digest(line)[:16]}", line, context)


class SnapshotReader(TranscriptReader):
    """Reads the files of a harness that rewrites them.

    ``facts`` and ``turns`` get the lines of its records, each with a context that has the record's id, prefixed with
    the harness. A record that changed comes again, as a whole and with ``revised`` in its context, and replaces the
    turns of its earlier state. A record that disappeared stays.
    """

    ids_of: str | None = None
    """The harness that gives the records their ids, if it is another one: what both keep comes once."""

    file_marks: tuple[bytes, ...] = ()
    """Texts in the beginning of its files, where another harness gives its files the same names."""

    @abstractmethod
    def conversations(self, source: Snapshot) -> Iterable[SessionStamp]:
        """Return the conversations in a source.

        Raises:
            SourceError: The source has another form.
        """

    @abstractmethod
    def messages(self, source: Snapshot, conversation: SessionStamp) -> Iterable[Record]:
        """Return the records of a conversation, in their order. Unknown ones too: the archive keeps them.

        Raises:
            SourceError: The source has another form.
        """

    def records(self, source: Snapshot, conversation: SessionStamp) -> Iterator[Record]:
        """Yield the records of a conversation; then broken ones; last one for its title, if a context has any.

        A title repeats words of the conversation: forgetting them would take every line that has it.
        """
        last, near = Record("", b""), list[Record]()
        source.broken.clear()
        for record in _named_apart(self.messages(source, conversation)):
            near += [last if last.id else record] * (len(source.broken) - len(near))
            last = record
            yield record._replace(context=record.context._replace(title=None))
        context = last.context
        near += [last] * (len(source.broken) - len(near))
        for raw, neighbour in zip(source.broken, near, strict=True):
            yield _broken_record(conversation, raw, context, self._time_near(neighbour, source))
        if source.rest and source.is_at_rest:
            yield _broken_record(conversation, source.rest, context, source.modified)
        if context.title and conversation.subagent in (None, conversation.session):
            line = format_line({"title": context.title})
            yield Record(f"{conversation.session}-title", line, context)

    def _time_near(self, record: Record, source: Snapshot) -> int | None:
        """Return when a record was written; if it does not say so, the file. What is broken has no time of its own."""
        return self.facts(complete(record.line, record.context)).timestamp_ms or source.modified

    def lasting_id(self, ident: str) -> str:
        """Return what of a record's id stays when the agent deletes other records of the conversation."""
        return ident

    def identify(self, path: PurePath) -> Identity:
        """Return what a file belongs to. Its conversations say so themselves."""
        return Identity(path.stem)


def _named_apart(records: Iterable[Record]) -> Iterator[Record]:
    """Yield the records; of those that share an id, each with other content gets one of its own, else it is lost."""
    lines, tried, names = dict[str, int](), Counter[str](), dict[tuple[str, int], str]()
    for record in records:
        key = record.id, hash(record.line)
        while key not in names:
            tried[record.id] += 1
            number = tried[record.id]
            name = record.id if number == 1 else f"{record.id}-{number}"
            if lines.setdefault(name, key[1]) == key[1]:
                names[key] = name
        yield record._replace(id=names[key])


def _broken_record(conversation: SessionStamp, raw: bytes, context: Context, at: int | None) -> Record:
    """Return a record for what is broken, as one line of the archive: several lines are kept as one JSON string."""
    line = format_line(raw.decode("utf-8", "surrogateescape")) if b"\n" in raw else raw
    return unnamed_record(conversation.subagent or conversation.session, line, context._replace(title=None, at=at))


@cache
def reader_of(harness: str) -> TranscriptReader:
    """Return the reader of a harness.

    Raises:
        UnavailableError: This version of crystal has none.
    """
    if harness not in HARNESSES:
        raise UnavailableError(f"transcripts of {harness} cannot be read here", hint="update crystal on this machine")
    reader: TranscriptReader = importlib.import_module(f"crystal.transcript.{HARNESSES[harness].module}").READER
    return reader


def identify(path: PurePath, harness: str) -> Identity:
    """Return what a file of a harness belongs to. The keys of all but Claude Code begin with the harness."""
    identity = reader_of(harness).identify(path)
    return identity if harness == CLAUDE_CODE else identity._replace(key=f"{harness}/{identity.key}")


def split_key(key: str) -> tuple[str, str, str]:
    """Return the harness of a transcript's key, the session's part of it, and a subagent's or an empty text."""
    first, _, rest = key.partition("/")
    if first not in HARNESSES:
        return CLAUDE_CODE, first, rest
    session, _, name = rest.partition("/")
    return first, session, name


def find_facts(line: bytes) -> LineFacts:
    """Return the facts of a line of an unknown harness: those of the first reader that finds an id."""
    every = [reader_of(name).facts(line) for name in HARNESSES]
    return next((facts for facts in every if facts.uuid is not None), every[0])


def completed(
    reader: TranscriptReader, lines: Iterable[bytes], context: Context, name_line: Callable[[bytes], str]
) -> Iterator[bytes]:
    """Yield each line with its context, see ``crystal.transcript.line_context``.

    Args:
        reader: Of the lines.
        lines: Lines without their newlines.
        context: What holds before the first of them.
        name_line: Gives an id to a line that has none.
    """
    for line in lines:
        context = own = advanced(reader, context, line)
        if (facts := reader.facts(line)).is_conversation:
            # A title repeats words of the conversation: forgetting them would take every line that has it.
            own = context._replace(title=None, id=name_line(line) if facts.uuid is None else None)
        yield complete(line, own)


def advanced(reader: TranscriptReader, context: Context, line: bytes) -> Context:
    """Return the context that holds from a line on."""
    return reader.advance(context, line) if any(mark in line for mark in reader.context_marks) else context


def is_forgotten(line: bytes) -> bool:
    """Return True if a line is what remains of a forgotten one."""
    return FORGOTTEN.encode() in line and bool((parse_line(line) or {}).get(FORGOTTEN))


def named_mistake(error: Exception) -> CrystalError:
    """Return the error to show for a mistake of a reader. What it says itself may hold text."""
    return CrystalError(f"crystal does not understand it ({type(error).__name__}); update crystal")
