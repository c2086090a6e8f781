"""Kiro's sessions in the database of older versions, which was Amazon Q's before, and how all of them show texts."""

from __future__ import annotations

import re
from collections.abc import Iterator

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
from crystal.transcript.messages import Record, SessionStamp, unnamed_record
from crystal.transcript.parts import Part, call, call_text, result_text, unique_id
from crystal.transcript.snapshot import Snapshot, SourceError
from crystal.transcript.tables import ids_in, object_of, tables_of

NAMES = "crystalTools"
"""The names of the tools by the ids of their calls, in a record of results."""

_TYPED = re.compile(r"--- USER MESSAGE BEGIN ---\n(.*?)--- USER MESSAGE END ---", re.DOTALL)
_TOLD = re.compile(
    r"\s*<(EnvironmentContext|steering-reminder|implicit-rules|kiro-ide-message)\b.*?</\1>\s*", re.DOTALL
)
_ID_LENGTH = 32
_REINDEX = "close the agent, then run: sqlite3 FILE REINDEX"
_CURRENT = "SELECT conversation_id, key, updated_at, octet_length(value) FROM conversations_v2"
_OLD = "SELECT key, value FROM conversations"


def typed_text(content: object) -> str:
    """Return what a person typed, a text or blocks, without what the program tells of the environment."""
    typed = (word(content) or "") if isinstance(content, str) else result_text(list_of(content))
    found = _TYPED.findall(typed)
    return "\n".join(found) if found else _TOLD.sub("", typed)


def shown_text(content: object) -> str:
    """Return a result as text: a text, or blocks of text and JSON, whose outputs come first."""
    texts = []
    for block in content if isinstance(content, list) else [content]:
        inner = block
        if isinstance(block, dict):
            inner = next((block[name] for name in ("data", "Text", "Json", "text") if name in block), block)
        output = [word(fields_of(inner).get(name)) for name in ("stdout", "stderr")]
        texts.append("\n".join(filter(None, output)) or (inner if isinstance(inner, str) else call_text(None, inner)))
    return "\n".join(filter(None, texts))


def conversations(source: Snapshot) -> Iterator[SessionStamp]:
    """Yield the sessions in a database."""
    for ident, _, stamp, _ in _rows(source):
        yield SessionStamp(ident, stamp)


def _rows(source: Snapshot) -> Iterator[tuple[str, object, str, bool]]:
    """Yield (session, folder, stamp, whether it is in the newer table)."""
    tables = tables_of(source)
    known = {"conversations", "conversations_v2"}
    if not tables & known:
        raise source.other_form("conversations_v2")
    if any(name.startswith("conversations") for name in tables - known):
        source.missing += sorted(known - tables)
    seen = set()
    if "conversations_v2" in tables:
        ids = ids_in(source, "conversations_v2", "conversation_id")
        for ident, folder, *stamp in source.rows(_CURRENT):
            if ident in ids:
                seen.add(ident)
                yield str(ident), folder, repr(stamp), True
    for folder, value in source.rows(_OLD) if "conversations" in tables else ():
        ident = identifier(object_of(value).get("conversation_id")) or digest(str(folder))[:_ID_LENGTH]
        if ident not in seen:
            yield ident, folder, digest(str(value)), False


def records(source: Snapshot, session: str) -> Iterator[Record]:
    """Yield the messages of a session, then its summary."""
    folder, is_current = next((row[1], row[3]) for row in _rows(source) if row[0] == session)
    sql = "SELECT value FROM conversations_v2 WHERE conversation_id = ?" if is_current else _OLD.replace("key, ", "")
    rows = list(source.rows(sql + ("" if is_current else " WHERE key IS ?"), (session if is_current else folder,)))
    if not rows:
        raise SourceError(f"{session} cannot be found by its id: {source.path} is damaged", hint=_REINDEX)
    for (value,) in rows:
        whole = source.object_of(value)
        source.missing += [] if "history" in whole or not whole else ["history in a conversation"]
        model = fields_of(whole.get("model_info")).get("model_id") or whole.get("model")
        context = Context().with_texts(cwd=folder, model=model)
        names: Fields = {}
        for number, entry in enumerate(list_of(whole.get("history"))):
            fields = (
                dict(zip(("user", "assistant", "request_metadata"), entry, strict=False))
                if isinstance(entry, list)
                else fields_of(entry)
            )
            started = fields_of(fields.get("request_metadata")).get("request_start_timestamp_ms")
            asked = parse_time(fields_of(fields.get("user")).get("timestamp"))
            context = context._replace(at=milliseconds(started) or asked or context.at)
            yield from _of_entry(fields, session, number, names, context)
        summary = next(iter(list_of(whole.get("latest_summary"))), None)
        if word(summary):
            yield unnamed_record(session, format_line({"latest_summary": summary}), context)


def _of_entry(fields: Fields, session: str, number: int, names: Fields, context: Context) -> Iterator[Record]:
    """Yield one record for what was asked and one for what was answered."""
    told = fields_of(next(iter(fields_of(fields.get("assistant")).values()), None))
    state = fields_of(fields_of(fields_of(fields.get("user")).get("env_context")).get("env_state"))
    metadata = fields_of(fields.get("request_metadata"))
    ident = unique_id(identifier(told.get("message_id")) or f"{number}", session)
    own = context.with_texts(cwd=state.get("current_working_directory"), model=metadata.get("model_id"))
    asked = {name: value for name, value in fields.items() if name not in ("assistant", "request_metadata")}
    results = [fields_of(one).get("tool_use_id") for one in list_of(_results_of(fields_of(fields.get("user"))))]
    used = {one: names[one] for one in results if isinstance(one, str) and one in names}
    yield Record(f"{ident}-user", format_line({**asked, NAMES: used} if used else asked), own)
    for use in map(fields_of, list_of(told.get("tool_uses"))):
        if isinstance(use.get("id"), str):
            names[use["id"]] = use.get("name")
    answered = {name: fields[name] for name in ("assistant", "request_metadata") if name in fields}
    yield Record(ident, format_line(answered), own)


def parts(fields: Fields) -> Iterator[Part]:
    """Yield the parts of a record."""
    yield from _asked(fields_of(fields.get("user")), fields_of(fields.get(NAMES)))
    yield from _answered(fields_of(fields.get("assistant")))
    yield Part("summary", word(fields.get("latest_summary")) or "")


def _results_of(user: Fields) -> object:
    content = fields_of(user.get("content"))
    return fields_of(content.get("ToolUseResults") or content.get("CancelledToolUses")).get("tool_use_results")


def _asked(user: Fields, names: Fields) -> Iterator[Part]:
    content = fields_of(user.get("content"))
    for result in list_of(_results_of(user)):
        name = word(names.get(str(fields_of(result).get("tool_use_id"))))
        yield Part("tool_result", shown_text(fields_of(result).get("content")), name)
    prompt = fields_of(content.get("Prompt") or content.get("CancelledToolUses")).get("prompt")
    yield Part("user", typed_text(prompt))


def _answered(assistant: Fields) -> Iterator[Part]:
    for told in map(fields_of, assistant.values()):
        yield Part("assistant", word(told.get("content")) or "")
        yield from (call(one.get("name"), one.get("args")) for one in map(fields_of, list_of(told.get("tool_uses"))))
