"""Claude Code's transcripts: framing (bytes to lines) and parsing (lines to turns).

Framing never fails on content; parsing is pure, tolerant, and can be run again when it improves. The package does not
use the store, the clock, secrets or file owners. One file per topic: ``framing`` newlines, ``line`` fields,
``claude_code`` turns, ``injected`` text inserted by the client, ``content`` blocks as text, ``names`` paths, ``titles``
session titles.
"""

from crystal.transcript.claude_code import FORGOTTEN, parse_turns, turns_of
from crystal.transcript.framing import SEGMENT_BYTES, last_newline, read_segment, split_lines
from crystal.transcript.line import NO_FACTS, LineFacts, ParsedLine, facts_of, line_facts, parse_line
from crystal.transcript.names import transcript_key
from crystal.transcript.titles import titles

__all__ = [
    "FORGOTTEN",
    "NO_FACTS",
    "SEGMENT_BYTES",
    "LineFacts",
    "ParsedLine",
    "facts_of",
    "last_newline",
    "line_facts",
    "parse_line",
    "parse_turns",
    "read_segment",
    "split_lines",
    "titles",
    "transcript_key",
    "turns_of",
]
