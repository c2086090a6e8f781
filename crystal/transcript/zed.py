"""The reader of Zed's threads: one JSON document each in a database, compressed, of several generations.

A thread is written as a whole at each save, at last in the newest form, where what a person said gets another id. So a
prompt is identified by its text, and an answer by its place after the prompt. If the same prompt is sent again in place
of its first answer, the new answer replaces that one.

Source: the program's public source up to version 0.3.0 of the format, and samples; tests/data/agents/zed/README.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from crystal.transcript.line import Fields, digest, fields_of, format_line, list_of, word
from crystal.transcript.line_context import Context
from crystal.transcript.messages import Record, SessionStamp, SnapshotReader, unique_name
from crystal.transcript.parts import Part, call_and_result
from crystal.transcript.snapshot import Snapshot, SourceError
from crystal.transcript.tables import check_tables, columns_of, first_ancestor, ids_in, moment_of, rows_of, unpacked

_SUMMARY = "crystalSummary"
_READ = "summary updated_at parent_id folder_paths folder_paths_order created_at"


class ZedReader(SnapshotReader):
    """See ``SnapshotReader``."""

    silent_kinds = ("user", "assistant", "User", "Agent", "Resume", "title", _SUMMARY)

    def kind(self, fields: Mapping[str, Any]) -> str | None:
        """Return the kind of a record: in the newest form its only field."""
        return super().kind(fields) or (next(iter(fields)) if len(fields) == 1 else None)

    def conversations(self, source: Snapshot) -> Iterable[SessionStamp]:
        """Return the threads. A subagent's belongs to the one that started it."""
        ids = ids_in(source, "threads", "id")
        rows = {row["id"]: row for row in _rows(source) if row["id"] in ids}
        lengths = dict(source.rows("SELECT id, length(data) FROM threads"))
        parents = {ident: row.get("parent_id") for ident, row in rows.items()}
        for ident, row in sorted(rows.items(), key=lambda one: (str(one[1].get("created_at")), one[0])):
            first = first_ancestor(ident, parents)
            yield SessionStamp(first, repr((lengths.get(ident), row)), None if first == ident else ident)

    def messages(self, source: Snapshot, conversation: SessionStamp) -> Iterator[Record]:
        """Yield the messages of a thread; then its summary."""
        ident = conversation.subagent or conversation.session
        row = next(rows_of(source, "threads", "WHERE id = ?", (ident,)), {})
        thread = _thread(source, row)
        told = Context(at=moment_of(row.get("updated_at")) or moment_of(thread.get("updated_at")))
        title = word(row.get("summary")) or word(thread.get("title")) or word(thread.get("summary"))
        context = _with_place(told, row, thread).with_texts(title=title)
        begun = moment_of(row.get("created_at")) or context.at
        for number, (name, message) in enumerate(_named(thread, ident)):
            yield Record(name, format_line(message), context if number else context._replace(at=begun))
        state = thread.get("detailed_summary_state")
        summary = word(thread.get("detailed_summary")) or word(_inner(state, "Generated").get("text"))
        if summary:
            yield Record(f"{ident}-summary", format_line({_SUMMARY: summary}), context)

    def parts(self, fields: Fields) -> Iterator[Part]:
        """Yield the parts of a record."""
        if _SUMMARY in fields:
            yield Part("summary", word(fields[_SUMMARY]) or "")
        elif "User" in fields:
            content = list_of(_inner(fields, "User").get("content"))
            yield Part("user", "".join(_typed(one) for one in content))
        elif "Agent" in fields:
            agent = _inner(fields, "Agent")
            results = {**_inner(agent, "tool_results")}
            for one in list_of(agent.get("content")):
                yield from _said(one, results)
            yield from _results_alone(results.values())
        elif fields.get("role") in ("user", "assistant"):
            yield from _legacy_parts(fields)


READER = ZedReader()


def _rows(source: Snapshot) -> Iterator[Fields]:
    """Yield the rows of the threads without their contents."""
    check_tables(source, {"threads": "id data"}, read={"threads": (_READ, "id data data_type")})
    names = [name for name in columns_of(source, "threads") if name != "data"]
    for row in source.rows(f"SELECT {', '.join(names)} FROM threads"):
        yield dict(zip(names, row, strict=True))


def _thread(source: Snapshot, row: Fields) -> Fields:
    data = row.get("data")
    try:
        thread = source.object_of(unpacked(data) if isinstance(data, bytes) else data)
    except SourceError as error:
        raise SourceError(f"thread {row['id']}: {error.message}", hint=error.hint) from error
    source.missing += [] if "messages" in thread or not thread else ["messages in a thread"]
    return thread


