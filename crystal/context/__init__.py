"""What a session may be told at its start: which memories and sessions, in how many words, and where it lies ready.

Only what the user and the assistant said, and what one of them asked to have remembered, is ever told unasked: no
output of tools, no page of the web, no subagent, no thinking. Source: docs/adr/0022-session-context.md.
"""

from __future__ import annotations

from crystal.context.choosing import Candidate, Choice, LastSession, Told, choose, is_trusted, rank
from crystal.context.files import Ready, Rules, clear_contexts, take_told, write_contexts
from crystal.context.same import is_same_project
from crystal.context.tokens import count_tokens

__all__ = [
    "Candidate", "Choice", "LastSession", "Ready", "Rules", "Told", "choose", "clear_contexts", "count_tokens",
    "is_same_project", "is_trusted", "rank", "take_told", "write_contexts",
]  # fmt: skip
