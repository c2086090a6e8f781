"""The reader of Kiro's sessions: the command line's, the editor's, and those in the database of older versions.

A file holds JSON lines and is read as a whole: pieces of a message that share an id become one, and most lines have no
time. The database (Amazon Q's before Kiro) repeats some of the sessions.

Source: tests of agentsview and others that read real files; tests/data/agents/kiro/README.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePath
from typing import Any

from crystal.transcript import kiro_database
from crystal.transcript.editor import path_of_uri
from crystal.transcript.kiro_database import NAMES, shown_text, typed_text
from crystal.transcript.line import (
    Fields,
    digest,
    fields_of,
    format_line,
    identifier,
    list_of,
    milliseconds,
    parse_time,
    word,
)
from crystal.transcript.line_context import Context
from crystal.transcript.messages import Record, SessionStamp, SnapshotReader
from crystal.transcript.parts import Part, call, unique_id
from crystal.transcript.snapshot import Snapshot
from crystal.transcript.tables import object_of

_EVENTS, _SESSION = "messages.jsonl", "session.json"
_SAID = ("Prompt", "AssistantMessage", "ToolResults")
_EVENTS_SAID = ("user", "assistant", "tool_call", "tool_result", "sub_agent_start", "sub_agent_complete")
_CWD = re.compile(rb'"cwd"\s*:\s*("(?:[^"\\]|\\.)*")')


class KiroReader(SnapshotReader):
    """See ``SnapshotReader``."""

    silent_kinds = (*_SAID, *_EVENTS_SAID, "turn_start", "turn_end", "tombstone", "ResetTo")

    def side_files(self, path: PurePath) -> tuple[PurePath, ...]:
        """Return the file that names the folder, the model and the title."""
        return (path.with_name(_SESSION) if path.name == _EVENTS else path.with_suffix(".json"),)

    def conversations(self, source: Snapshot) -> Iterable[SessionStamp]:
        """Return the session of a file, or those in a database."""
        return [_session(source)] if source.path.suffix == ".jsonl" else kiro_database.conversations(source)

    def messages(self, source: Snapshot, conversation: SessionStamp) -> Iterator[Record]:
        """Return the messages of a session."""
        if source.path.suffix != ".jsonl":
            return kiro_database.records(source, conversation.session)
        return _of_file(source, conversation.subagent or conversation.session, _context_of(_beside(source)))

    def kind(self, fields: Mapping[str, Any]) -> str | None:
        """Return the kind of a record, or of the event in it."""
        return super().kind(fields_of(fields.get("payload")) or fields)

    def parts(self, fields: Fields) -> Iterator[Part]:
        """Return the parts of a record."""
        if "payload" in fields:
            yield from _event(fields_of(fields["payload"]), fields_of(fields.get(NAMES)))
        elif "kind" in fields:
            yield from _message(fields.get("kind"), fields_of(fields.get("data")), fields_of(fields.get(NAMES)))
        else:
            yield from kiro_database.parts(fields)

    def time_of(self, fields: Fields, context: Context) -> int | None:
        """Return when a record was written."""
        return _time_of(fields) or context.at


READER = KiroReader()


def _time_of(fields: Fields) -> int | None:
    """Return when a record was written: only a prompt of the command line tells it, in seconds, and every event."""
    seconds = fields_of(fields_of(fields.get("data")).get("meta")).get("timestamp")
    ended = fields_of(fields.get("request_metadata")).get("stream_end_timestamp_ms")
    said = parse_time(fields.get("timestamp")) or parse_time(fields_of(fields.get("user")).get("timestamp"))
    return milliseconds(seconds * 1000 if isinstance(seconds, int | float) else None) or said or milliseconds(ended)


# -- files -----------------------------------------------------------------------------------------------------------


def _beside(source: Snapshot) -> Fields:
    """Return what the file beside a session says; of one that is very long, the folder."""
    for content in source.sides.values():
        found = _CWD.search(content)
        return object_of(content) or (object_of(b'{"cwd":' + found[1] + b"}") if found else {})
    return {}


def _session(source: Snapshot) -> SessionStamp:
    if not any(fields.get("kind") in _SAID or "payload" in fields for fields in source.objects()):
        raise source.other_form("messages")
    beside = _beside(source)
    name = source.path.parent.name if source.path.name == _EVENTS else source.path.stem
    ident = identifier(beside.get("session_id")) or identifier(beside.get("id")) or name
    parent = identifier(beside.get("parent_session_id")) or identifier(beside.get("parentSessionId"))
    reason = str(beside.get("session_created_reason") or beside.get("createdReason"))
    if parent is not None and "sub" in reason.lower():
        return SessionStamp(parent, source.stamp, ident)
    return SessionStamp(ident, source.stamp)


def _context_of(beside: Fields) -> Context:
    state = fields_of(fields_of(beside.get("session_state")).get("rts_model_state"))
    folders = [*list_of(beside.get("workspacePaths")), *list_of(beside.get("rootPaths"))]
    return Context(at=parse_time(beside.get("created_at")) or parse_time(beside.get("createdAt"))).with_texts(
        cwd=word(beside.get("cwd")) or next((path for one in folders if (path := path_of_uri(one))), None),
        model=fields_of(state.get("model_info")).get("model_id") or beside.get("modelId"),
        title=beside.get("title"),
    )


def _of_file(source: Snapshot, session: str, context: Context) -> Iterator[Record]:
    names: Fields = {}
    for ident, fields in _merged(source.objects()):
        names.update(_names_in(fields))
        context = context._replace(at=_time_of(fields) or context.at)
        used = {one: names[one] for one in _results_in(fields) if one in names}
        line = format_line({**fields, NAMES: used} if used else fields)
        yield Record(unique_id(ident, session), line, context)


def _merged(objects: list[Fields]) -> Iterator[tuple[str, Fields]]:
    """Yield the messages, the pieces of each as one. What has no id is known by its content."""
    merged: dict[str, Fields] = {}
    for fields in objects:
        inner = fields_of(fields.get("data"))
        ident = identifier(inner.get("message_id")) or identifier(fields.get("id"))
        key = f"{ident}-{fields.get('kind')}" if "kind" in fields else ident
        name = key if ident else digest(fields)
        merged[str(name)] = _joined(merged[str(name)], fields) if name in merged else fields
    yield from merged.items()


def _joined(known: Fields, piece: Fields) -> Fields:
    """Return a message with a further piece of it: its new blocks, or a text that goes on."""
    if "payload" in known:
        return piece
    before = list_of(fields_of(known.get("data")).get("content"))
    added = [block for block in list_of(fields_of(piece.get("data")).get("content")) if block not in before]
    for block in added:
        last = fields_of(before[-1]) if before else {}
        text, longer = last.get("data"), fields_of(block).get("data")
        is_text = last.get("kind") == fields_of(block).get("kind") == "text"
        if is_text and isinstance(text, str) and isinstance(longer, str):
            before = [*before[:-1], {**last, "data": longer if longer.startswith(text) else text + longer}]
        else:
            before = [*before, block]
    return {**known, "data": {**fields_of(known.get("data")), "content": before}}


def _blocks(fields: Fields) -> Iterator[tuple[object, Any]]:
    """Yield the kinds of a message's blocks, and what is in them."""
    for block in list_of(fields_of(fields.get("data")).get("content")):
        yield fields_of(block).get("kind"), fields_of(block).get("data")


