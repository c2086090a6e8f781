"""The reader of Codex's rollouts: lines that are appended, or a whole rollout that was compressed.

The file has the conversation twice: as the items that the model got and gave, and as events for the screen. Items are
read, because every version writes them: without them a session could not be resumed. Before 0.169 they had no ids: the
turn and the place in it identify them, and both stay the same where the program copies or rewrites a rollout.

Source: files of versions 0.104, 0.140 and 0.169; tests/data/agents/codex/README.md.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePath
from typing import Any

from crystal.model.capture import Turn
from crystal.transcript.codex_items import ITEM, SUMMARY, parts_of_record, record_of, texts_of
from crystal.transcript.line import (
    Fields,
    digest,
    fields_of,
    format_line,
    identifier,
    parse_line,
    parse_lines,
    parse_time,
    word,
)
from crystal.transcript.line_context import Context
from crystal.transcript.messages import Record, SessionStamp, SnapshotReader
from crystal.transcript.parts import Part
from crystal.transcript.reader import Identity, advanced
from crystal.transcript.snapshot import Snapshot
from crystal.transcript.tables import unpacked

MAX_UNPACKED_BYTES = 1 << 30
MIN_UNIQUE_ID = 16
"""Some servers of models number their calls from 0 in each answer: a shorter id tells nothing."""

_HEAD_BYTES = 200
_IS_ITEM = re.compile(rb'"type":\s?"response_item"')
_ENDINGS = re.compile(r"\.jsonl(\.zst)?$")
_SESSION = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
_ENVIRONMENT = b"environment_context>"
_FOLDER = re.compile(r"<cwd>([^<]+)</cwd>|Current working directory: (.+)")
_INDEX = "session_index.jsonl"
_RESULT = "-result"


class CodexReader(SnapshotReader):
    """See ``MessageReader``; compressed rollouts, and the list of names, are read as a ``SnapshotReader`` does."""

    kinds_are_named = False  # lines of its first versions have none
    silent_kinds = (
        "session_meta", "turn_context", "event_msg", "world_state", "token_usage_record", SUMMARY,
        f"{ITEM}/message", f"{ITEM}/reasoning", f"{ITEM}/ghost_snapshot", f"{ITEM}/*_output",
    )  # fmt: skip
    roles = ("user", "assistant", "system", "developer")
    context_marks = (
        b'"session_meta"',
        b'"instructions"',
        b'"turn_context"',
        b'"task_started"',
        b'"thread_name_updated"',
        b'"response_item"',
        b'"type":"message"',
        _ENVIRONMENT,
    )

    def identify(self, path: PurePath) -> Identity:
        """Return what a file belongs to: ``rollout-<time>-<session>``. Its first line knows whose subagent it is."""
        name = _ENDINGS.sub("", path.name)
        found = _SESSION.search(name)
        return Identity(name, found[0] if found else name)

    def owner_of(self, line: bytes, fields: Fields) -> tuple[str | None, str | None]:  # noqa: ARG002 - the interface's
        """Return the session and the subagent, by the line that begins a rollout."""
        kind, told = record_of(fields)
        return _owner(told) if kind == "session_meta" else (None, None)

    def advance(self, context: Context, line: bytes) -> Context:
        """Return the context after a line that tells of the folder, the model, the title or the turn."""
        if _IS_ITEM.search(line, 0, _HEAD_BYTES) and (context.cwd is not None or _ENVIRONMENT not in line):
            return _next_in_turn(context)
        fields = parse_line(line) or {}
        kind, told = record_of(fields)
        if kind == ITEM:
            return _next_in_turn(context if context.cwd is not None else context.with_texts(cwd=_folder_in(told)))
        if kind == "session_meta":
            branch = fields_of(told.get("git")).get("branch")
            begun = None if "payload" in fields else parse_time(told.get("timestamp"))
            context = context.with_texts(cwd=told.get("cwd"), branch=branch)._replace(at=begun)
            # Before 0.100 turns had no ids. A copy begins with the lines of all that it was copied from, oldest last.
            return _in_turn(context, told.get("id")) if _number_of(context) == 0 else context
        if kind == "turn_context":
            return _in_turn(context.with_texts(cwd=told.get("cwd"), model=told.get("model")), told.get("turn_id"))
        event = told.get("type") if kind == "event_msg" else None
        if event == "task_started":
            return _in_turn(context, told.get("turn_id"))
        return context.with_texts(title=told.get("thread_name")) if event == "thread_name_updated" else context

    def uuid_of(self, fields: Fields, context: Context) -> str | None:
        """Return the id of a line."""
        return _uuid(fields, context) or context.id

    def session_of(self, fields: Fields) -> str | None:
        """Return the session, which the first line names."""
        kind, told = record_of(fields)
        return _owner(told)[0] if kind == "session_meta" else None

    def turn_of(self, fields: Fields, context: Context) -> Turn:
        """Return what the turns of a line share; a result belongs to its call."""
        _, told = record_of(fields)
        is_result = str(told.get("type")).endswith("_output")
        return super().turn_of(fields, context)._replace(parent_uuid=_call_uuid(told) if is_result else None)

    def parts(self, fields: Fields) -> Iterator[Part]:
        """Yield the parts of a line."""
        return parts_of_record(*record_of(fields), fields)

    def named_parts(self, fields: Fields, tools: dict[str, str | None]) -> Iterator[Part]:
        """Yield the parts, results with the names of their tools."""
        call = str(record_of(fields)[1].get("call_id"))
        for part in self.parts(fields):
            if part.role == "tool_call" and part.tool:
                tools[call] = part.tool
            yield part._replace(tool=part.tool or tools.get(call)) if part.role == "tool_result" else part

    def kind(self, fields: Mapping[str, Any]) -> str | None:
        """Return the kind of a line, with that of the item in it: the conversation is in items."""
        kind, told = record_of(dict(fields))
        own = super().kind({"type": told.get("type") or "message", "message": told})
        return f"{kind}/{own}" if kind == ITEM else kind or None

    def conversations(self, source: Snapshot) -> Iterable[SessionStamp]:
        """Return the conversation of a compressed rollout, or the sessions that people named."""
        if source.path.name == _INDEX:
            return [SessionStamp(session, digest(named)) for session, named in _named_in(source.data).items()]
        session, subagent = self.owner(unpacked(source.data, MAX_UNPACKED_BYTES).split(b"\n", 1)[:1], Context())
        if session is None:
            raise source.other_form("session")
        return [SessionStamp(session, source.stamp, subagent)]

    def messages(self, source: Snapshot, conversation: SessionStamp) -> Iterator[Record]:
        """Yield the lines of a compressed rollout, or what names a session."""
        if source.path.name == _INDEX:
            named = _named_in(source.data)[conversation.session]
            context = Context().with_texts(title=named["thread_name"])
            yield Record(f"{conversation.session}-name", format_line(named), context)
            return
        name, context, at = self.identify(source.path).key, Context(), 0
        for line in unpacked(source.data, MAX_UNPACKED_BYTES).split(b"\n"):
            context = advanced(self, context, line)
            if line.strip():
                yield Record(f"{name}-{at}", line, context)
            at += len(line) + 1


READER = CodexReader()


def _folder_in(told: Fields) -> str | None:
    """Return the folder that an item names, as older versions told it to the model."""
    found = _FOLDER.search("\n".join(texts_of(told.get("content"))))
    return (found[1] or found[2]).strip() if found else None


def _owner(meta: Fields) -> tuple[str | None, str | None]:
    """Return the session and the subagent of a rollout: a subagent's is its parent's, to the top where it says so."""
    own, made_by = identifier(meta.get("id")), fields_of(meta.get("source")).get("subagent")
    if made_by is None:
        return own or identifier(meta.get("session_id")), None
    above = fields_of(fields_of(made_by).get("thread_spawn")).get("parent_thread_id")
    parents = (meta.get("session_id"), meta.get("parent_thread_id"), above)
    named = [ident for parent in parents if (ident := identifier(parent)) not in (None, own)]
    return next(iter(named), own), own


def _named_in(index: bytes) -> dict[str, Fields]:
    """Return what names sessions, by session: the newest is last."""
    return {one["id"]: one for one in parse_lines(index) if identifier(one.get("id")) and word(one.get("thread_name"))}


def _in_turn(context: Context, name: object) -> Context:
    """Return the context in a turn; it goes on if it is the same."""
    turn = identifier(name)
    return context if turn in (None, _turn_of(context)) else context._replace(turn=f"{turn}-0")


def _next_in_turn(context: Context) -> Context:
    turn = _turn_of(context)
    return context._replace(turn=f"{turn}-{_number_of(context) + 1}") if turn else context


def _turn_of(context: Context) -> str:
    return (context.turn or "").rpartition("-")[0]


def _number_of(context: Context) -> int:
    """Return how many items of its turn are before the next line."""
    return int((context.turn or "-0").rpartition("-")[2])


def _call_uuid(item: Fields) -> str | None:
    call = identifier(item.get("call_id"))
    return f"codex:{call}" if call is not None and len(call) >= MIN_UNIQUE_ID else None


def _uuid(fields: Fields, context: Context) -> str | None:
    """Return a line's id. A result has that of its call in it, so that it finds its tool."""
    kind, told = record_of(fields)
    if kind == "session_meta":
        ident = identifier(told.get("id"))
        return ident and f"codex:{ident}"
    if kind not in (ITEM, SUMMARY):
        return None
    call = _call_uuid(told)
    if call is not None:
        return f"{call}{_RESULT if str(told.get('type')).endswith('_output') else ''}"
    ident = identifier(told.get("id"))
    if ident is not None and len(ident) >= MIN_UNIQUE_ID:
        return f"codex:{ident}"
    place = context.turn or parse_time(fields.get("timestamp"))
    if place is None:
        return None
    # A review has its turn in the parent's rollout, too. What a subagent's copies of its parent is older than itself.
    own = f"{context.subagent}-" if context.subagent and _turn_of(context) >= context.subagent else ""
    said = hashlib.sha256()
    for number, part in enumerate(parts_of_record(kind, told, fields)):  # a text may be huge: it is not joined
        said.update(f"{chr(10) * bool(number)}{part.role} ".encode())
        said.update(part.text.encode("utf-8", "replace"))
    return f"codex:{own}{place}-{said.hexdigest()[:16]}"
