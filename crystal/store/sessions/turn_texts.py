"""Read the texts of turns, joined from their chunks."""

from collections.abc import Iterable

from crystal.model.capture import Chunk
from crystal.store.connection import Store
from crystal.text.chunking import merge


def turn_texts(store: Store, turns: Iterable[int], most: int | None = None) -> dict[int, tuple[int, str]]:
    """Return the texts of turns, joined from their chunks, with the id of the first chunk, by turn.

    At most ``most`` characters of each; None for all.
    """
    found: dict[int, list[tuple[int, int, str]]] = {}
    for turn, chunk, start, text in store.rows(
        "SELECT turn, id, start, text FROM chunks WHERE turn IN (SELECT value FROM json_each(?1))"
        " AND (?2 IS NULL OR start < ?2) ORDER BY turn, start",
        ([*turns], most),
    ):
        found.setdefault(turn, []).append((chunk, start, text))
    return {turn: (parts[0][0], _laid_together(parts)[:most]) for turn, parts in found.items()}


def _laid_together(parts: list[tuple[int, int, str]]) -> str:
    """Join the text of chunks; an ellipsis stands for a stretch that is in none of them (the store is damaged)."""
    chunks = [Chunk(start, text) for _, start, text in parts]
    try:
        return merge(chunks)
    except ValueError:
        return "\n[...]\n".join(chunk.text for chunk in chunks)