def _names_in(fields: Fields) -> Fields:
    """Return the names of the tools that a record calls, by the calls' ids."""
    event = fields_of(fields.get("payload"))
    calls = [fields_of(data) for kind, data in _blocks(fields) if kind == "toolUse"]
    named = [(one.get("toolUseId"), one.get("name")) for one in calls]
    named.append((event.get("toolCallId"), event.get("toolName")))
    return {ident: name for ident, name in named if isinstance(ident, str) and word(name)}


def _results_in(fields: Fields) -> list[str]:
    event = fields_of(fields.get("payload"))
    ids = [fields_of(data).get("toolUseId") for kind, data in _blocks(fields) if kind == "toolResult"]
    ids += [event.get("toolCallId")] if event.get("type") == "tool_result" else []
    return [ident for ident in ids if isinstance(ident, str)]


def _message(kind: object, data: Fields, names: Fields) -> Iterator[Part]:
    """Yield the parts of a message of the command line."""
    for block in list_of(data.get("content")):
        what, inner = fields_of(block).get("kind"), fields_of(block).get("data")
        if what == "text" and kind == "Prompt":
            yield Part("user", typed_text(inner))
        elif what == "text" and kind in _SAID:
            yield Part("assistant" if kind == "AssistantMessage" else "tool_result", word(inner) or "")
        elif what in ("thinking", "reasoning"):
            yield Part("thinking", word(inner) or word(fields_of(inner).get("text")) or "")
        elif what == "toolUse":
            yield call(fields_of(inner).get("name"), fields_of(inner).get("input"))
        elif what == "toolResult":
            name = word(names.get(str(fields_of(inner).get("toolUseId"))))
            yield Part("tool_result", shown_text(fields_of(inner).get("content")), name)
    if kind not in _SAID:
        yield Part("summary", word(data.get("summary")) or "")


def _event(event: Fields, names: Fields) -> Iterator[Part]:
    """Yield the parts of an event of the editor."""
    kind, content, operation = event.get("type"), event.get("content"), event.get("operationType")
    if kind == "user":
        yield Part("user", typed_text(content))
    elif kind == "assistant" and operation == "Reasoning":
        yield Part("thinking", shown_text(content))
    elif kind == "assistant":
        yield Part("summary" if operation == "Summary" else "assistant", shown_text(content))
    elif kind == "tool_call":
        yield call(event.get("toolName"), event.get("args"))
    elif kind == "tool_result":
        yield Part("tool_result", shown_text(content), word(names.get(str(event.get("toolCallId")))))
    elif kind == "sub_agent_start":
        yield call(event.get("subAgentName"), {"prompt": event.get("prompt")})
    elif kind == "sub_agent_complete":
        yield Part("tool_result", shown_text(event.get("response")), word(event.get("subAgentName")))
