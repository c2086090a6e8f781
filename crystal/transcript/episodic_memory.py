"""The reader of episodic-memory's index: exchanges (a prompt and its answer) and the calls of tools in them.

Its vectors are those of whole exchanges, and are left.

Source: the program's public source up to 1.4; no real database was read.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

from crystal.transcript.line import Fields, word
from crystal.transcript.line_context import Context
from crystal.transcript.messages import Record
from crystal.transcript.parts import Part, unique_id
from crystal.transcript.snapshot import Snapshot, SourceError
from crystal.transcript.stores import NO_TEXT, StoreReader, StoreRow, record_of, session_name
from crystal.transcript.tables import columns_of, moment_of

_CONTEXTS = {"cwd": "cwd", "branch": "git_branch", "model": "model"}


class EpisodicMemoryReader(StoreReader):
    """See ``StoreReader``."""

    def rows(self, source: Snapshot) -> Iterator[StoreRow]:
        """Yield the exchanges, each with its calls after it."""
        names = columns_of(source, "exchanges")
        if "archive_path" not in names:
            raise SourceError(f"{source.path} is no index of episodic-memory", hint="name another with --from")
        session = "session_id" if "session_id" in names else "NULL"
        calls: dict[str, list[tuple[str, object]]] = {}
        if columns_of(source, "tool_calls"):
            for key, exchange, result in source.rows(
                "SELECT id, exchange_id, length(tool_result) FROM tool_calls ORDER BY timestamp, id"
            ):
                calls.setdefault(exchange, []).append((key, result))
        sql = (
            f"SELECT id, {session}, archive_path, length(user_message) + length(assistant_message)"
            " FROM exchanges ORDER BY timestamp, line_start, id"
        )
        for key, named, path, size in source.rows(sql):
            owner = session_name(named or PurePath(str(path)).stem)
            yield StoreRow("exchanges", key, unique_id(str(key), owner), owner, None, size, "" if size else NO_TEXT)
            for call, result in calls.pop(key, []):
                yield StoreRow("tool_calls", call, unique_id(str(call), owner), owner, None, result)
        for call, _ in (one for some in calls.values() for one in some):
            yield StoreRow("tool_calls", call, left_out="a call of an exchange that is gone")

    def record(self, row: StoreRow, fields: Fields) -> Record:
        """Return the record of an exchange, or of a call with its result."""
        at = moment_of(fields.pop("timestamp", None))
        if row.table == "tool_calls":
            tool, asked, result = (word(fields.pop(f"tool_{name}", None)) for name in ("name", "input", "result"))
            said = [Part("tool_call", f"{tool}\n{asked or ''}", tool), Part("tool_result", result or "", tool)]
            return record_of(row, at, said, fields)
        context = Context().with_texts(**{name: fields.get(column) for name, column in _CONTEXTS.items()})
        prompt, answer = (word(fields.pop(f"{who}_message", None)) or "" for who in ("user", "assistant"))
        return record_of(row, at, [Part("user", prompt), Part("assistant", answer)], fields, context)


READER = EpisodicMemoryReader()
