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
from crystal.transcript.parts import Part, call, parts_of_blocks
from crystal.transcript.snapshot import Snapshot

_TASK_FILE = "api_conversation_history.json"
_LISTED = MessageList("messages", ("id", "role", "content", "ts"))
_WRAPPED = re.compile(r"\s*<(user_input|task|feedback|user_message|answer)\b[^>]*>\n?(.*?)\n?</\1>\s*", re.DOTALL)
_TOOLS = (
    "execute_command|read_file|write_to_file|replace_in_file|apply_diff|insert_content|search_and_replace|search_files|"
    "list_files|list_code_definition_names|codebase_search|browser_action|web_fetch|use_mcp_tool|access_mcp_resource|"
    "new_task|switch_mode|fetch_instructions|update_todo_list|ask_followup_question|attempt_completion|plan_mode_respond"
)
_RESULT = re.compile(rf"\s*\[({_TOOLS})\b[^\n]*\] Result:[ \t]*\n*(.*)", re.DOTALL)
_CALLED = re.compile(rf"<(thinking|{_TOOLS})>")
_FEEDBACK = re.compile(r"<(feedback|answer)>")
_SPOKEN = ("ask_followup_question", "attempt_completion", "plan_mode_respond")
"""Tools whose arguments are what the model says."""
_ARGUMENT = re.compile(r"<(\w+)>")
_DETAILS = re.compile(r"<environment_details>.*?</environment_details>", re.DOTALL)


class ClineReader(SnapshotReader):
    """See ``SnapshotReader``. Roo Code is a fork of the extension and writes the same."""

    silent_kinds = ("user", "assistant", "reasoning")

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
        told = parts_of_blocks(_content(fields), "user" if role == "user" else "assistant")
        for part in told if is_summary else _untagged(told):
            if not is_summary:
                yield part
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


def _untagged(parts: Iterable[Part]) -> Iterator[Part]:
    """Yield parts, where calls and results of tools are told from what was said: older versions write them as texts.

    What a person says to a call is in its result, in a tag.
    """
    tool: str | None = None
    for part in parts:
        if part.role == "assistant":
            yield from _said_and_called(part.text)
        elif part.role == "tool_result":
            yield from _result(part)
        elif part.role == "user" and (result := _RESULT.fullmatch(part.text)):
            tool = result[1]
            yield from _result(Part("tool_result", _DETAILS.sub("", result[2]).strip(), tool))
        elif part.role == "user" and tool and not _WRAPPED.fullmatch(part.text):
            yield from _result(Part("tool_result", _DETAILS.sub("", part.text).strip(), tool))
        else:
            yield part._replace(text=_typed(part.text)) if part.role == "user" else part


def _result(part: Part) -> Iterator[Part]:
    told = list(_tags(part.text, _FEEDBACK))
    starts = [start for start, *_ in told]
    pieces = zip([0, *(end for _, end, *_ in told)], [*starts, len(part.text)], strict=True)
    yield part._replace(text="".join(part.text[one:other] for one, other in pieces).strip() if told else part.text)
    yield from (Part("user", said) for *_, said in told)


def _said_and_called(text: str) -> Iterator[Part]:
    at = 0
    for start, end, name, inner in _tags(text, _CALLED):
        yield Part("assistant", text[at:start].strip())
        given = {argument: value for _, _, argument, value in _tags(inner, _ARGUMENT)}
        if name == "thinking":
            yield Part("thinking", inner)
        elif name in _SPOKEN:
            yield Part("assistant", "\n".join(given.values()) or inner)
        else:
            yield call(name, given)
        at = end
    yield Part("assistant", text[at:].strip() if at else text)


def _tags(text: str, opening: re.Pattern[str]) -> Iterator[tuple[int, int, str, str]]:
    """Yield the start, the end, the name and the inner text of each pair of tags, the outer ones alone."""
    at, unclosed = 0, set[str]()
    for found in opening.finditer(text):
        name = found[1]
        if found.start() < at or name in unclosed:
            continue
        end = text.find(f"</{name}>", found.end())
        if end < 0:
            unclosed.add(name)
            continue
        at = end + len(name) + 3
        yield found.start(), at, name, text[found.end() : end].strip("\n")


def _typed(text: str) -> str:
    """Return what a person typed: without what the program says of the environment, and without its tags."""
    text = _DETAILS.sub("", text)
    wrapped = _WRAPPED.fullmatch(text)
    return word(wrapped[2] if wrapped else text) or ""
