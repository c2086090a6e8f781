"""The reader of Gemini CLI's chats: a journal in JSON lines, or one JSON document of older versions.

The journal repeats itself: an answer is written again once its tools have run, and a resumed session begins with the
whole history. So the file is read as a whole, and of each message the newest text and all of its tool calls count. A
prompt that the program takes back, and what it compresses, stays.

Source: files of version 0.61; tests/data/agents/gemini-cli/README.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePath

from crystal.transcript.damaged import MessageList
from crystal.transcript.line import Fields, dicts_of, fields_of, format_line, identifier, list_of, word
from crystal.transcript.line_context import Context
from crystal.transcript.messages import Record, SessionStamp, SnapshotReader, unnamed_record
from crystal.transcript.parts import Part, call_and_result, call_text, result_text, unique_id, without_files
from crystal.transcript.snapshot import Snapshot
from crystal.transcript.trees import texts_of

_NOT_TYPED = ("<session_context>", "System: Potential loop detected. Details: ")
"""Beginnings of prompts that the program writes itself."""
_FOLDER = re.compile(r"Workspace Directories:\*\*\n\s+- (.+)")
_COMPRESSED = "Got it. Thanks for the additional context!"
_SUMMARY = "crystalSummary"
_EARLIER = "crystalEarlier"
_ANSWERS = ("gemini", "qwen")
"""Kinds of answers; the first versions of Qwen Code write the same documents."""
_ROOT_FILE = ".project_root"
_LISTED = MessageList("messages", ("id", "timestamp", "type", "content"))

_HEAD = frozenset(("sessionId", "lastUpdated", "summary", "$rewindTo"))
"""Fields of lines that only tell about the chat, unless there are objects in them."""


class GeminiReader(SnapshotReader):
    """See ``SnapshotReader``."""

    silent_kinds: tuple[str, ...] = ("user", *_ANSWERS, "info", "warning", "error")

    def side_files(self, path: PurePath) -> tuple[PurePath, ...]:
        """Return the file that names the project's folder: beside ``chats``."""
        return tuple(parent.parent / _ROOT_FILE for parent in path.parents if parent.name == "chats")

    def conversations(self, source: Snapshot) -> Iterable[SessionStamp]:
        """Return the chat of a file. A subagent's is in a folder named after its session, and has its own name.

        One that was read without its beginning, which names the session, keeps the name of its file.
        """
        objects, parent = _objects(source), source.path.parent.name
        head: Fields = next((one for one in objects if "sessionId" in one), {})
        session = identifier(head.get("sessionId"))
        if session is None and not _replay(objects)[0]:
            raise source.other_form("session")
        is_subagents, name = parent != "chats" and (session is None or head.get("kind") == "subagent"), source.path.stem
        if source.known(f"{parent}/{name}" if is_subagents else name):
            session = name
        own = session or next((part or read for read, part in source.sessions), name)
        return [SessionStamp(parent, source.stamp, own) if is_subagents else SessionStamp(own, source.stamp)]

    def messages(self, source: Snapshot, conversation: SessionStamp) -> Iterator[Record]:
        """Yield each message once; then what is not understood."""
        messages, others = _replay(_objects(source))
        context = Context().with_texts(cwd=_folder_of(messages.values(), source.sides))
        for ident, message in messages.items():
            context = context.with_texts(model=message.get("model"))
            yield Record(unique_id(ident, conversation.session), format_line(message), context)
        for fields in others:
            yield unnamed_record(conversation.session, format_line(fields), context)

    def parts(self, fields: Fields) -> Iterator[Part]:
        """Return the parts of a record."""
        kind, text = fields.get("type"), _text(fields.get("content"))
        if _EARLIER in fields:
            return
        if kind == "user" and not _is_programs_own(fields):
            yield Part("summary", text) if _SUMMARY in fields else Part("user", without_files(text))
        elif kind in _ANSWERS and text != _COMPRESSED:
            yield Part("thinking", "\n".join(_thoughts(fields)))
            yield Part("assistant", text)
            for call in dicts_of(fields.get("toolCalls")):
                yield from call_and_result(call.get("name"), call.get("args"), _result(call))


