"""The reader of OpenCode's database: messages of parts, and, since version 2, whole messages.

A fork copies messages with new ids; their times and prompts stay the same, and identify them here. A
database that version 2 took over has its messages in the tables of both generations, under the same ids.

Source: databases of versions 1.15, 1.18 and 2.0; tests/data/agents/opencode/README.md.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from crystal.model.capture import Turn
from crystal.transcript.line import Fields, digest, fields_of, format_line, identifier, list_of, word
from crystal.transcript.line_context import Context
from crystal.transcript.messages import Record, SessionStamp, SnapshotReader, unique_name
from crystal.transcript.parts import Part, call_and_result, result_text
from crystal.transcript.snapshot import Snapshot
from crystal.transcript.tables import check_tables, columns_of, first_ancestor, moment_of, no_id, rows_of, without_row

_ARGUMENT = re.compile(r'"((?:[^"\\]|\\"?)*)"')
_SAID = frozenset(("user", "assistant", "shell", "compaction"))
_TABLES = (
    {"session": "id", "message": "id session_id data", "part": "id message_id data"},
    {"session_v2": "id", "session_message": "id session_id type data"},
)
_READ = "parent_id directory title time_created time_updated"
_NOT_READ = """
    id project_id workspace_id slug path version share_url summary_additions summary_deletions summary_files
    summary_diffs metadata cost tokens_input tokens_output tokens_reasoning tokens_cache_read tokens_cache_write revert
    permission agent model time_compacting time_archived fork_session_id fork_boundary time_idle
"""
_COPIES_ELSEWHERE = """
    SELECT DISTINCT session_id FROM message WHERE session_id != ? AND json_valid(data)
    AND data ->> '$.time.created' IN (SELECT value FROM json_each(?))
"""
_IS_ALONE = "coalesce(message_id NOT IN (SELECT id FROM message), 1)"
_UNTITLED = ("New session - ", "Child session - ")


class OpenCodeReader(SnapshotReader):
    """See ``SnapshotReader``."""

    silent_kinds = ("user", "assistant", "shell", "compaction", "system", "synthetic", "idle")

    def conversations(self, source: Snapshot) -> Iterable[SessionStamp]:
        """Return the sessions, the older ones first: a fork comes after its original. A subagent has its own."""
        check_tables(source, *_TABLES, read=dict.fromkeys(("session", "session_v2"), (_READ, _NOT_READ)))
        sessions = _sessions(source)
        changes = _changes(source)
        _name_lost_parts(source)
        alone = without_row(source, ("message", "session_message"), sessions)
        parents = {ident: row.get("parent_id") for ident, row in sessions.items()} | dict.fromkeys(alone)
        for ident, row in sorted(
            sessions.items(), key=lambda one: (moment_of(one[1].get("time_created")) or 0, one[0])
        ):
            stamp = repr((row.get("time_updated"), row.get("title"), row.get("directory"), changes.get(ident)))
            first = first_ancestor(ident, parents)
            yield SessionStamp(first, stamp, None if first == ident else ident)
        for ident, (session, subagent) in alone.items():
            yield SessionStamp(session, repr(changes.get(ident)), subagent)

    def messages(self, source: Snapshot, conversation: SessionStamp) -> Iterator[Record]:
        """Yield the messages of a session, each with its parts."""
        ident = conversation.subagent or conversation.session
        row = _sessions(source).get(ident, {})
        title = word(row.get("title")) or ""
        title = "" if title.startswith(_UNTITLED) else title
        context = Context().with_texts(cwd=row.get("directory"), title=title)
        for name, message in _named(source, _messages(source, ident), conversation):
            told = fields_of(message.get("info", message))
            chosen = fields_of(told.get("model"))
            model = told.get("modelID") or chosen.get("modelID") or chosen.get("id")
            folder = fields_of(told.get("path")).get("cwd")
            yield Record(name, format_line(message), context.with_texts(cwd=folder, model=model))

    def kind(self, fields: Mapping[str, Any]) -> str | None:
        """Return who or what a message is from."""
        return _role(dict(fields)) or None

    def lasting_id(self, ident: str) -> str:
        """Return an id without the prompt in it."""
        return ident.partition("-")[2] or ident

    def parts(self, fields: Fields) -> Iterator[Part]:
        """Return the parts of a record."""
        return _parts(fields)

    def time_of(self, fields: Fields, context: Context) -> int | None:  # noqa: ARG002 - the interface's
        """Return when a record was written."""
        return _created(fields)

    def turn_of(self, fields: Fields, context: Context) -> Turn:
        """Return what the turns of a message share."""
        return super().turn_of(fields, context)._replace(message_id=identifier(fields.get("id")))


READER = OpenCodeReader()


def _sessions(source: Snapshot) -> dict[str, Fields]:
    """Return the sessions of both generations by id; the newer one's row counts."""
    rows = [*rows_of(source, "session"), *rows_of(source, "session_v2")]
    return {row["id"]: row for row in rows if identifier(row.get("id")) is not None}


