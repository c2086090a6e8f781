"""Fence a command's output for an agent, which reads it as recalled text; capture must not store it again."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

AGENT_VARIABLES = ("CLAUDECODE", "AI_AGENT", "CODEX_SANDBOX", "CURSOR_AGENT", "GEMINI_CLI", "OPENCODE")
"""Agents set one of these variables in the shells that they start."""
RECALLING = frozenset(
    "search show sessions memories get recall changed blame how fix about assist forget vault files".split()
)
"""The commands that print recalled text, except ``context``, which prints the fence itself."""


def is_for_agent(command: str | None, arguments: Sequence[str]) -> bool:
    """Return whether an agent will read recalled text; ``--raw`` prints transcript lines for programs."""
    if command not in RECALLING or "--raw" in arguments or sys.stdout.isatty():
        return False
    return any(os.environ.get(name) for name in AGENT_VARIABLES)


def run_fenced(run: Callable[[], Any]) -> Any:
    """Run a command with its standard output held back, then print the output in a fence, also after a failure."""
    terminal = sys.stdout
    held = io.TextIOWrapper(io.BytesIO(), encoding=terminal.encoding or "utf-8", errors="replace", newline="\n")
    sys.stdout = held
    try:
        return run()
    finally:
        sys.stdout = terminal
        held.flush()
        text = held.buffer.getvalue().decode(held.encoding, "replace")
        if text.strip():
            terminal.write(_fenced(text))


def _fenced(text: str) -> str:
    from crystal.text.fence import closing, fenced, new_nonce, opening
    from crystal.text.quoting import quote

    nonce, line = new_nonce(), text.strip()
    if line.startswith('{"') and line.endswith("}") and "\n" not in line:
        return f'{{"fence": "{opening(nonce)} data:", {line[1:-1]}, "fence_end": "end of data {closing(nonce)}"}}\n'
    return f"{fenced(quote(text.rstrip()), nonce)}\n"
