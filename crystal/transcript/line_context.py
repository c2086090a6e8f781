"""Complete a line with what it does not say itself: its session, folder, branch, model, title, id.

Most harnesses write these once, in other lines or beside the file. Capture adds them to each line before anything else
sees it, so that privacy, forgetting, the archive and a rebuild can look at one line alone. The line stays as it is:
``{"type":...}`` becomes ``{"crystal":{...},"type":...}``, and what is no JSON object becomes the text of one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from crystal.model.named_tuple import NamedTuple
from crystal.transcript.line import Fields, format_line, identifier, list_of, parse_line, word

_PREFIX = b'{"crystal":{'
_FIELD = "crystal"
_TEXT = "crystalText"
MAX_CONTEXT = 2_000
"""Characters of one value: a title or a path is short, and would be repeated in every line."""


class Context(NamedTuple):
    """Facts about a line that the line itself does not contain.

    Attributes:
        session: The session that it belongs to.
        subagent: The subagent that said it, in a transcript of its own.
        cwd: The folder in which the agent works.
        branch: The Git branch.
        model: The model that answers.
        title: The session's title.
        id: The line's id, if it has none of its own: the same whenever it is read.
        at: When it was written, ms, if the line does not say so.
        revised: Whether it replaces an earlier state of the record with this id.
        replaces: The ids of other records that said the same in a file that had less of the conversation.
        turn: The turn of the agent that it belongs to and its place in that turn, where this tells lines without ids
            apart.
        apart: The line's id in place of its own, which an earlier line has that says something else.
    """

    session: str | None = None
    subagent: str | None = None
    cwd: str | None = None
    branch: str | None = None
    model: str | None = None
    title: str | None = None
    id: str | None = None
    at: int | None = None
    revised: bool = False
    replaces: tuple[str, ...] = ()
    turn: str | None = None
    apart: str | None = None

    def with_texts(
        self,
        *,
        cwd: object = None,
        branch: object = None,
        model: object = None,
        title: object = None,
    ) -> Context:
        """Return the context with those values that are usable texts; the others leave it as it is."""
        return self._replace(
            cwd=_usable(cwd) or self.cwd,
            branch=_usable(branch) or self.branch,
            model=_usable(model) or self.model,
            title=_usable(title) or self.title,
        )


def complete(line: bytes, context: Context) -> bytes:
    """Return the line with its context; unchanged if there is none."""
    said = {name: value for name, value in context._asdict().items() if value not in (None, False, ())}
    if not said or not line.strip():
        return line
    head = b'{"crystal":' + format_line(said)
    body = line.strip()
    if _may_be_completed(body):
        at = len(body) - len(body[1:].lstrip())
        return b"".join((head, b"" if at == len(body) - 1 else b",", memoryview(body)[at:]))
    text = format_line(line.decode("utf-8", "replace"))
    return head + b',"' + _TEXT.encode() + b'":' + text + b"}"


def _may_be_completed(body: bytes) -> bool:
    """Return whether a line is an object without a context of its own, which would win over one that is added."""
    fields = parse_line(body) if body.startswith(b"{") and body.endswith(b"}") else None
    return fields is not None and _FIELD not in fields


def without_context(line: bytes) -> bytes:
    """Return the line as its harness wrote it."""
    if not line.startswith(_PREFIX):
        return line
    fields = parse_line(line) or {} if _TEXT.encode() in line else {}
    if isinstance(fields.get(_TEXT), str):
        return str(fields[_TEXT]).encode("utf-8", "surrogatepass")
    end = _end_of_object(line, len(_PREFIX) - 1)
    rest = line[end:].lstrip()
    return b"{" + (rest[1:] if rest.startswith(b",") else rest)


def set_apart(line: bytes, name: str) -> bytes:
    """Return a line with an id in place of its own."""
    return complete(without_context(line), parse_completed(line)[1]._replace(apart=name))


def id_apart(fields: Fields) -> str | None:
    """Return the id that a line was given in place of its own."""
    said = fields.get(_FIELD)
    return identifier(said.get("apart")) if isinstance(said, dict) else None


def parse_completed(line: bytes) -> tuple[Fields, Context]:
    """Parse a line into its own fields and its context; both are empty where they are missing."""
    fields = parse_line(line) or {}
    said = fields.pop(_FIELD, None)
    return fields, _context_of(said) if isinstance(said, dict) else Context()


def revised_ids(lines: Iterable[bytes]) -> set[str]:
    """Return the ids of the records that lines replace: an earlier state of themselves, and others."""
    found: set[str] = set()
    for line in lines:
        if b'"revised"' in line or b'"replaces"' in line:
            context = parse_completed(line)[1]
            found.update(context.replaces, [context.id] if context.revised and context.id is not None else [])
    return found


def text_of(fields: Fields) -> str | None:
    """Return the text of a line that is no JSON object, as ``complete`` stored it."""
    return word(fields.get(_TEXT))


def _context_of(said: dict[str, Any]) -> Context:
    known: dict[str, Any] = {name: read(said[name]) for name, read in _READ.items() if name in said}
    at = said.get("at")
    if isinstance(at, int) and not isinstance(at, bool):
        known["at"] = at
    if "replaces" in said:
        known["replaces"] = tuple(filter(None, map(identifier, list_of(said["replaces"]))))
    return Context(**known, revised=said.get("revised") is True)


_READ: dict[str, Callable[[object], str | None]] = {
    **dict.fromkeys(("cwd", "branch", "model", "title"), word),
    **dict.fromkeys(("session", "subagent", "id", "turn", "apart"), identifier),
}


def _usable(value: object) -> str | None:
    text = word(value)
    return None if text is None else text[:MAX_CONTEXT]


def _end_of_object(line: bytes, start: int) -> int:
    """Return the offset after the object that begins at ``start``. ``complete`` wrote it: it holds no objects."""
    at, is_text = start, False
    while at < len(line):
        letter = line[at : at + 1]
        if is_text and letter == b"\\":
            at += 1
        elif letter == b'"':
            is_text = not is_text
        elif letter == b"}" and not is_text:
            return at + 1
        at += 1
    return at
