"""The reader of OpenClaw's sessions: entries in the form of Pi's, in a database, or in files of older versions.

Older versions write a file for each session, and copies of it when a session is reset, deleted or compacted; a newer
one takes the files into its database. So files are read as a whole, too: an entry is the same wherever it is stored,
and one that Pi has written is the same there.

Source: a database of version 2026.9.6 and files of older ones; tests/data/agents/openclaw/README.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import PurePath

from crystal.transcript.line import Fields, digest, fields_of, identifier, parse_line, word
from crystal.transcript.line_context import Context
from crystal.transcript.messages import Record, SessionStamp, SnapshotReader
from crystal.transcript.parts import Part
from crystal.transcript.pi import ENTRIES, EntryReader, entry_uuid, message_of
from crystal.transcript.pi import READER as PI
from crystal.transcript.snapshot import Snapshot, SourceError
from crystal.transcript.tables import check_tables, columns_of, moment_of, rows_of, unpacked

_LIST = "sessions.json"
_TRACE = ".trajectory.jsonl"
_NAME = re.compile(r"(.+?)\.jsonl")
_CHECKPOINT = ".checkpoint."
"""In the name of a copy that the program makes before a compaction: the session itself has its text."""
_WINDOWS, _REWRITES = "session_windows", "transcript_rewrite_watermarks"
_ARCHIVES = ("session_transcript_archives", "session_transcript_cold_archives")

_ENVELOPE = re.compile(r"\[[^\]\n]*\d{4}-\d\d-\d\d[T ]\d\d:\d\d[^\]\n]*\] *")
_EVENTS = re.compile(r"(?:System(?: \(untrusted\))?: \[[^\]\n]*\][^\n]*\n+)+")
_TOLD = re.compile(
    r"\s*[^\n]*(?:\(untrusted [^)\n]*\):|⟦openclaw:ctx⟧)[ \t]*\n(?:```json\n.*?\n```|(?:[^\n]+(?:\n|\Z))*)\s*",
    re.DOTALL,
)
_TOLD_AFTER = re.compile(
    r"\n+(?:Untrusted context \(metadata|Context: ⟦openclaw:ctx⟧).*|\s*\[message_id: [^\]\n]*\]\s*\Z", re.DOTALL
)
_PROGRAMS = (
    "A new session was started via /new or /reset",
    "An async command you ran earlier has completed",
    "Continue where you left off. The previous model attempt failed",
    "Pre-compaction memory flush",
    "Read HEARTBEAT.md if it exists",
    "[Inter-session message]",
    "[System Message]",
    "[cron:",
)
"""Beginnings of what the program itself says in the user's name."""


class OpenClawReader(EntryReader, SnapshotReader):
    """See ``SnapshotReader``."""

    ids_of = "pi"
    silent_kinds = (*ENTRIES, "leaf")

    def side_files(self, path: PurePath) -> tuple[PurePath, ...]:
        """Return the list of sessions beside a file: it tells which are subagents'."""
        return (path.with_name(_LIST),) if path.parent.name == "sessions" else ()

    def conversations(self, source: Snapshot) -> Iterable[SessionStamp]:
        """Return the session of a file, or those of a database."""
        if _is_database(source):
            return _stored(source)
        if source.path.name.endswith(_TRACE) or _CHECKPOINT in source.path.name:
            return []
        entries = [fields for _, fields in source.lines(unpacked(source.data))]
        if not any(one.get("type") == "session" or entry_uuid(one, self.ids_of) for one in entries):
            raise source.other_form("entries")
        found = _NAME.match(source.path.name)
        heads = (identifier(one.get("id")) for one in entries if one.get("type") == "session")
        session = next(heads, None) or (found[1] if found else source.path.stem)
        listed = [row for content in source.sides.values() for row in _listed(content)]
        return [_conversation(session, source.stamp, listed)]

    def messages(self, source: Snapshot, conversation: SessionStamp) -> Iterator[Record]:
        """Yield the entries, each with what earlier ones say of the folder and the model."""
        session = conversation.subagent or conversation.session
        lines = _events(source, session) if _is_database(source) else source.lines(unpacked(source.data))
        context = Context()
        for line, fields in lines:
            context = PI.advance(context, line)
            uuid = entry_uuid(fields, self.ids_of)
            own = identifier(fields.get("id")) or digest(line)[:16]
            name = f"{session}-{fields.get('type')}-{own}" if uuid is None else uuid.partition(":")[2]
            yield Record(name, line, context)

    def is_subagents(self, fields: Fields) -> bool:
        """Return whether another session said it."""
        return _origin(fields) == "inter_session"

    def parts(self, fields: Fields) -> Iterator[Part]:
        """Yield the parts of an entry: of the user's those that somebody typed."""
        is_programs = _origin(fields) == "internal_system"
        for part in super().parts(fields):
            is_typed = part.role == "user" and _origin(fields) != "inter_session"
            yield part._replace(text="" if is_programs else _typed(part.text)) if is_typed else part


