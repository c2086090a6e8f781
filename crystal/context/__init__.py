"""Context of a new session: which memories and sessions to show, how long, and the prepared files.

Only text of the user and the assistant, and memories that one of them asked for, is ever shown without a request: no
tool output, web pages, subagents or thinking. Source: docs/adr/0022-session-context.md.
"""

from __future__ import annotations

from crystal.context.choosing import Choice, LastSession, MemoryCandidate, Told, choose, is_trusted, rank
from crystal.context.files import Ready, Rules, clear_contexts, take_told, write_contexts
from crystal.context.same import is_same_project
from crystal.context.tokens import count_tokens

__all__ = [
    "Choice",
    "LastSession",
    "MemoryCandidate",
    "Ready",
    "Rules",
    "Told",
    "choose",
    "clear_contexts",
    "count_tokens",
    "is_same_project",
    "is_trusted",
    "rank",
    "take_told",
    "write_contexts",
]  # fmt: skip