def _with_place(context: Context, row: Fields, thread: Fields) -> Context:
    """Return the context with the thread's folder, branch and model."""
    trees = list_of(_inner(thread, "initial_project_snapshot").get("worktree_snapshots"))
    tree = next((tree for tree in trees if isinstance(tree, dict)), {})
    folders = str(row.get("folder_paths") or "").split("\n")
    order = str(row.get("folder_paths_order") or "").split(",")
    first = order.index("0") if "0" in order and len(order) == len(folders) else 0
    return context.with_texts(
        cwd=folders[first] or tree.get("worktree_path"),
        branch=_inner(tree, "git_state").get("current_branch"),
        model=_inner(thread, "model").get("model"),
    )


def _named(thread: Fields, ident: str) -> Iterator[tuple[str, object]]:
    """Yield each message with its name: of a prompt by its text, of what follows by its place after it."""
    used: Counter[str] = Counter()
    prompt, place = ident, 0
    for message in _messages(thread):
        if "User" in message or message.get("role") == "user":
            said = "".join(part.text for part in READER.parts(message))
            prompt, place = unique_name(f"{ident}-{digest(said)[:16]}", used), 0
            yield prompt, message
        else:
            place += 1
            yield f"{prompt}/{place}", message


def _messages(thread: Fields) -> list[Fields]:
    """Return the messages. In the oldest form results are the user's: they go to the calls before them."""
    given = thread.get("messages")
    messages: list[Fields] = []
    for one in list_of(given):
        message = one if isinstance(one, dict) else {"kind": one}
        results = list_of(message.get("tool_results"))
        if message.get("role") == "user" and results and messages:
            messages[-1] = {**messages[-1], "tool_results": list_of(messages[-1].get("tool_results")) + results}
        elif message.get("role") != "system":
            messages.append(message)
    return messages


def _inner(value: object, name: str) -> Fields:
    return fields_of(fields_of(value).get(name))


def _typed(content: object) -> str:
    """Return a text, or what a person named with an @."""
    if not isinstance(content, dict):
        return ""
    uri = fields_of(_inner(content, "Mention").get("uri"))
    named = next((one for one in uri.values() if isinstance(one, dict)), {})
    names = (word(named.get(name)) for name in ("abs_path", "path", "url", "name", "file_path", "skill_file_path"))
    mention = next((name for name in names if name), None)
    text = content.get("Text")
    return f"@{mention}" if mention else text if isinstance(text, str) else ""


def _said(content: object, results: Fields) -> Iterator[Part]:
    """Yield the parts of something that the agent said or did: a call takes its result from ``results``."""
    if not isinstance(content, dict):
        return
    if "ToolUse" in content:
        use = _inner(content, "ToolUse")
        result = fields_of(results.pop(str(use.get("id")), None))
        yield from call_and_result(use.get("name"), use.get("input"), _result(result))
    elif "Thinking" in content:
        yield Part("thinking", word(_inner(content, "Thinking").get("text")) or "")
    else:
        yield Part("assistant", word(content.get("Text")) or "")


def _legacy_parts(fields: Fields) -> Iterator[Part]:
    """Yield the parts of a message in an older form: its segments, or its text; then calls, each with its result."""
    results = [*map(fields_of, list_of(fields.get("tool_results")))]
    segments = fields.get("segments") or [{"type": "text", "text": fields.get("text")}]
    texts = [] if fields.get("is_hidden") else [*map(fields_of, list_of(segments))]
    if fields.get("role") == "user":
        yield Part("user", "".join(str(one.get("text") or "") for one in texts))
        texts = []
    for one in texts:
        yield Part("thinking" if one.get("type") == "thinking" else "assistant", word(one.get("text")) or "")
    for use in filter(None, map(fields_of, list_of(fields.get("tool_uses")))):
        own = next((one for one in results if one.get("tool_use_id") == use.get("id")), {})
        results = [one for one in results if one is not own]
        yield from call_and_result(use.get("name"), use.get("input"), _result(own))
    yield from _results_alone(results)


def _results_alone(results: Iterable[object]) -> Iterator[Part]:
    """Yield the results whose calls are not there."""
    for one in map(fields_of, results):
        yield Part("tool_result", _result(one), word(one.get("tool_name")))


def _result(told: Fields) -> str:
    """Return the texts of a tool's result. Images are omitted."""
    content = told.get("content")
    texts = []
    for one in content if isinstance(content, list) else [content]:
        given = (one.get("Text") or one.get("text")) if isinstance(one, dict) else one
        texts.append(word(given) or "")
    return "\n".join(text for text in texts if text) or word(told.get("output")) or ""
