"""The reader of Aider's chat history: one Markdown file in each repository, to which every session is added.

Nothing in it has an id: a session is known by all up to its first prompt, a message by its place in it. What a person
typed and what the program says end with two spaces, which distinguishes them from headings and quotes of an answer;
in a file without such lines a heading counts where no answer goes on.

Source: files of version 0.86; tests/data/agents/aider/README.md.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from datetime import datetime

from crystal.model.named_tuple import NamedTuple
from crystal.transcript.line import Fields, clean_text, digest, format_line, word
from crystal.transcript.line_context import Context
from crystal.transcript.messages import Record, SessionStamp, SnapshotReader, unique_name
from crystal.transcript.parts import Part
from crystal.transcript.snapshot import Snapshot

_START = re.compile(r"# aider chat started at (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\s*")
_BEGINNING = b"# aider chat started at "
_PROMPT, _TOLD, _MARK = "####", ">", "  "
_BLANK = "<blank>"
_MODEL = re.compile(r"^> (?:Main m|M)odel: (\S+)", re.MULTILINE)
_COST = re.compile(r"Tokens: |Cost: ")
_THOUGHT = re.compile(r"-*\s*► \*\*THINKING\*\*\n(.*?)(?:\n-*\s*► \*\*ANSWER\*\*\n|\Z)", re.DOTALL)
_SAID = ("user", "assistant", "tool")


class _Session(NamedTuple):
    """A session in a file: its id, when it began, and its lines."""

    ident: str
    started: str
    lines: list[str]


class AiderReader(SnapshotReader):
    """See ``SnapshotReader``."""

    silent_kinds = ("user", "assistant", "tool", "note")

    def conversations(self, source: Snapshot) -> Iterator[SessionStamp]:
        """Yield the sessions of a file."""
        if _BEGINNING not in source.data:
            raise source.other_form("session")
        for one in _sessions(source):
            yield SessionStamp(one.ident, digest(one.lines))

    def messages(self, source: Snapshot, conversation: SessionStamp) -> Iterator[Record]:
        """Yield the messages of a session: what was typed, what was answered, what the program told."""
        found = next((one for one in _sessions(source) if one.ident == conversation.session), None)
        if found is None:
            return
        model, at = _MODEL.search("\n".join(found.lines)), _local_time(found.started)
        context = Context(at=at).with_texts(cwd=str(source.path.parent), model=model[1] if model else None)
        for number, (role, lines) in enumerate(_messages(found.lines)):
            line = format_line({"role": role, "text": "\n".join(lines)})
            yield Record(f"{found.ident}-{number}-{role}", line, context)

    def parts(self, fields: Fields) -> Iterator[Part]:
        """Yield the parts of a record."""
        role, whole = fields.get("role"), word(fields.get("text")) or ""
        lines = whole.split("\n")
        if role == "user":
            typed = "\n".join(line.removeprefix(_PROMPT).strip() for line in lines).strip()
            yield Part("user", "" if typed == _BLANK else typed)
        elif role == "tool":
            told = [line.removeprefix(_TOLD).strip() for line in lines]
            yield Part("tool_result", "\n".join(one for one in told if one and not _COST.match(one)), "aider")
        elif role == "assistant":
            yield Part("thinking", "\n".join(found.strip() for found in _THOUGHT.findall(whole)))
            yield Part("assistant", _THOUGHT.sub("", whole).strip())


READER = AiderReader()


def _sessions(source: Snapshot) -> Iterator[_Session]:
    """Yield the sessions of a file that have a prompt. A last line that is still being written is left out."""
    text = clean_text(source.data.decode("utf-8", "replace").replace("\r\n", "\n"))
    begun: list[_Session] = []
    for line in text.split("\n")[:-1]:
        start = _START.fullmatch(line)
        if start is not None:
            begun.append(_Session("", start[1], []))
        elif begun:
            begun[-1].lines.append(line)
    times: Counter[str] = Counter()
    for one in begun:
        asked = next((at for at, line in enumerate(one.lines) if line.startswith(_PROMPT)), None)
        if asked is not None:
            beginning = digest("\n".join(one.lines[: asked + 1]))[:8]
            ident = f"aider-{re.sub('[-: ]', '', one.started)}-{beginning}"
            yield one._replace(ident=unique_name(ident, times))


def _messages(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield (role, lines) for each run of lines of one kind. What comes before the first prompt is a note."""
    is_marked = any(line.startswith((_PROMPT, _TOLD)) and line.endswith(_MARK) for line in lines)
    is_asked = False
    role, run = "note", list[str]()
    for line in lines:
        kind = _kind(line, role, is_marked=is_marked)
        is_asked = is_asked or kind == "user"
        kind = kind if is_asked else "note"
        if kind != role and (run or line.strip()):
            if any(one.strip() for one in run):
                yield role, run
            role, run = kind, []
        run.append(line)
    if any(one.strip() for one in run):
        yield role, run


def _kind(line: str, role: str, *, is_marked: bool) -> str:
    """Return whose a line is; ``role`` is that of the line before. An empty one belongs to what is before it."""
    if not line.strip():
        return role
    is_told = line.endswith(_MARK) if is_marked else True
    if is_told and line.startswith(f"{_PROMPT} ") and (is_marked or role != "assistant"):
        return "user"
    return "tool" if is_told and line.startswith(_TOLD) else "assistant"


def _local_time(text: str) -> int | None:
    """Return a time that was written in this machine's zone, ms. The record keeps it."""
    try:
        return int(datetime.strptime(text, "%Y-%m-%d %H:%M:%S").astimezone().timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        return None
