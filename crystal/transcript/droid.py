"""The reader of Droid's sessions: a line with the title, which is rewritten, then messages with Anthropic's blocks.

Source: files of version 0.215; tests/data/agents/droid/README.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePath

from crystal.model.capture import Turn
from crystal.transcript.claude_code.turns import strip_injected
from crystal.transcript.context import Context, parse_completed
from crystal.transcript.line import Fields, fields_of, identifier, parse_line, parse_time, word
from crystal.transcript.parts import Part, parts_of_blocks, turns_of_parts
from crystal.transcript.reader import Identity, LineFacts, TranscriptReader

_START = "session_start"
_COMPACTION = "compaction_state"
_CONTEXT = "context-"
_UNTITLED = "New Session"
_INTERRUPTED = "Request interrupted by user"


class DroidReader(TranscriptReader):
    """See ``TranscriptReader``."""

    lines_have_ids = False
    silent_kinds = ("message", "session_start", "agent_turn_outcome", "todo_state", "compaction_state")
    context_marks = (b'"session_start"',)

    def identify(self, path: PurePath) -> Identity:
        """Return what a file belongs to: its name is the session. Its first line knows whose subagent it is."""
        return Identity(path.stem, path.stem)

    def owner(self, first: Iterable[bytes], context: Context) -> tuple[str | None, str | None]:
        """Return the session and the subagent, by the line that begins a session."""
        if context.session is not None:
            return context.session, context.subagent
        for line in first:
            fields, known = parse_completed(line)
            own, caller = identifier(fields.get("id")), identifier(fields.get("callingSessionId"))
            if known.session is not None:
                return known.session, known.subagent
            if fields.get("type") == _START:
                return caller or own, own if caller else None
        return None, None

    def side_files(self, path: PurePath) -> tuple[PurePath, ...]:
        """Return the file that names the model."""
        return (path.with_name(f"{path.stem}.settings.json"),)

    def first_context(self, path: PurePath, sides: Mapping[PurePath, bytes]) -> Context:
        """Return the model of the session's settings; messages that name one know better."""
        del path
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

    def facts(self, line: bytes) -> LineFacts:
        """Return the facts of a line."""
        fields, context = parse_completed(line)
        kind, ident = fields.get("type"), identifier(fields.get("id"))
        is_said = kind != _COMPACTION and any(part.text.strip() for part in _parts(fields))
        return LineFacts(
            uuid=f"droid:{ident}" if ident and not _is_hook(fields) else context.id if is_said else None,
            timestamp_ms=parse_time(fields.get("timestamp")),
            cwd=context.cwd,
            session_id=context.session or (ident if kind == _START else None),
            is_conversation=is_said,
            is_summary=kind == _COMPACTION,
        )

    def turns(self, lines: Iterable[tuple[int, bytes]], key: str, *, subagent: bool) -> Iterator[Turn]:
        """Yield the turns of the lines, in their order."""
        del key
        tools: dict[str, str | None] = {}
        for offset, line in lines:
            uuid = self.facts(line).uuid
            if uuid is not None:
                fields, context = parse_completed(line)
                parent = identifier(fields.get("parentId"))
                shared = Turn(
                    uuid, 0, "user", "", offset, parse_time(fields.get("timestamp")), parent and f"droid:{parent}",
                    context.cwd, model=word(_message(fields).get("modelId")) or context.model,
                )  # fmt: skip
                yield from turns_of_parts(_parts(fields, tools), shared, subagent=subagent)


READER = DroidReader()


def _message(fields: Fields) -> Fields:
    return fields_of(fields.get("message"))


def _is_hook(fields: Fields) -> bool:
    """Return whether a line is what a hook was told and answered; its input repeats what was said."""
    return "hookEventName" in _message(fields)


def _parts(fields: Fields, tools: dict[str, str | None] | None = None) -> Iterator[Part]:
    """Yield what a line says. ``tools`` names the tools called so far."""
    if fields.get("type") == _COMPACTION:
        yield Part("summary", word(fields.get("summaryText")) or "")
        return
    message = _message(fields)
    role = message.get("role")
    # What only one of the two sees is the program's: its errors, its hooks' answers.
    is_programs = message.get("visibility") not in (None, "both") or str(fields.get("id")).startswith(_CONTEXT)
    if role not in ("user", "assistant") or (role == "user" and is_programs):
        return
    for part in parts_of_blocks(message.get("content"), "user" if role == "user" else "assistant", tools):
        yield part._replace(text=_typed(part.text)) if part.role == "user" else part


def _typed(text: str) -> str:
    """Return what a person typed."""
    text = strip_injected(text)
    return "" if text.strip(" []") == _INTERRUPTED else text
