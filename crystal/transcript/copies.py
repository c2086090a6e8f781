"""Lines that repeat turns of another session: crystal writes them when an agent goes on with another agent's session.

Such a line says for each of its texts which turn it repeats. So the turn keeps its identity, whatever agent it is read
from: it is stored once, and forgotten everywhere. Its words are the turn's own, so nothing is taken off them here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from crystal.model.capture import Role, Turn
from crystal.model.named_tuple import NamedTuple
from crystal.transcript.line import Fields, clean_text, fields_of, identifier, list_of, word

COPIES = "crystalCopies"
"""Field of a line, or of the metadata of each of its parts, with the identities of the turns."""


class Copy(NamedTuple):
    """The identity of a turn."""

    uuid: str
    part: int


def listed(copies: Sequence[Copy | None]) -> list[list[str | int] | None]:
    """Return the value of the field for the texts of a line; None stands for a text that crystal added."""
    return [None if copy is None else [copy.uuid, copy.part] for copy in copies]


def copied_turns(fields: Fields, turn: Turn) -> list[Turn] | None:
    """Return the turns that a line repeats; None for a line that an agent wrote.

    Args:
        fields: Of the line.
        turn: What the turns share: times and places.
    """
    blocks, values = _blocks(fields), fields.get(COPIES)
    if values is None:
        marks = [fields_of(block.get("metadata")) for block in blocks]
        values = [mark.get(COPIES) for mark in marks] if any(COPIES in mark for mark in marks) else None
    return None if values is None else list(_copies(blocks, list_of(values), turn._replace(role=_role(fields))))


def _copies(blocks: Sequence[Fields], values: Sequence[object], turn: Turn) -> Iterator[Turn]:
    for block, value in zip(blocks, values, strict=False):
        copy, text = _copy(value), clean_text(word(block.get("text")) or "")
        if copy is not None and text:
            yield turn._replace(uuid=copy.uuid, part=copy.part, text=text, full_length=len(text))


def _blocks(fields: Fields) -> list[Fields]:
    """Return the blocks of text in a line, whichever agent's form it has."""
    inner = fields_of(fields.get("message")) or fields_of(fields.get("payload")) or fields
    return [fields_of(block) for block in list_of(inner.get("content")) or list_of(inner.get("parts"))]


def _role(fields: Fields) -> Role:
    inner = [fields_of(fields.get(name)) for name in ("message", "payload", "info")]
    return "user" if "user" in (fields.get("type"), *(one.get("role") for one in inner)) else "assistant"


def _copy(value: object) -> Copy | None:
    uuid, part = value if isinstance(value, list) and len(value) == 2 else (None, None)
    if not isinstance(uuid, str) or identifier(uuid) is None or not isinstance(part, int) or isinstance(part, bool):
        return None
    return Copy(uuid, part) if 0 <= part < 1 << 31 else None
