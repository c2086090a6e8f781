"""The reader of GitHub Copilot CLI's sessions: a chain of events, subagents' among them.

Source: files of versions 1.0.64 to 1.0.102; tests/data/agents/copilot-cli/README.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePath
from typing import Any

from crystal.model.capture import Turn
from crystal.transcript.claude_code.content import call_text, result_text
from crystal.transcript.context import Context, parse_completed
from crystal.transcript.line import fields_of, identifier, parse_line, parse_time, word
from crystal.transcript.parts import Part, turns_of_parts
from crystal.transcript.reader import Identity, LineFacts, TranscriptReader

_WORKSPACE = "workspace.yaml"
_NAME = re.compile(r"^name: (.+)$", re.MULTILINE)
_SAID = frozenset(("user.message", "assistant.message", "tool.execution_start", "tool.execution_complete"))
_COMPACTED = "session.compaction_complete"


class CopilotReader(TranscriptReader):
    """See ``TranscriptReader``."""

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

    def facts(self, line: bytes) -> LineFacts:
        """Return the facts of a line."""
        fields, context = parse_completed(line)
        kind, data = _event(fields)
        return LineFacts(
            uuid=_uuid(fields, kind, data),
            timestamp_ms=parse_time(fields.get("timestamp")),
            cwd=context.cwd,
            session_id=context.session or identifier(data.get("sessionId")),
            is_conversation=kind in _SAID,
            is_summary=kind == _COMPACTED,
        )

    def turns(self, lines: Iterable[tuple[int, bytes]], key: str, *, subagent: bool) -> Iterator[Turn]:
        """Yield the turns of the lines, in their order."""
        del key
        for offset, line in lines:
            fields, context = parse_completed(line)
            kind, data = _event(fields)
            uuid = _uuid(fields, kind, data)
            if uuid is None or kind not in (*_SAID, _COMPACTED):
                continue
            call = _call_uuid(data) if kind == "tool.execution_complete" else None
            shared = Turn(
                uuid, 0, "user", "", offset, parse_time(fields.get("timestamp")), call, context.cwd, context.branch,
                message_id=identifier(data.get("messageId")), model=word(data.get("model")) or context.model,
            )  # fmt: skip
            is_subagents = subagent or word(fields.get("agentId")) is not None
            yield from turns_of_parts(_parts(kind, data), shared, subagent=is_subagents)


READER = CopilotReader()


def _event(fields: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    kind = fields.get("type")
    return kind if isinstance(kind, str) else "", fields_of(fields.get("data"))


def _uuid(fields: dict[str, Any], kind: str, data: dict[str, Any]) -> str | None:
    """Return a line's id. A call and its result share the call's, so that the result finds its tool."""
    call = _call_uuid(data)
    if call is not None and kind == "tool.execution_start":
        return call
    if call is not None and kind == "tool.execution_complete":
        return f"{call}-result"
    ident = identifier(fields.get("id"))
    is_note = kind.startswith("hook.") or ident is None
    return None if is_note else f"copilot-cli:{ident}"


def _call_uuid(data: dict[str, Any]) -> str | None:
    ident = identifier(data.get("toolCallId"))
    return None if ident is None else f"copilot-cli:{ident}"


def _parts(kind: str, data: dict[str, Any]) -> Iterator[Part]:
    if kind == "user.message":
        yield Part("user", word(data.get("content")) or "")
    elif kind == "assistant.message":
        yield Part("thinking", word(data.get("reasoningText")) or "")
        yield Part("assistant", word(data.get("content")) or "")
    elif kind == "tool.execution_start":
        name = word(data.get("toolName"))
        yield Part("tool_call", call_text(name, data.get("arguments")), name)
    elif kind == "tool.execution_complete":
        result, error = data.get("result"), data.get("error")
        told = result if isinstance(result, dict) else error
        texts = (told.get(name) for name in ("content", "message")) if isinstance(told, dict) else ()
        yield Part("tool_result", next((text for one in texts if (text := result_text(one or ""))), ""))
    elif kind == _COMPACTED:
        yield Part("summary", word(data.get("summaryContent")) or "")
