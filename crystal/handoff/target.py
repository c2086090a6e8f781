"""Interface of session writers, and the lookup of a harness's writer.

A writer knows the form of one agent's sessions, and the command that resumes one. It writes no file itself.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crystal.config.harnesses import CLAUDE_CODE
from crystal.errors import UsageError
from crystal.handoff.talk import Talk

TARGETS = {
    CLAUDE_CODE: "claude_code",
    "codex": "codex",
    "gemini-cli": "gemini_cli",
    "opencode": "opencode",
    "pi": "pi",
}
"""The modules in this package whose function ``write`` writes the sessions of a harness."""


@dataclass(frozen=True, slots=True)
class NativeSession:
    """A session as its agent keeps it.

    Attributes:
        session: Its id.
        data: The content of its file.
        resume: The command that goes on with it.
        path: Where the file belongs. None if the program imports it.
        load: The command that imports it, without the file.
        undo: The command that removes it again; empty if its files are to be deleted.
        beside: Small files that the agent needs to find it.
    """

    session: str
    data: bytes
    resume: tuple[str, ...]
    path: Path | None = None
    load: tuple[str, ...] = ()
    undo: tuple[str, ...] = ()
    beside: dict[Path, bytes] = field(default_factory=dict)


Writer = Callable[[Talk, Path], NativeSession]
"""Returns a session as its agent keeps it.

It gets what was said, and the agent's folder on this machine: the one of its first place in ``HARNESSES``. It raises
UnavailableError if the agent lacks something that it would need to go on.
"""


def writer_of(harness: str) -> Writer:
    """Return what writes an agent's sessions.

    Raises:
        UsageError: There is nothing.
    """
    if harness not in TARGETS:
        raise UsageError(
            f"crystal cannot write sessions of {harness!r}",
            hint=f"use one of {', '.join(TARGETS)}; for any other agent: --brief",
        )
    write: Writer = importlib.import_module(f"crystal.handoff.{TARGETS[harness]}").write
    return write


def lines(records: Iterable[dict[str, Any]]) -> bytes:
    """Return records as JSON lines."""
    return b"".join(json.dumps(record, ensure_ascii=False).encode("utf-8", "replace") + b"\n" for record in records)
