"""Transcripts: framing (bytes to lines), and the readers that turn lines into turns, one for each harness.

Framing never fails on content; reading is pure, tolerant, and can be run again when it improves. The package does not
use the store, the clock, secrets or file owners. ``reader`` says what a reader does, ``claude_code`` is one.
"""

from crystal.transcript.framing import last_newline, read_segment
from crystal.transcript.line_context import Context, complete, parse_completed, revised_ids, without_context
from crystal.transcript.parts import whole_results
from crystal.transcript.reader import (
    FORGOTTEN,
    LineFacts,
    Record,
    SessionStamp,
    Snapshot,
    SnapshotReader,
    SourceError,
    TranscriptReader,
    advanced,
    completed,
    find_facts,
    identify,
    is_forgotten,
    reader_of,
    split_key,
)
from crystal.transcript.record_kinds import NOT_JSON, RecordCounts, count_records, is_known

__all__ = [
    "FORGOTTEN",
    "NOT_JSON",
    "Context",
    "LineFacts",
    "Record",
    "RecordCounts",
    "SessionStamp",
    "Snapshot",
    "SnapshotReader",
    "SourceError",
    "TranscriptReader",
    "advanced",
    "complete",
    "completed",
    "count_records",
    "find_facts",
    "identify",
    "is_forgotten",
    "is_known",
    "last_newline",
    "parse_completed",
    "read_segment",
    "reader_of",
    "revised_ids",
    "split_key",
    "whole_results",
    "without_context",
]
