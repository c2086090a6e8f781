"""Read records that are messages: what all readers but Claude Code's share."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from crystal.model.capture import Turn
from crystal.transcript.line import Fields, fields_of, parse_time, word
from crystal.transcript.line_context import Context, parse_completed, text_of
from crystal.transcript.parts import Part, turns_of_parts
from crystal.transcript.reader import LineFacts, TranscriptReader


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


def unique_name(name: str, used: Counter[str]) -> str:
    """Return a name that came before with its number, and count it."""
    used[name] += 1
    return name if used[name] == 1 else f"{name}-{used[name]}"