def _name_lost_parts(source: Snapshot) -> None:
    """Name parts without a message where they do not say their session; elsewhere they are kept with it."""
    names = columns_of(source, "part")
    if names and columns_of(source, "message") and "session_id" not in names:
        for (count,) in source.rows(f"SELECT count(*) FROM part WHERE {_IS_ALONE}"):
            source.damaged += [no_id(count, "part", "message_id")] if count else []


def _changes(source: Snapshot) -> dict[str, str]:
    """Return for each session a text that differs whenever one of its messages or parts does.

    Where the program counts the changes of a session, what is read are that number and indexes, not the contents.
    """
    counted = columns_of(source, "event_sequence")
    numbers = dict(source.rows("SELECT aggregate_id, seq FROM event_sequence")) if counted else {}
    changes: dict[str, list[object]] = {session: [number] for session, number in numbers.items()}
    for table in ("message", "part", "session_message"):
        names = columns_of(source, table)
        if "session_id" in names:
            for session, count in source.rows(f'SELECT session_id, count(*) FROM "{table}" GROUP BY session_id'):
                changes.setdefault(session, []).append(count)
        for session, newest in _newest(source, table, names):
            if session not in numbers:
                changes.setdefault(session, []).append(newest)
    return {session: repr(told) for session, told in changes.items()}


def _newest(source: Snapshot, table: str, names: list[str]) -> Iterator[tuple[str, object]]:
    """Yield what tells of changes of the rows in a table, by session, where some session's changes are not counted."""
    counts = (
        " WHERE id NOT IN (SELECT aggregate_id FROM event_sequence)" if columns_of(source, "event_sequence") else ""
    )
    asked = "session_v2" if table == "session_message" and columns_of(source, "session_v2") else "session"
    if not names or not columns_of(source, asked) or not list(source.rows(f"SELECT 1 FROM {asked}{counts} LIMIT 1")):
        return
    told = "max(one.time_updated)" if "time_updated" in names else "sum(length(one.data))"
    if "session_id" in names:
        yield from source.rows(f'SELECT one.session_id, {told} FROM "{table}" AS one GROUP BY one.session_id')
    elif table == "part":
        yield from source.rows(
            f"SELECT message.session_id, {told} || ' ' || count(*) FROM part AS one"
            " JOIN message ON message.id = one.message_id GROUP BY message.session_id"
        )


def _messages(source: Snapshot, session: str) -> list[Fields]:
    """Return the messages of a session in their order. One in the tables of both generations comes once."""
    parts: dict[str, list[Fields]] = {}
    parse = source.object_of
    within = "WHERE message_id IN (SELECT id FROM message WHERE session_id = ?1)"
    if "session_id" in columns_of(source, "part"):
        within += f" OR (session_id = ?1 AND {_IS_ALONE})"
    stored = rows_of(source, "part", within, (session,)) if columns_of(source, "message") else iter(())
    for row in sorted(stored, key=lambda row: str(row.get("id"))):
        parts.setdefault(str(row.get("message_id")), []).append({"id": row.get("id"), **parse(row.get("data"))})
    first = [
        {"id": str(row.get("id")), "info": parse(row.get("data")), "parts": parts.get(str(row.get("id")), [])}
        for row in rows_of(source, "message", "WHERE session_id = ?", (session,))
    ]
    first.sort(key=lambda message: (_created(message) or 0, message["id"]))
    known = {message["id"] for message in first}
    source.broken += [format_line(told) for ident, told in parts.items() if ident not in known]
    second = sorted(
        rows_of(source, "session_message", "WHERE session_id = ?", (session,)),
        key=lambda row: (row["seq"] if isinstance(row.get("seq"), int) else 0, str(row.get("id"))),
    )
    later = [{"id": str(row.get("id")), "type": row.get("type"), **parse(row.get("data"))} for row in second]
    return first + [message for message in later if message["id"] not in known]


