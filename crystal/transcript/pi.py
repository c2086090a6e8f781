"""The reader of Pi's sessions: a tree of entries, one in a line.

Source: files of versions 0.73 to 1.6, and heads of older ones; tests/data/agents/pi/README.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

from crystal.model.capture import Turn
from crystal.transcript.line import Fields, fields_of, identifier, parse_line, parse_time, word
from crystal.transcript.line_context import Context
from crystal.transcript.messages import MessageReader
from crystal.transcript.parts import Part, block_text, call, call_and_result, result_text
from crystal.transcript.reader import Identity

SAID = ("user", "assistant", "toolResult", "bashExecution")
"""Roles of messages that somebody said or did; the system's is not one."""

SUMMARIES = ("compaction", "branch_summary")

ENTRIES = (
    "session", "message", *SUMMARIES, "model_change", "thinking_level_change", "custom", "custom_message", "label",
    "session_info", "context_edit", "usage",
)  # fmt: skip
"""Kinds of entries."""


class EntryReader(MessageReader):
    """Reads entries in Pi's form."""

    silent_kinds: tuple[str, ...] = ENTRIES
    roles = (*SAID, "system", "custom", "hookMessage", "branchSummary", "compactionSummary")

    def turn_of(self, fields: Fields, context: Context) -> Turn:
        """Return what the turns of an entry share."""
        model = word(message_of(fields).get("model")) or context.model
        return super().turn_of(fields, context)._replace(model=model)

    def parts(self, fields: Fields) -> Iterator[Part]:
        """Yield the parts of an entry."""
        if word(fields.get("type")) in SUMMARIES:
            yield Part("summary", word(fields.get("summary")) or "")
            return
        message = message_of(fields)
        role, content = word(message.get("role")), message.get("content")
        if role == "toolResult":
            yield Part("tool_result", result_text(content or ""), word(message.get("toolName")))
        elif role == "bashExecution":
            output = result_text(message.get("output") or "")
            yield from call_and_result("bash", {"command": message.get("command")}, output)
        elif role in SAID:
            blocks = content if isinstance(content, list) else [content]
            for block in blocks:
                yield _block(block, "user" if role == "user" else "assistant")


class PiReader(EntryReader):
    """See ``MessageReader``."""

    context_marks = (b'"session"', b'"model_change"', b'"session_info"')

    def identify(self, path: PurePath) -> Identity:
        """Return what a file belongs to: ``<time>_<session>.jsonl``."""
        return Identity(path.stem, path.stem.rpartition("_")[2])

    def advance(self, context: Context, line: bytes) -> Context:
        """Return the context after a line that tells of the folder, the model or the title."""
        fields = parse_line(line) or {}
        kind = word(fields.get("type"))
        if kind not in ("session", "model_change", "session_info"):
            return context
        model = fields.get("modelId") or fields.get("model")
        title = fields.get("name") if kind == "session_info" else fields.get("title")
        return context.with_texts(cwd=fields.get("cwd"), model=model, title=title)

    def uuid_of(self, fields: Fields, context: Context) -> str | None:
        """Return the id of an entry."""
        return entry_uuid(fields, "pi") or context.id

    def session_of(self, fields: Fields) -> str | None:
        """Return the session, which the first entry names."""
        return identifier(fields.get("id")) if fields.get("type") == "session" else None


READER = PiReader()


def message_of(fields: Fields) -> Fields:
    """Return the message of an entry, empty if it has none."""
    return fields_of(fields.get("message")) if fields.get("type") == "message" else {}


def entry_uuid(fields: Fields, harness: str) -> str | None:
    """Return the id of an entry, the same in forks. Its own id is short, so the time is part of it.

    Entries of the first versions have none: their time, role and call identify them.
    """
    message, at = message_of(fields), parse_time(fields.get("timestamp"))
    ident = identifier(fields.get("id"))
    is_entry = bool(message) or word(fields.get("type")) in SUMMARIES
    if at is None or not is_entry:
        return None
    names = [ident] if ident else [identifier(message.get("role")), identifier(message.get("toolCallId"))]
    return f"{harness}:{'-'.join(name for name in names if name)}-{at}"


def _block(block: object, role: str) -> Part:
    kind = block.get("type") if isinstance(block, dict) else None
    if isinstance(block, dict) and kind == "thinking":
        return Part("thinking", word(block.get("thinking")) or "")
    if isinstance(block, dict) and kind == "toolCall":
        return call(block.get("name"), block.get("arguments"))
    return Part("user" if role == "user" else "assistant", block_text(block))
