"""Write one Markdown file for each session, and an index.

A text is quoted, so that what it opens ends with it; code in it is fenced anew, and outside of code it can neither hold
HTML nor fetch an image. A call, a result or a thought is folded and fenced as a whole.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from crystal.export.labels import Wording
from crystal.export.whole_folder import new_file
from crystal.sessions.reading import SessionSummary, ShownTurn, stream_turns
from crystal.store import Store
from crystal.text.slug import slug
from crystal.timewords.parse import iso, local

INDEX = "index.md"
FOLDED = ("tool_call", "tool_result", "thinking")
_SLUG_CHARACTERS = 50
_MARKUP = re.compile(r"([\\`*_\[\]<>&#|~!$^=])")
_FENCE = re.compile(r"\s*(`{3,}|~{3,})([^`]*)")
_ACTIVE = re.compile(r"<|(?<=!)\[")


def write_markdown(store: Store, sessions: Iterable[SessionSummary], folder: Path, wording: Wording, now: int) -> None:
    """Write a file for each session, in order, and ``index.md`` with links to them, into an empty folder."""
    taken: set[str] = set()
    with new_file(folder / INDEX) as index:
        _put(index, "# Conversations", "", f"Exported on {_moment(now)}.", "")
        for session in sessions:
            name = _free_name(session, taken)
            with new_file(folder / name) as file:
                _put(file, *session_lines(store, session, wording))
            _put(index, _entry(session, name, wording))


def session_lines(store: Store, session: SessionSummary, wording: Wording) -> Iterator[str]:
    """Yield the lines of a session's file."""
    yield from _head(session, wording)
    for turn in stream_turns(store, session.id):
        yield from _turn(turn, session.harness, wording)


def _put(file: BinaryIO, *lines: str) -> None:
    file.write("".join(line + "\n" for line in lines).encode("utf-8", "replace"))


# ----------------------------------------------------------------------------------------------------------- names


def _free_name(session: SessionSummary, taken: set[str]) -> str:
    """Return a file name that every system takes: the day, words of the title, the beginning of the id."""
    day = "undated" if session.started_at is None else f"{local(session.started_at):%Y-%m-%d}"
    parts = [day, slug(session.title)[:_SLUG_CHARACTERS].strip("-"), slug(session.id).replace("-", "")[:8]]
    stem = "-".join(part for part in parts if part)
    name, number = stem, 1
    while name in taken:
        number += 1
        name = f"{stem}-{number}"
    taken.add(name)
    return f"{name}.md"


# ----------------------------------------------------------------------------------------------------------- parts


def _head(session: SessionSummary, wording: Wording) -> Iterator[str]:
    facts = {
        "id": session.id, "title": session.title, "agent": wording.agent(session.harness), "project": session.project,
        "folder": session.cwd, "branch": session.branch, "device": session.device,
        "started": iso(session.started_at), "last": iso(session.last_at), "turns": session.turns,
    }  # fmt: skip
    yield "---"
    for name, value in facts.items():
        if value is not None:
            # JSON's texts and numbers are YAML's, too.
            shown = _one_line(value, wording) if isinstance(value, str) else value
            yield f"{name}: {json.dumps(shown, ensure_ascii=False)}"
    yield from ("---", "", f"# {_plain(session.title, wording) or 'Without words'}", "")


def _entry(session: SessionSummary, name: str, wording: Wording) -> str:
    when = "" if session.last_at is None else f"{_moment(session.last_at)} "
    facts = [session.project, wording.agent(session.harness), f"{session.turns:,} turns"]
    shown = " · ".join(_plain(fact, wording) for fact in facts if fact)
    return f"- {when}[{_plain(session.title, wording) or 'without words'}]({name}) · {shown}"


def _turn(turn: ShownTurn, harness: str, wording: Wording) -> Iterator[str]:
    facts = [wording.speaker(turn.role, turn.tool, harness)]
    if turn.subagent:
        facts.append(f"subagent {turn.subagent}")
    if turn.timestamp is not None:
        facts.append(_moment(turn.timestamp))
    if turn.copied:
        facts.append("from the session that this one forks")
    name = " · ".join(facts)
    text = wording.harmless(turn.text.replace("\r\n", "\n").replace("\r", "\n"))
    if turn.role in FOLDED:
        yield from ("<details>", f"<summary>{html.escape(_one_line(name, wording))}</summary>", "")
        yield from fenced(text)
        yield from ("", "</details>", "")
        return
    yield from (f"### {_plain(name, wording)}", "")
    yield from (f"> {line}".rstrip() for line in quotable(text))
    yield ""


def _moment(ms: int) -> str:
    return f"{local(ms):%Y-%m-%d %H:%M}"


def _one_line(text: str, wording: Wording) -> str:
    return " ".join(wording.harmless(text).split())


def _plain(text: str, wording: Wording) -> str:
    """Return a text as one line that means nothing in Markdown."""
    return _MARKUP.sub(r"\\\1", _one_line(text, wording))


def fenced(text: str, language: str = "") -> list[str]:
    """Return a text as a fenced block that it cannot end."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return [fence + language, *text.split("\n"), fence]


def quotable(text: str) -> Iterator[str]:
    """Yield the lines of a text such that only its structure remains active: its code is fenced anew, the rest escaped.

    A ``<`` in a code span is escaped too: where a span ends depends on the program that shows it.
    """
    code: list[str] | None = None
    closing, language = "", ""
    for line in text.split("\n"):
        match = _FENCE.fullmatch(line)
        if code is not None:
            if match and match[1].startswith(closing) and not match[2].strip():
                yield from (*fenced("\n".join(code), language), "")
                code = None
            else:
                code.append(line)
        elif match:
            code, closing = [], match[1]
            found = re.match(r"[\w+#-]{1,30}", match[2].strip())
            language = found[0] if found else ""
            yield ""
        else:
            yield _ACTIVE.sub(lambda found: "&lt;" if found[0] == "<" else "&#91;", line)
    if code is not None:
        yield from fenced("\n".join(code), language)
