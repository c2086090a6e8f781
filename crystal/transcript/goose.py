"""The reader of Goose's sessions: a database, or a file for each session of older versions.

The database takes over the files, and a compaction writes all messages of a session again, at times with other ids and
always with other row numbers. So a message is identified by its time, its role and its content. Each database counts
the sessions of a day, so a session is identified by that number and by when it began.

Source: the program itself (1.50, schema 16), its public source up to schema 9, and samples.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from crystal.model.capture import ID_END, Role
from crystal.transcript.line import Fields, digest, fields_of, format_line, identifier, list_of, word
from crystal.transcript.line_context import Context
from crystal.transcript.messages import Record, SessionStamp, SnapshotReader, unique_name
from crystal.transcript.parts import Part, block_text, call
from crystal.transcript.snapshot import Snapshot
from crystal.transcript.tables import check_tables, moment_of, object_of, read_before, rows_of, without_row

_CONTINUED = "The previous message contains a summary"
_COPIED = "crystalCopied"
_COUNTED = re.compile(r"\d{8}_\d{1,5}")
_FOR_MODEL = "turnContext"
"""Marks what the program says to the model at each prompt: the time, the folder."""
_TOOL = "crystalTool"
_REPEATED = "crystalRepeated"
"""Marks a thought that each of several calls at once has before it."""
_READ = {
    "sessions": (
        "name description session_type working_dir created_at updated_at model_config_json",
        "id user_set_name extension_data provider_name parent_session_id",
    ),
    "messages": ("metadata_json", "id message_id session_id role content_json created_timestamp timestamp tokens"),
}
_THOUGHTS = ("thinking", "reasoning")
_UNTITLED = frozenset(("CLI Session", "New Chat", "New session"))


class GooseReader(SnapshotReader):
    """See ``SnapshotReader``."""

    silent_kinds = ("user", "assistant")

    def conversations(self, source: Snapshot) -> Iterable[SessionStamp]:
        """Return the sessions of a database, or that of a file. A subagent's session is one's own."""
        if not _is_database(source):
            _, messages = _document(source)
            if not messages:
                raise source.other_form("messages")
            yield SessionStamp(source.path.stem, source.stamp)
            return
        needed = {"messages": "id session_id role content_json created_timestamp", "sessions": "id"}
        check_tables(source, needed, read=_READ)
        counts = "SELECT session_id, count(*), max(id) FROM messages GROUP BY session_id"
        told = {session: rest for session, *rest in source.rows(counts)}
        found = sorted(rows_of(source, "sessions"), key=lambda row: str(row.get("created_at")))
        rows = {ident: row for row in found if (ident := identifier(row.get("id"))) is not None}
        lost, before = without_row(source, ["messages"], rows), read_before(source)
        began = dict(source.rows("SELECT session_id, min(created_timestamp) FROM messages GROUP BY session_id"))
        names = {ident: session for ident, (session, _) in before.items()}
        names |= {ident: _name(ident, {"created_at": began[ident]}) for ident in lost if ident not in before}
        names |= {ident: _name(ident, row) for ident, row in rows.items()}
        for ident, row in rows.items():
            stamp = repr((told.get(ident), row.get("updated_at"), row.get("name"), row.get("description")))
            name, parent = names[ident], word(row.get("parent_session_id")) or ident
            is_subagent = row.get("session_type") == "sub_agent"
            of_parent = names.get(parent, parent)
            yield SessionStamp(of_parent, stamp, name) if is_subagent else SessionStamp(name, stamp)
        for ident, (_, subagent) in lost.items():
            yield SessionStamp(names[ident], repr(told[ident]), subagent)

    def messages(self, source: Snapshot, conversation: SessionStamp) -> Iterator[Record]:
        """Yield the messages of a session."""
        session = (conversation.subagent or conversation.session).partition(ID_END)[0]
        if _is_database(source):
            row = next(rows_of(source, "sessions", "WHERE id = ?", (session,)), {})
            stored = rows_of(source, "messages", "WHERE session_id = ? ORDER BY id", (session,))
            messages = [_message(source, told) for told in stored]
        else:
            row, messages = _document(source)
        model = object_of(row.get("model_config_json")).get("model_name")
        title = word(row.get("name")) or word(row.get("description"))
        shown = None if title in _UNTITLED else title
        context = Context().with_texts(cwd=row.get("working_dir"), model=model, title=shown)
        for name, message in _named(messages):
            yield Record(name, format_line(message), context)

    def parts(self, fields: Fields) -> Iterator[Part]:
        """Yield the parts of a message. What the user does not see is a summary, or a hint of the program."""
        metadata = fields_of(fields.get("metadata"))
        is_hidden, is_for_model = metadata.get("userVisible") is False, _FOR_MODEL in metadata
        own: Role = "summary" if is_hidden else "user" if fields.get("role") == "user" else "assistant"
        for item in map(fields_of, list_of(fields.get("content"))):
            kind, text = item.get("type"), block_text(item)
            if "toolCall" in item:
                yield call(*_call(item))
            elif "toolResult" in item:
                yield Part("tool_result", _result(fields_of(item["toolResult"])), word(item.get(_TOOL)))
            elif kind in _THOUGHTS and _REPEATED not in item:
                yield Part("thinking", word(item.get("thinking")) or word(item.get("text")) or "")
            elif kind not in _THOUGHTS:
                is_hint = is_for_model or _COPIED in fields or (is_hidden and _CONTINUED in text)
                yield Part(own, "" if is_hint else text)

    def time_of(self, fields: Fields, context: Context) -> int | None:  # noqa: ARG002 - the interface's
        """Return when a record was written."""
        return moment_of(fields.get("created"))


READER = GooseReader()


def _is_database(source: Snapshot) -> bool:
    return source.path.suffix == ".db"


def _name(ident: str, row: Fields) -> str:
    """Return the id of a session that no session of another database has."""
    is_counted = "created_at" in row and _COUNTED.fullmatch(ident)
    return f"{ident}{ID_END}{digest(row['created_at'])[:8]}" if is_counted else ident


def _document(source: Snapshot) -> tuple[Fields, list[Fields]]:
    """Return what the first line of a file says of the session, and the messages."""
    every = source.objects()
    first = every[0] if every and "role" not in every[0] else {}
    return first, [_said(one) for one in every if "role" in one and isinstance(one.get("content"), list)]


def _message(source: Snapshot, row: Fields) -> Fields:
    """Return a row as the message that it holds."""
    content = object_of(f'{{"content":{row.get("content_json")}}}').get("content")
    if not isinstance(content, list):
        source.object_of(row.get("content_json"))
    metadata = source.object_of(row.get("metadata_json") or "")
    said = {"role": row.get("role"), "created": row.get("created_timestamp"), "content": content, "metadata": metadata}
    return _said(said)


def _said(message: Fields) -> Fields:
    """Return a message without what a compaction changes of it: its id, and whether the model still sees it."""
    metadata = fields_of(message.get("metadata"))
    told = {name: value for name, value in (("userVisible", False), (_FOR_MODEL, True)) if metadata.get(name) is value}
    shown = {"metadata": told} if told else {}
    return {**{name: message.get(name) for name in ("role", "created", "content")}, **shown}


def _named(messages: list[Fields]) -> Iterator[tuple[str, Fields]]:
    """Yield each message with its name. A result gets the name of its tool, a thought that is repeated a mark."""
    tools: dict[str, str | None] = {}
    before: list[Fields] = []
    used: Counter[str] = Counter()
    for message, is_copy in zip(messages, _copies(messages), strict=True):
        items = [fields_of(item) for item in list_of(message.get("content"))]
        tools.update({str(item.get("id")): _call(item)[0] for item in items if "toolCall" in item})
        thoughts = [item for item in items if item.get("type") in _THOUGHTS]
        named = [{**item, _TOOL: tools.get(str(item.get("id")))} if "toolResult" in item else item for item in items]
        named = [{**item, _REPEATED: True} if item in thoughts and item in before else item for item in named]
        before = before if all("toolResult" in item for item in items) else thoughts
        told = [(item.get("type"), item.get("text") or item.get("thinking") or item.get("id")) for item in items]
        name = f"{(moment_of(message['created']) or 0) // 1000}-{message['role']}-{digest(told)[:16]}"
        copied = {_COPIED: True} if is_copy else {}
        yield unique_name(name, used), {**message, "content": named, **copied}


def _copies(messages: list[Fields]) -> Iterator[bool]:
    """Yield for each message whether it is the last prompt, which a compaction repeats after its summary."""
    last, is_after_summary = "", False
    for message in messages:
        if _FOR_MODEL in fields_of(message.get("metadata")):
            yield False
            continue
        said = "\n".join(block_text(item) for item in list_of(message.get("content")))
        is_prompt = message["role"] == "user" and bool(said) and "metadata" not in message
        yield is_prompt and is_after_summary and said == last
        if is_prompt:
            last = said
        is_after_summary = "metadata" in message or (is_after_summary and not is_prompt)


def _call(item: Fields) -> tuple[str | None, object]:
    """Return the name and the arguments of a call."""
    value = fields_of(fields_of(item.get("toolCall")).get("value"))
    return word(value.get("name")), value.get("arguments")


def _result(told: Fields) -> str:
    """Return what a tool gave. A text for the model and the same for the user come once."""
    value = told.get("value")
    content = value.get("content") if isinstance(value, dict) else value
    texts = dict[str, None]()
    for item in map(fields_of, list_of(content)):
        texts[block_text(item) or word(fields_of(item.get("resource")).get("text")) or ""] = None
    return "\n".join(text for text in texts if text) or word(told.get("error")) or ""