READER = GeminiReader()


def _objects(source: Snapshot) -> list[Fields]:
    """Return the objects of a journal, or the one object of a document."""
    document = source.document(_LISTED)
    return [document] if isinstance(document, dict) else source.objects()


def _replay(objects: list[Fields]) -> tuple[dict[str, Fields], list[Fields]]:
    """Return the messages by id, and what else is kept: objects of unknown kinds, earlier states of messages."""
    messages: dict[str, Fields] = {}
    others: list[Fields] = []
    for fields in objects:
        update = fields.get("$set")
        change = update if isinstance(update, dict) else fields
        history = change.get("messages")
        if isinstance(history, list):
            _add_history(messages, others, history)
        elif "type" in fields and identifier(fields.get("id")) is not None:
            _add_message(messages, others, fields)
        elif not _HEAD & change.keys() or any(map(dicts_of, change.values())):
            others.append(fields)
    return messages, others


def _add_history(messages: dict[str, Fields], others: list[Fields], history: list[object]) -> None:
    """Add what a checkpoint has and nobody wrote before. After a compression its first new message is a summary."""
    given = [one for one in dicts_of(history) if identifier(one.get("id")) is not None]
    others += [one for one in dicts_of(history) if identifier(one.get("id")) is None]
    for number, one in enumerate(given):
        is_summary = any(_text(other.get("content")) == _COMPRESSED for other in given[number + 1 : number + 2])
        is_new = is_summary and one["id"] not in messages
        _add_message(messages, others, {**one, _SUMMARY: True} if is_new else one)


def _add_message(messages: dict[str, Fields], others: list[Fields], message: Fields) -> None:
    known = messages.setdefault(message["id"], message)
    before, now = _plain(known), _plain(message)
    calls, known_calls = list_of(message.get("toolCalls")), list_of(known.get("toolCalls"))
    if not before.startswith(now):
        if not now.startswith(before):
            others.append({**known, _EARLIER: True})
        known = {**known, **message}
    longer = calls if len(calls) >= len(known_calls) else known_calls
    messages[message["id"]] = {**known, "toolCalls": longer} if longer else known


def _folder_of(messages: Iterable[Fields], sides: Mapping[PurePath, bytes]) -> str | None:
    for content in sides.values():
        return word(content.decode("utf-8", "replace").strip())
    texts = (_text(message.get("content")) for message in messages if _is_programs_own(message))
    found = next((match for text in texts if (match := _FOLDER.search(text))), None)
    return None if found is None else found[1].strip()


def _is_programs_own(fields: Fields) -> bool:
    return fields.get("type") == "user" and _text(fields.get("content")).startswith(_NOT_TYPED)


def _text(content: object) -> str:
    """Return the text of a message: its content is a text, or a list of parts."""
    if isinstance(content, str):
        return content
    return texts_of(part.get("text") for part in dicts_of(content) if not part.get("thought"))


def _plain(fields: Fields) -> str:
    """Return the text of a message without white space, which a session that goes on writes otherwise."""
    return "".join(_text(fields.get("content")).split())


def _thoughts(fields: Fields) -> Iterator[str]:
    """Yield the thoughts of an answer. One that is known only from a checkpoint has them among its parts."""
    thoughts = dicts_of(fields.get("thoughts"))
    if not thoughts:
        yield texts_of(part.get("text") for part in dicts_of(fields.get("content")) if part.get("thought"))
    for thought in thoughts:
        words = (word(thought.get("subject")), word(thought.get("description")))
        yield ": ".join(part for part in words if part)


def _result(call: Fields) -> str:
    """Return what a call gave. In a session that goes on, each of several calls at once has the results of all."""
    given = [fields_of(one.get("functionResponse")) for one in dicts_of(call.get("result"))]
    own = [one for one in given if one.get("id") == call.get("id")] or given
    answers = [fields_of(one.get("response")) for one in own]
    texts = [result_text(answer.get("output")) or call_text(None, answer) for answer in answers if answer]
    return "\n".join(texts) or _text(call.get("resultDisplay"))
