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
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path, PurePath
from typing import Any

from crystal.config.harnesses import CLAUDE_CODE, HARNESSES
from crystal.errors import CrystalError, UnavailableError, UsageError
from crystal.model.capture import Turn
from crystal.model.named_tuple import NamedTuple
from crystal.transcript.line import Fields, parse_line
from crystal.transcript.line_context import Context, complete, parse_completed

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

    kinds_are_named: bool = True
    """True if every record has a kind: one without a kind and without text is then unknown."""

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
