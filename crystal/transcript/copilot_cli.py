"""The reader of GitHub Copilot CLI's sessions: a chain of events, subagents' among them.

The file has each call twice: in the message that asks for it, and in the event of its execution, which is missing if
the person interrupted it. Both have the call's id, so that it is one turn.

Source: files of versions 1.0.64 to 1.0.102; tests/data/agents/copilot-cli/README.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePath

from crystal.model.capture import Turn
from crystal.transcript.line import Fields, dicts_of, fields_of, identifier, parse_line, word
from crystal.transcript.line_context import Context, parse_completed
from crystal.transcript.messages import MessageReader
from crystal.transcript.parts import Part, call, result_text, turns_of_parts
from crystal.transcript.reader import Identity

_WORKSPACE = "workspace.yaml"
_NAME = re.compile(r"^name: (.+)$", re.MULTILINE)
_RESULT = "tool.execution_complete"
_STARTED, _ASKED = b'"tool.execution_start"', b'"toolRequests"'
_COMPACTED = "session.compaction_complete"


class CopilotReader(MessageReader):
    """See ``MessageReader``."""

    silent_kinds = (
        "session.*", "hook.*", "subagent.*", "system.*", "assistant.turn_*", "abort",
        "user.message", "assistant.message", "tool.execution_*",
    )  # fmt: skip
    context_marks = (b'"session.start"', b'"session.resume"', b'"session.context_changed"', b'"session.model_change"')

    def identify(self, path: PurePath) -> Identity:
        """Return what a file belongs to: its folder has the session's id."""
        return Identity(path.parent.name, path.parent.name)

    def side_files(self, path: PurePath) -> tuple[PurePath, ...]:
        """Return the file that has the session's name."""
        return (path.with_name(_WORKSPACE),)

    def first_context(self, path: PurePath, sides: Mapping[PurePath, bytes]) -> Context:
        """Return the session's name."""
        found = _NAME.search(sides.get(path.with_name(_WORKSPACE), b"").decode("utf-8", "replace"))
        return Context().with_texts(title=found[1].strip() if found else None)

    def advance(self, context: Context, line: bytes) -> Context:
        """Return the context after a line that tells of the folder or the model."""
        kind, data = _event(parse_line(line) or {})
        if not kind.startswith("session."):
            return context
        place = data.get("context")
        told = place if isinstance(place, dict) else data
        model = data.get("newModel") or data.get("selectedModel")
        return context.with_texts(cwd=told.get("cwd"), branch=told.get("branch"), model=model)

    def uuid_of(self, fields: Fields, context: Context) -> str | None:
        """Return a line's id. A call and its result share the call's, so that the result finds its tool."""
        kind, data = _event(fields)
        call = _call_uuid(data)
        if call is not None and kind.startswith("tool.execution_"):
            return f"{call}-result" if kind == _RESULT else call
        ident = identifier(fields.get("id"))
        is_note = kind.startswith("hook.") or ident is None
        return context.id if is_note else f"copilot-cli:{ident}"

    def session_of(self, fields: Fields) -> str | None:
        """Return the session that its first event names."""
        return identifier(_event(fields)[1].get("sessionId"))

    def is_subagents(self, fields: Fields) -> bool:
        """Return whether a subagent said it."""
        return word(fields.get("agentId")) is not None

    def turn_of(self, fields: Fields, context: Context) -> Turn:
        """Return what the turns of an event share."""
        kind, data = _event(fields)
        called = _call_uuid(data) if kind == _RESULT else None
        own = context.with_texts(model=data.get("model"))
        return super().turn_of(fields, own)._replace(parent_uuid=called, message_id=identifier(data.get("messageId")))

    def turns(self, lines: Iterable[tuple[int, bytes]], key: str, *, subagent: bool) -> Iterator[Turn]:
        """Yield the turns of the events, in their order; after a message the calls whose execution does not follow."""
        stretch = list(lines)
        begun = {_call_uuid(_event(parse_line(line) or {})[1]) for _, line in stretch if _STARTED in line}
        for offset, line in stretch:
            yield from super().turns([(offset, line)], key, subagent=subagent)
            fields, context = parse_completed(line) if _ASKED in line else ({}, Context())
            for asked in dicts_of(_event(fields)[1].get("toolRequests")):
                uuid = _call_uuid(asked)
                if uuid is not None and uuid not in begun:
                    shared = self.turn_of(fields, context)
                    at = None if shared.timestamp is None else shared.timestamp + 1  # after what the message says
                    shared = shared._replace(uuid=uuid, offset=offset, timestamp=at)
                    parts = [call(asked.get("name"), asked.get("arguments"))]
                    yield from turns_of_parts(parts, shared, fields, subagent=subagent or self.is_subagents(fields))

    def parts(self, fields: Fields) -> Iterator[Part]:
        """Yield the parts of an event."""
        kind, data = _event(fields)
        if kind == "user.message":
            yield Part("user", word(data.get("content")) or "")
        elif kind == "assistant.message":
            yield Part("thinking", word(data.get("reasoningText")) or "")
            yield Part("assistant", word(data.get("content")) or "")
        elif kind == "tool.execution_start":
            yield call(data.get("toolName"), data.get("arguments"))
        elif kind == _RESULT:
            told = fields_of(data.get("result")) or fields_of(data.get("error"))
            texts = (result_text(told.get(name) or "") for name in ("content", "message"))
            yield Part("tool_result", next(filter(None, texts), ""))
        elif kind == _COMPACTED:
            yield Part("summary", word(data.get("summaryContent")) or "")


READER = CopilotReader()


def _event(fields: Fields) -> tuple[str, Fields]:
    kind = fields.get("type")
    return kind if isinstance(kind, str) else "", fields_of(fields.get("data"))


def _call_uuid(data: Fields) -> str | None:
    ident = identifier(data.get("toolCallId"))
    return None if ident is None else f"copilot-cli:{ident}"
