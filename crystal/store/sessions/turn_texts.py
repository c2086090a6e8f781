"""Read the texts of turns, joined from their chunks."""

from collections.abc import Iterable

from crystal.model.capture import Chunk
from crystal.store.connection import Store
from crystal.text.chunking import merge


def turn_texts(store: Store, turns: Iterable[int], most: int | None = None) -> dict[int, tuple[int, str]]:
    """Return (id of the first chunk, text) of turns, joined from their chunks, by turn.

    ``most`` limits the characters of each text; None means no limit.
    """
    found: dict[int, list[tuple[int, int, str]]] = {}
    for turn, chunk, start, text in store.rows(
        "SELECT turn, id, start, text FROM chunks WHERE turn IN (SELECT value FROM json_each(?1))"
        " AND (?2 IS NULL OR start < ?2) ORDER BY turn, start",
        ([*turns], most),
    ):
        found.setdefault(turn, []).append((chunk, start, text))
    return {turn: (parts[0][0], _join_chunks(parts)[:most]) for turn, parts in found.items()}


def _join_chunks(parts: list[tuple[int, int, str]]) -> str:
    """Join the text of chunks; an ellipsis replaces a missing part, which means that the store is damaged."""
    chunks = [Chunk(start, text) for _, start, text in parts]
    try:
        return merge(chunks)
    except ValueError:
        return "\n[...]\n".join(chunk.text for chunk in chunks)