def _named(source: Snapshot, messages: list[Fields], conversation: SessionStamp) -> Iterator[tuple[str, Fields]]:
    """Yield each message with a name that its copies in forks have, too, and no other message: by its prompt."""
    used: Counter[str] = Counter()
    prompts = {message["id"]: message for message in messages if _role(message) == "user"}
    orphans = [one for one in messages if (parent := _parent_of(one)) is not None and parent not in prompts]
    elsewhere = _prompts_elsewhere(source, conversation.session, orphans) if orphans else {}
    prompt: Fields | None = None
    for message in messages:
        at, parent = _created(message), _parent_of(message)
        prompt = prompts.get(message["id"]) or prompt
        asked = prompt if parent is None else prompts.get(parent) or elsewhere.get(at)
        root = conversation.subagent or (asked and _name_of_prompt(asked)) or conversation.session
        yield unique_name(str(message["id"]) if at is None else f"{root}-{at}-{_role(message)}", used), message


def _parent_of(message: Fields) -> str | None:
    return identifier(fields_of(message.get("info")).get("parentID"))


def _prompts_elsewhere(source: Snapshot, session: str, orphans: list[Fields]) -> dict[int | None, Fields]:
    """Return the prompts of answers whose own were deleted here and not in a fork or the original, by their times."""
    times = json.dumps([_created(one) for one in orphans])
    found: dict[int | None, Fields] = {}
    for (other,) in source.rows(_COPIES_ELSEWHERE, (session, times)):
        messages = {message["id"]: message for message in _messages(source, other)}
        answers = [(_created(one), messages.get(_parent_of(one) or "")) for one in messages.values()]
        found |= {at: prompt for at, prompt in answers if prompt is not None}
    return found


def _name_of_prompt(prompt: Fields) -> str:
    return digest(f"{_created(prompt)} {_first_line(prompt)}")[:20]


def _first_line(message: Fields) -> str:
    texts = (part.text for part in _parts(message) if part.role == "user" and part.text)
    return next(texts, "").split("\n")[0]


def _created(fields: Fields) -> int | None:
    return moment_of(fields_of(fields_of(fields.get("info", fields)).get("time")).get("created"))


def _role(fields: Fields) -> str:
    """Return who or what a message is from."""
    role = fields_of(fields["info"]).get("role") if "info" in fields else fields.get("type")
    return role if isinstance(role, str) else ""


def _is_summary(fields: Fields) -> bool:
    return fields.get("type") == "compaction" or fields_of(fields.get("info")).get("summary") is True


def _parts(fields: Fields) -> Iterator[Part]:
    """Yield the parts of a message."""
    role = _role(fields)
    content = fields.get("parts") if "info" in fields else fields.get("content")
    if role == "shell":
        yield from call_and_result("shell", {"command": fields.get("command")}, result_text(fields.get("output") or ""))
    elif role == "compaction":
        yield Part("summary", word(fields.get("summary")) or "")
    elif role == "user" and "info" not in fields:
        yield Part("user", _unquoted(word(fields.get("text")) or ""))
    elif role in ("user", "assistant"):
        own = "summary" if _is_summary(fields) else role
        for part in list_of(content):
            yield from _part(fields_of(part), own)


def _part(part: Fields, role: str) -> Iterator[Part]:
    kind, text = part.get("type"), word(part.get("text")) or ""
    if kind == "tool":
        state = fields_of(part.get("state"))
        yield from call_and_result(part.get("tool") or part.get("name"), state.get("input"), _result(state))
    elif kind == "reasoning":
        yield Part("thinking", text)
    elif kind in ("text", "") or not isinstance(kind, str):  # one that lost its kind says its text
        is_said = not part.get("synthetic") and not part.get("ignored")
        yield Part(role, (_unquoted(text) if role == "user" else text) if is_said else "")  # type: ignore[arg-type]


def _unquoted(text: str) -> str:
    """Return a prompt without the quotes that ``opencode run`` puts around an argument with a space."""
    found = _ARGUMENT.fullmatch(text)
    return text if found is None or " " not in text else found[1].replace('\\"', '"')


def _result(state: Fields) -> str:
    """Return what a tool gave, or the error that it ended with."""
    error = state.get("error")
    told = (state.get("output"), state.get("content"), fields_of(error).get("message"), error)
    texts = [text for one in told if (text := result_text(one or ""))]
    return "\n".join(texts)
