"""What readers share whose records are messages, with the time in them."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Iterable, Iterator

from crystal.model.capture import Turn
from crystal.transcript.context import Context, parse_completed
from crystal.transcript.line import Fields, format_line
from crystal.transcript.parts import Part, turns_of_parts
from crystal.transcript.reader import LineFacts, SnapshotReader


class MessageReader(SnapshotReader):
    """Reads records that are messages: what was said is in their parts."""

    @abstractmethod
    def parts(self, fields: Fields) -> Iterable[Part]:
        """Return the parts of a message; none if nobody said or did it."""

    @abstractmethod
    def time_of(self, fields: Fields, context: Context) -> int | None:
        """Return when a message was written, ms."""

    def turn_of(self, fields: Fields, context: Context) -> Turn:
        """Return what the turns of a message share."""
        at = self.time_of(fields, context)
        return Turn(context.id or "", 0, "user", "", 0, at, None, context.cwd, context.branch, model=context.model)

    def facts(self, line: bytes) -> LineFacts:
        """Return the facts of a record."""
        fields, context = parse_completed(line)
        said = {part.role for part in self.parts(fields) if part.text}
        return LineFacts(
            uuid=context.id,
            timestamp_ms=self.time_of(fields, context),
            cwd=context.cwd,
            session_id=context.session,
            is_conversation=bool(said - {"summary"}),
            is_summary="summary" in said,
        )

    def turns(self, lines: Iterable[tuple[int, bytes]], key: str, *, subagent: bool) -> Iterator[Turn]:
        """Yield the turns of the records, in their order."""
        del key
        for offset, line in lines:
            fields, context = parse_completed(line)
            if context.id is not None:
                shared = self.turn_of(fields, context)._replace(offset=offset)
                yield from turns_of_parts(self.parts(fields), shared, subagent=subagent, record=fields)


def stamp_of(fields: object) -> str:
    """Return a text that differs whenever a value does."""
    return hashlib.sha256(format_line(fields)).hexdigest()
