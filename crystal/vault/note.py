"""Convert a memory to a Markdown file and back: a front matter with its fields, then its text. Pure.

crystal writes its own fields only: other lines of the front matter are the user's and stay.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

from crystal.model.named_tuple import NamedTuple
from crystal.model.recall import Remembered
from crystal.timewords.parse import iso

FIELDS = ("id", "kind", "key", "project", "created", "updated")
_FRONT_MATTER = re.compile(r"\A---[ \t]*\n(?P<lines>(?:.*\n)*?)---[ \t]*(?:\n|\Z)")
_ENDLESS = re.compile(r"---[ \t]*\n(?:.*\n)*?id:[ \t]+mem-")
_OURS, _THEIRS = re.compile(r"^<{7} .*\n", re.MULTILINE), re.compile(r"^>{7} ", re.MULTILINE)
_FIELD = re.compile(rf"(?P<name>{'|'.join(FIELDS)}):(?:[ \t]+(?P<value>.*))?")


class MemoryNote(NamedTuple):
    """Content of a file: the fields of crystal's that it has, the other lines of its front matter, its text."""

    fields: Mapping[str, str]
    others: tuple[str, ...]
    body: str

    @property
    def text(self) -> str:
        """Return the text without white space around it, as a memory has it."""
        return self.body.strip()


def unfinished(text: str) -> str | None:
    """Return why a file is not finished (a merge, an open front matter); None if it is."""
    ours = _OURS.search(text)
    if ours is not None and _THEIRS.search(text, ours.end()):
        return "a merge is not finished: remove the lines with <<<<<<<, ======= and >>>>>>>"
    is_endless = _FRONT_MATTER.match(text) is None and _ENDLESS.match(text)
    return "its front matter does not end: add a line ---" if is_endless else None


def parse_note(text: str) -> MemoryNote:
    """Parse a file; every text is valid."""
    found = _FRONT_MATTER.match(text)
    if found is None:
        return MemoryNote({}, (), text)
    fields: dict[str, str] = {}
    others = []
    lines = found["lines"].split("\n")[:-1]
    for line, below in zip(lines, [*lines, ""][1:], strict=True):
        field = _FIELD.fullmatch(line)
        is_list = field is not None and not field["value"] and below.startswith((" ", "\t", "-"))
        if field is None or is_list or field["name"] in fields:
            others.append(line)
        else:
            fields[field["name"]] = _value(field["value"] or "")
    return MemoryNote(fields, tuple(others), text[found.end() :])


def _value(written: str) -> str:
    plain = written.strip()
    if plain.startswith('"'):
        try:
            return str(json.loads(plain))
        except ValueError:
            return plain.strip('"')
    if len(plain) > 1 and plain.startswith("'") and plain.endswith("'"):
        return plain[1:-1].replace("''", "'")
    return "" if plain in ("null", "~") else plain


def with_id(text: str, ident: str) -> str:
    """Return a file with an id in its front matter; everything else is unchanged."""
    found = _FRONT_MATTER.match(text)
    if found is None:
        return f"---\nid: {ident}\n---\n\n{text}"
    lines = [line for line in found["lines"].split("\n") if _name(line) != "id"]
    return "\n".join(["---", f"id: {ident}", *lines]) + text[found.end("lines") :]


def render_note(one: Remembered, before: MemoryNote | None, *, keeps_body: bool) -> str:
    """Return the file of a memory.

    Args:
        one: The memory.
        before: The file's present content; its other lines stay.
        keeps_body: True if its body has the memory's text already, and stays too.
    """
    others = () if before is None else before.others
    lines = ["---", *(line for line in _fields(one) if _name(line) not in map(_name, others)), *others, "---", ""]
    if before is not None and keeps_body:
        return "\n".join(lines) + before.body
    return "\n".join([*lines, text_of_memory(one), ""])


def _name(line: str) -> str:
    return line.partition(":")[0]


def _fields(one: Remembered) -> Iterator[str]:
    yield f"id: {one.id}"
    yield f"kind: {one.category}"
    for name, value in (("key", one.key), ("project", one.project)):
        if value is not None:
            yield f"{name}: {json.dumps(value, ensure_ascii=False)}"  # a string of JSON is also one of YAML
    yield f"created: {iso(one.created_at)}"
    yield f"updated: {iso(one.updated_at)}"


def text_of_memory(one: Remembered) -> str:
    """Return the text of a memory as its file has it."""
    return one.text.replace("\r\n", "\n").strip()


def changed_fields(note: MemoryNote, one: Remembered) -> dict[str, str]:
    """Return the values of a file that differ from its memory, by the name of the argument that changes them.

    A field that is missing in the file is not changed; an empty field is removed.
    """
    said = {"kind": ("category", one.category), "key": ("key", one.key), "project": ("project", one.project)}
    found = {} if note.text == text_of_memory(one) else {"text": note.text}
    for name, (argument, value) in said.items():
        if name in note.fields and note.fields[name] != (value or ""):
            found[argument] = note.fields[name]
    return found
