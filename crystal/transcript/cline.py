"""The reader of Cline's conversations: one JSON document each, of the command line or of the editor's extension.

Source: files of version 3.0.65 and samples of older ones; tests/data/agents/cline/README.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePath

from crystal.transcript.damaged import MessageList
from crystal.transcript.line import (
    Fields,
    fields_of,
    format_line,
    identifier,
    milliseconds,
    parse_line,
    parse_time,
    word,
)
from crystal.transcript.line_context import Context
from crystal.transcript.messages import Record, SessionStamp, SnapshotReader
from crystal.transcript.parts import Part, parts_of_blocks
from crystal.transcript.snapshot import Snapshot

_TASK_FILE = "api_conversation_history.json"
_LISTED = MessageList("messages", ("id", "role", "content", "ts"))
_WRAPPED = re.compile(r"\s*<(user_input|task|feedback|user_message|answer)\b[^>]*>\n?(.*?)\n?</\1>\s*", re.DOTALL)
_DETAILS = re.compile(r"<environment_details>.*?</environment_details>", re.DOTALL)


class ClineReader(SnapshotReader):
    """See ``SnapshotReader``. Roo Code is a fork of the extension and writes the same."""

    silent_kinds = ("user", "assistant")

    def __init__(self, folder_file: str) -> None:
        self._folder_file = folder_file

    def side_files(self, path: PurePath) -> tuple[PurePath, ...]:
        """Return the files that name the folder, the model and the title."""
        if path.name == _TASK_FILE:
            return (path.with_name(self._folder_file), path.parents[2] / "state" / self._folder_file)
        return (
            path.with_name(path.name.replace(".messages.json", ".json")),
            path.with_name(f"{path.parent.name}.json"),
        )

    def conversations(self, source: Snapshot) -> Iterable[SessionStamp]:
        """Return the conversation of a file; a subagent's belongs to the session that started it."""
        own, session, _ = _document(source)
        return [SessionStamp(session, source.stamp, own if own != session else None)]

    def messages(self, source: Snapshot, conversation: SessionStamp) -> Iterator[Record]:
        """Yield the messages. The extension's have no ids: time or place, and role, identify them."""
        own, _, messages = _document(source)
        context = _context_of(conversation.session, source.sides)
        for number, message in enumerate(messages):
            if isinstance(message, dict):
                named = fields_of(message.get("modelInfo"))
                model = named.get("id") or named.get("modelId")
                place = message.get("ts") or number
                ident = identifier(message.get("id")) or f"{place}-{message.get('role')}"
                yield Record(f"{own}-{ident}", format_line(message), context.with_texts(model=model))

    def parts(self, fields: Fields) -> Iterator[Part]:
        """Return the parts of a record."""
        role = fields.get("role")
        if role not in ("user", "assistant"):
            return
        if fields_of(fields.get("metadata")).get("displayOnly") is True or fields.get("isTruncationMarker") is True:
            return  # an error of the program, or its note that messages are not sent any more
        is_summary = fields.get("isSummary") is True
        for part in parts_of_blocks(_content(fields), "user" if role == "user" else "assistant"):
            if not is_summary:
                yield part._replace(text=_typed(part.text)) if part.role == "user" else part
            elif part.role == role:  # Roo Code repeats the last calls after a summary
                yield part._replace(role="summary")

    def time_of(self, fields: Fields, context: Context) -> int | None:
        """Return when a record was written."""
        return milliseconds(fields.get("ts")) or context.at


READER = ClineReader("taskHistory.json")


def _document(source: Snapshot) -> tuple[str, str, list[object]]:
    """Return the conversation of a file, the session that it belongs to, and its messages."""
    if source.path.name == _TASK_FILE:
        whole: Fields = {"messages": source.document()}
        session: object = source.path.parent.name
    else:
        whole = fields_of(source.document(_LISTED))
        session = whole.get("sessionId") or (source.damaged and source.path.parent.name)
    origin = fields_of(whole.get("origin"))
    parent = identifier(origin.get("parentThreadId")) if origin.get("mode") == "subagent" else None
    messages, ident = whole.get("messages"), identifier(session)
    if not isinstance(messages, list) or ident is None:
        raise source.other_form("messages")
    return ident, parent or ident, messages


def _content(fields: Fields) -> object:
    """Return the content of a message; a thought of Roo Code may be a message of its own."""
    return [fields] if fields.get("type") == "reasoning" else fields.get("content")


def _context_of(session: str, sides: Mapping[PurePath, bytes]) -> Context:
    """Return what the files beside a conversation tell of it; a list of all tasks is asked for this one."""
    context = Context()
    for content in sides.values():
        whole = parse_line(b'{"tasks":' + content + b"}") or {}
        tasks = whole.get("tasks")
        for task in tasks if isinstance(tasks, list) else [tasks]:
            if isinstance(task, dict) and session in (task.get("session_id"), task.get("id")):
                folder = task.get("cwd") or task.get("cwdOnTaskInitialization") or task.get("workspace")
                metadata = task.get("metadata")
                title = metadata.get("title") if isinstance(metadata, dict) else task.get("task")
                at = task.get("ts") or parse_time(task.get("started_at"))
                model = task.get("model") or task.get("modelId")
                context = context.with_texts(cwd=folder, model=model, title=title)
                context = context._replace(at=at if isinstance(at, int) else context.at)
    return context


def _typed(text: str) -> str:
    """Return what a person typed: without what the program says of the environment, and without its tags."""
    text = _DETAILS.sub("", text)
    wrapped = _WRAPPED.fullmatch(text)
    return word(wrapped[2] if wrapped else text) or ""
