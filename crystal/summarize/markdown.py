"""Format a session's summary file: its name, its front matter and its body. Pure.

Source: docs/reference/session-summary.md.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from crystal.store.sessions.conversations import Session
from crystal.store.sessions.sessions import SessionCounts
from crystal.summarize.wording import code_span, escaped
from crystal.timewords.parse import iso

SCHEMA = 1
MAX_LISTED = 50
FOLDER = "sessions"

_SAFE_ID = re.compile(r"[a-z0-9][a-z0-9_-]{0,99}")
_UNSAFE = re.compile(r"[^a-z0-9_]+")
_UNPRINTABLE = re.compile(
    "[^\t\x20-\x7e\xa0-\u200a\u2010-\u2027\u202f-\u2065\u206a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010fffd]"
)
Scalar = str | int | None


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A part of a summary: one line of text, with an optional label (``Asked``)."""

    text: str
    label: str = ""


@dataclass(frozen=True, slots=True)
class SummaryText:
    """Title, summary and topics: plain text, one line each, nothing escaped yet."""

    title: str
    paragraphs: tuple[Paragraph, ...]
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FileTouched:
    """A file used by tools; ``how`` is a sorted selection of ``edited``, ``read`` and ``written``."""

    path: str
    how: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Actions:
    """The actions of a session: the files used and the commands run, each once, in the order of first use."""

    files: tuple[FileTouched, ...] = ()
    commands: tuple[str, ...] = ()


def file_stem(session_id: str) -> str:
    """Return a session id as a file name: unchanged, or made safe with a hash, so that no two ids share a name.

    Also safe inside an HTML comment and on case-insensitive file systems.
    """
    if _SAFE_ID.fullmatch(session_id) and "--" not in session_id and not session_id.endswith("-"):
        return session_id
    digest = hashlib.sha256(session_id.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return f"{_UNSAFE.sub('-', session_id.lower())[:60].strip('-') or 'session'}-{digest}"


def new_summary_path(session: Session) -> str:
    """Return the path of a new summary below the agent's folder: the UTC day of the session's start, and its id."""
    day = (iso(session.started_at) or "undated")[:10]
    return f"{FOLDER}/{day}--{file_stem(session.session_id)}.md"


def render(
    session: Session, counts: SessionCounts, text: SummaryText, done: Actions, *, model: str | None, instead: str | None
) -> str:
    """Return the content of the file.

    Args:
        session: The session.
        counts: Numbers of turns and calls.
        text: Title, summary and topics.
        done: Files and commands.
        model: The model that wrote the text; None for a simple summary.
        instead: Why a configured model did not write it, or None.
    """
    names = ("agent", "device", "project", "cwd", "git_root", "branch")
    front: list[tuple[str, Scalar]] = [("schema", SCHEMA), ("session", session.session_id), ("title", text.title)]
    front += [(name, getattr(session, name)) for name in names]
    front += [("start", iso(session.started_at)), ("end", iso(session.last_at))]
    counted = [(name, getattr(counts, name)) for name in ("user", "assistant", "tool_calls", "subagents")]
    made: list[tuple[str, Scalar]] = [("mode", "llm" if model else "simple"), ("model", model), ("instead", instead)]
    lines = ["---", *_fields(front), "counts:", *(f"  {name}: {number}" for name, number in counted)]
    lines += [*_fields(made), "---", "", f"# {escaped(text.title)}", "", "## Summary", ""]
    for paragraph in text.paragraphs:
        label = f"**{paragraph.label}:** " if paragraph.label else ""
        lines += [label + escaped(paragraph.text), ""]
    lines += [] if text.paragraphs else ["None.", ""]
    lines += _section("Key topics", [escaped(topic) for topic in text.topics])
    lines += _section("Files touched", [f"{code_span(file.path)} ({', '.join(file.how)})" for file in done.files])
    lines += _section("Commands run", [code_span(command) for command in done.commands])
    return "\n".join(lines).rstrip("\n") + "\n"


def _section(name: str, items: list[str]) -> list[str]:
    shown = [f"- {item}" for item in items[:MAX_LISTED]]
    if len(items) > MAX_LISTED:
        shown.append(f"- and {len(items) - MAX_LISTED} more")
    return [f"## {name}", "", *(shown or ["None."]), ""]


def _fields(pairs: list[tuple[str, Scalar]]) -> list[str]:
    return [f"{key}: {_scalar(value)}" for key, value in pairs]


def _scalar(value: Scalar) -> str:
    """Return a YAML 1.2 scalar. Every text is double-quoted, so it cannot be a date, a boolean, a comment or a key."""
    if value is None:
        return "null"
    if isinstance(value, int):
        return str(value)
    quoted = value.replace("\\", "\\\\").replace('"', '\\"').replace("\t", "\\t").replace("\n", "\\n")
    return f'"{_UNPRINTABLE.sub(_escape, quoted)}"'


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    if 0xD800 <= code <= 0xDFFF:  # a lone surrogate, which UTF-8 cannot encode
        return "\ufffd"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
