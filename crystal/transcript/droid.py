"""The reader of Droid's sessions: a line with the title, which is rewritten, then messages with Anthropic's blocks.

Source: files of version 0.215; tests/data/agents/droid/README.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePath

from crystal.model.capture import Turn
from crystal.transcript.claude_code.turns import strip_injected
from crystal.transcript.line import Fields, fields_of, identifier, parse_line, word
from crystal.transcript.line_context import Context
from crystal.transcript.messages import MessageReader
from crystal.transcript.parts import Part, parts_of_blocks
from crystal.transcript.reader import Identity

_START = "session_start"
_COMPACTION = "compaction_state"
_CONTEXT = "context-"
_UNTITLED = "New Session"
_INTERRUPTED = "Request interrupted by user"


class DroidReader(MessageReader):
    """See ``MessageReader``."""

    silent_kinds = ("message", "session_start", "agent_turn_outcome", "todo_state", "compaction_state")
    roles = ("user", "assistant", "system")
    context_marks = (b'"session_start"',)

    def identify(self, path: PurePath) -> Identity:
        """Return what a file belongs to: its name is the session. Its first line knows whose subagent it is."""
        return Identity(path.stem, path.stem)

    def owner_of(self, line: bytes, fields: Fields) -> tuple[str | None, str | None]:  # noqa: ARG002 - the interface's
        """Return the session and the subagent, by the line that begins a session."""
        own, caller = identifier(fields.get("id")), identifier(fields.get("callingSessionId"))
        return (caller or own, own if caller else None) if fields.get("type") == _START else (None, None)

    def side_files(self, path: PurePath) -> tuple[PurePath, ...]:
        """Return the file that names the model."""
        return (path.with_name(f"{path.stem}.settings.json"),)

    def first_context(self, path: PurePath, sides: Mapping[PurePath, bytes]) -> Context:  # noqa: ARG002 - the interface's
        """Return the model of the session's settings; messages that name one know better."""
        settings = [parse_line(content) or {} for content in sides.values()]
        return Context().with_texts(model=settings[0].get("model") if settings else None)

    def advance(self, context: Context, line: bytes) -> Context:
        """Return the context after the line with the folder and the title."""
        fields = parse_line(line) or {}
        if fields.get("type") != _START:
            return context
        titles = (word(fields.get(name)) for name in ("sessionTitle", "title"))
        return context.with_texts(
            cwd=fields.get("cwd"), title=next((title for title in titles if title and title != _UNTITLED), None)
        )

    def uuid_of(self, fields: Fields, context: Context) -> str | None:
        """Return a line's id. What a hook was told and answered has none: its input repeats what was said."""
        ident = identifier(fields.get("id"))
        return f"droid:{ident}" if ident and "hookEventName" not in _message(fields) else context.id

    def session_of(self, fields: Fields) -> str | None:
        """Return the session, which the first line names."""
        return identifier(fields.get("id")) if fields.get("type") == _START else None

    def turn_of(self, fields: Fields, context: Context) -> Turn:
        """Return what the turns of a line share."""
        parent, model = identifier(fields.get("parentId")), word(_message(fields).get("modelId"))
        shared = super().turn_of(fields, context)
        return shared._replace(parent_uuid=parent and f"droid:{parent}", model=model or context.model)

    def parts(self, fields: Fields) -> Iterator[Part]:
        """Yield the parts of a line."""
        return _parts(fields, {})

    def named_parts(self, fields: Fields, tools: dict[str, str | None]) -> Iterator[Part]:
        """Yield the parts, results with the names of their tools."""
        return _parts(fields, tools)


READER = DroidReader()


def _message(fields: Fields) -> Fields:
    return fields_of(fields.get("message"))


def _parts(fields: Fields, tools: dict[str, str | None]) -> Iterator[Part]:
    """Yield what a line says. ``tools`` names the tools called so far."""
    if fields.get("type") == _COMPACTION:
        yield Part("summary", word(fields.get("summaryText")) or "")
        return
    message = _message(fields)
    role = message.get("role")
    # What only one of the two sees is the program's: its errors, its hooks' answers.
    seen_by = message.get("visibility") or fields.get("visibility")
    is_programs = seen_by not in (None, "both") or str(fields.get("id")).startswith(_CONTEXT)
    if role not in ("user", "assistant") or (role == "user" and is_programs):
        return
    for part in parts_of_blocks(message.get("content"), "user" if role == "user" else "assistant", tools):
        yield part._replace(text=_typed(part.text)) if part.role == "user" else part


def _typed(text: str) -> str:
    """Return what a person typed."""
    text = strip_injected(text)
    return "" if text.strip(" []") == _INTERRUPTED else text
