"""Read records that are messages: what all readers but Claude Code's share.

Of a harness that rewrites its files or keeps a database, a ``SnapshotReader`` gives the records; each new one becomes
a line.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import PurePath
from typing import Any

from crystal.model.capture import Turn
from crystal.model.named_tuple import NamedTuple
from crystal.transcript.line import Fields, digest, fields_of, format_line, parse_time, word
from crystal.transcript.line_context import Context, complete, parse_completed, text_of
from crystal.transcript.parts import Part, turns_of_parts
from crystal.transcript.reader import Identity, LineFacts, TranscriptReader
from crystal.transcript.snapshot import Snapshot


class MessageReader(TranscriptReader):
    """Reads lines, or records of a ``SnapshotReader``, that are messages: what was said is in their parts."""

    roles: Collection[str] = ()
    """Roles of records of the kind ``message``, if they are known: one of another role is of an unknown kind."""

    def kind(self, fields: Mapping[str, Any]) -> str | None:
        """Return the kind of a record; of a message of an unknown role with this."""
        found, role = super().kind(fields), fields_of(fields.get("message")).get("role")
        is_known = found != "message" or not self.roles or role in self.roles
        return found if is_known else f"message.{word(role) or 'none'}"

    @abstractmethod
    def parts(self, fields: Fields) -> Iterable[Part]:
        """Return the parts of a message; none if nobody said or did it."""

    def named_parts(self, fields: Fields, tools: dict[str, str | None]) -> Iterable[Part]:  # noqa: ARG002 - the interface's
        """Return the parts; results that do not name their tools get the names by ``tools``, which has the calls."""
        return self.parts(fields)

    def uuid_of(self, fields: Fields, context: Context) -> str | None:  # noqa: ARG002 - the interface's
        """Return the id of a message that has one, by itself or by its context."""
        return context.id

    def time_of(self, fields: Fields, context: Context) -> int | None:
        """Return when a message was written, ms."""
        return parse_time(fields.get("timestamp")) or context.at

    def session_of(self, fields: Fields) -> str | None:  # noqa: ARG002 - the interface's
        """Return the session that a line names."""
        return None

    def is_subagents(self, fields: Fields) -> bool:  # noqa: ARG002 - the interface's
        """Return whether a message in a session's own transcript is a subagent's."""
        return False

    def turn_of(self, fields: Fields, context: Context) -> Turn:
        """Return what the turns of a message share."""
        at = self.time_of(fields, context)
        return Turn("", 0, "user", "", 0, at, None, context.cwd, context.branch, model=context.model)

    def facts(self, line: bytes) -> LineFacts:
        """Return the facts of a record."""
        fields, context = parse_completed(line)
        shared = self.turn_of(fields, context)
        said = {part.role for part in self.parts(fields) if part.text.strip()}
        return LineFacts(
            uuid=(context.apart or self.uuid_of(fields, context)) if text_of(fields) is None else None,
            timestamp_ms=shared.timestamp or context.at,
            cwd=shared.cwd,
            session_id=context.session or self.session_of(fields),
            is_conversation=bool(said - {"summary"}),
            is_summary="summary" in said,
        )

    def turns(self, lines: Iterable[tuple[int, bytes]], key: str, *, subagent: bool) -> Iterator[Turn]:  # noqa: ARG002 - the interface's
        """Yield the turns of the records, in their order."""
        tools: dict[str, str | None] = {}
        for offset, line in lines:
            fields, context = parse_completed(line)
            uuid = context.apart or self.uuid_of(fields, context)
            if uuid is not None:
                shared = self.turn_of(fields, context)._replace(uuid=uuid, offset=offset)
                is_subagents = subagent or self.is_subagents(fields)
                yield from turns_of_parts(self.named_parts(fields, tools), shared, fields, subagent=is_subagents)


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

    @property
    def size(self) -> int:
        """Return the length of the line, with its newline."""
        return len(self.line) + 1


def unnamed_record(session: str, line: bytes, context: Context) -> Record:
    """Return a record without an id of its own: it is known by its content."""
    return Record(f"{session}-{digest(line)[:16]}", line, context)


class SnapshotReader(MessageReader):
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


def unique_name(name: str, used: Counter[str]) -> str:
    """Return a name that came before with its number, and count it."""
    used[name] += 1
    return name if used[name] == 1 else f"{name}-{used[name]}"
