"""The reader of claude-mem's database: the prompts of sessions, and what its model observed and summarized.

A prompt is a turn of the session, unless crystal has the session itself. Observations and summaries are notes about it.

Source: the schema in the program's package, version 13.25; no real database was read.
"""

from __future__ import annotations

from collections.abc import Iterator

from crystal.transcript.line import Fields, list_of, parse_line, word
from crystal.transcript.messages import Record
from crystal.transcript.parts import Part
from crystal.transcript.snapshot import Snapshot, SourceError
from crystal.transcript.stores import NO_TEXT, StoreReader, StoreRow, record_of, session_name
from crystal.transcript.tables import columns_of, moment_of

ABOUT = "claude-mem"
_SUMMARY = {
    "request": "Request", "investigated": "Investigated", "learned": "Learned", "completed": "Completed",
    "next_steps": "Next steps", "notes": "Notes",
}  # fmt: skip
_NOTES = (
    "SELECT n.id, coalesce(s.content_session_id, n.memory_session_id), {} FROM {} n"
    " LEFT JOIN sdk_sessions s ON s.memory_session_id = n.memory_session_id ORDER BY n.created_at_epoch, n.id"
)


class ClaudeMemReader(StoreReader):
    """See ``StoreReader``."""

    def rows(self, source: Snapshot) -> Iterator[StoreRow]:
        """Yield prompts, observations and summaries."""
        if not columns_of(source, "sdk_sessions"):
            raise SourceError(f"{source.path} is no database of claude-mem", hint="name another with --from")
        has_prompts = set()
        if columns_of(source, "user_prompts"):
            sql = "SELECT id, content_session_id, prompt_text FROM user_prompts ORDER BY created_at_epoch, id"
            for key, session, text in source.rows(sql):
                has_prompts.add(session)
                left_out = "" if word(text) else NO_TEXT
                yield StoreRow("user_prompts", key, f"{session}-p{key}", session_name(session), None, text, left_out)
        for key, session, text in source.rows(
            "SELECT id, content_session_id, user_prompt FROM sdk_sessions ORDER BY id"
        ):
            only_names = session in has_prompts or not word(text)
            why = "it only names a session" if only_names else ""
            yield StoreRow("sdk_sessions", key, f"{session}-s{key}", session_name(session), None, text, why)
        for table, mark in (("observations", "o"), ("session_summaries", "y")):
            names = columns_of(source, table)
            if names:
                texts = [
                    name for name in (*_SUMMARY, "title", "subtitle", "narrative", "facts", "text") if name in names
                ]
                listed = " || ".join(f"coalesce(n.{name}, '')" for name in texts)
                for key, session, text in source.rows(_NOTES.format(listed, table)):
                    left_out = "" if word(text) else NO_TEXT
                    yield StoreRow(table, key, f"{session}-{mark}{key}", session_name(session), ABOUT, text, left_out)

    def record(self, row: StoreRow, fields: Fields) -> Record:
        """Return the record of a row."""
        at = moment_of(fields.get("created_at_epoch") or fields.get("started_at_epoch"))
        if row.about is None:
            text = fields.pop("prompt_text", None) or fields.pop("user_prompt", None)
            return record_of(row, at, [Part("user", word(text) or "")], fields)
        text = _observation(fields) if row.table == "observations" else _summary(fields)
        kept = {name: fields.get(name) for name in ("type", "project", "files_read", "files_modified", "files_edited")}
        return record_of(row, at, [Part("summary", text)], kept)


def _observation(fields: Fields) -> str:
    facts = list_of((parse_line(f'{{"it":{fields.get("facts") or "[]"}}}'.encode("utf-8", "replace")) or {}).get("it"))
    lines = [word(fields.get(name)) for name in ("title", "subtitle", "narrative", "text")]
    return "\n".join([*(line for line in lines if line), *(f"- {one}" for one in facts if word(one))])


def _summary(fields: Fields) -> str:
    return "\n".join(f"{title}: {text}" for name, title in _SUMMARY.items() if (text := word(fields.get(name))))


READER = ClaudeMemReader()