READER = OpenClawReader()


def _origin(fields: Fields) -> object:
    return fields_of(message_of(fields).get("provenance")).get("kind")


def _is_database(source: Snapshot) -> bool:
    return source.path.suffix == ".sqlite"


def _packed(source: Snapshot, data: bytes) -> Iterator[tuple[bytes, Fields]]:
    """Yield the entries in a compressed column; none if it is damaged, which is named."""
    try:
        lines = unpacked(data).split(b"\n")
    except SourceError as error:
        source.damaged.append(error)
        return
    yield from ((line, fields) for line in lines if (fields := source.object_of(line)))


def _listed(content: bytes) -> Iterator[Fields]:
    """Yield the sessions of a list in the form of the database's rows."""
    for key, entry in (parse_line(content) or {}).items():
        if isinstance(entry, dict):
            yield {"session_key": key, "session_id": entry.get("sessionId"), "spawned_by": entry.get("spawnedBy")}


def _conversation(session: str, stamp: str, rows: list[Fields]) -> SessionStamp:
    """Return the conversation of a session: a subagent's belongs to the session that started it."""
    own = next((row for row in rows if row.get("session_id") == session), {})
    parent = next((row for row in rows if own.get("spawned_by") and row.get("session_key") == own["spawned_by"]), {})
    ident = identifier(parent.get("session_id"))
    return SessionStamp(session, stamp) if ident in (None, session) else SessionStamp(str(ident), stamp, session)


def _stored(source: Snapshot) -> Iterator[SessionStamp]:
    """Yield the sessions of a database, and those that it keeps as archives."""
    check_tables(source, {"transcript_events": "session_id seq event_json"})
    known = {_WINDOWS: "session_id session_key spawned_by updated_at", _REWRITES: "session_id generation"}
    for table, read in known.items():
        names = columns_of(source, table)
        source.missing += [f"{table}.{name}" for name in read.split() if name not in names]
    windows = sorted(rows_of(source, _WINDOWS), key=lambda row: moment_of(row.get("updated_at")) or 0, reverse=True)
    marks = {row.get("session_id"): row.get("generation") for row in rows_of(source, _REWRITES)}
    counts = "SELECT session_id, count(*), max(seq) FROM transcript_events GROUP BY session_id"
    told: dict[str, list[object]] = {session: [marks.get(session), *rest] for session, *rest in source.rows(counts)}
    for table in _ARCHIVES:
        if "archive_blob" in columns_of(source, table):
            for session, count in source.rows(f'SELECT session_id, count(*) FROM "{table}" GROUP BY session_id'):
                told.setdefault(session, []).append((table, count))
    for session, stamp in told.items():
        yield _conversation(session, repr(stamp), windows)


def _events(source: Snapshot, session: str) -> Iterator[tuple[bytes, Fields]]:
    """Yield the entries of a session in a database: archived ones, then those in use. A large one is compressed."""
    for table in _ARCHIVES:
        if "archive_blob" in columns_of(source, table):
            for row in rows_of(source, table, "WHERE session_id = ?", (session,)):
                yield from _packed(source, row["archive_blob"]) if isinstance(row["archive_blob"], bytes) else ()
    for row in rows_of(source, "transcript_events", "WHERE session_id = ? ORDER BY seq", (session,)):
        packed, plain = row.get("event_zstd"), row.get("event_json")
        fields = source.object_of(plain if packed is None else plain or "")
        if fields:
            yield str(row["event_json"]).encode("utf-8", "surrogatepass"), fields
        elif isinstance(packed, bytes):
            yield from _packed(source, packed)
        elif packed is not None:
            source.object_of(packed)
        elif "event_zstd" not in row and not row.get("event_json"):
            raise source.other_form("transcript_events.event_zstd")


def _typed(text: str) -> str:
    """Return what a person typed: without what the program says of the channel, the sender and the time."""
    text = _EVENTS.sub("", text, count=1) if text.startswith("System") else text
    while (told := _TOLD.match(text)) is not None:
        text = text[told.end() :]
    text = _TOLD_AFTER.sub("", text)
    envelope = _ENVELOPE.match(text)
    text = text[envelope.end() :] if envelope else text
    return "" if text.startswith(_PROGRAMS) else word(text) or ""
