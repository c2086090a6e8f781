"""Fence what a command prints when an agent runs it: it is recalled text there too, and must not be captured again."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

AGENT_VARIABLES = ("CLAUDECODE", "AI_AGENT", "CODEX_SANDBOX", "CURSOR_AGENT", "GEMINI_CLI", "OPENCODE")
"""Agents set one of them in the shells that they start."""
RECALLING = frozenset("search show sessions memories get recall changed blame how fix about assist".split())
"""The commands that print recalled text, but for ``context``, which prints the fence itself."""


def is_for_agent(command: str | None, arguments: Sequence[str]) -> bool:
    """Tell whether an agent will read recalled text; ``--raw`` prints transcript lines for programs."""
    if command not in RECALLING or "--raw" in arguments or sys.stdout.isatty():
        return False
    return any(os.environ.get(name) for name in AGENT_VARIABLES)


def run_fenced(run: Callable[[], Any]) -> Any:
    """Run a command with standard output held back, then print it in a fence, also if it failed midway."""
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
