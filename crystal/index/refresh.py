"""Keeping the index: taking in what is new, forgetting what is gone, making anew what is lost."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from crystal.store import Store


@dataclass(frozen=True, slots=True)
class Refreshed:
    """What a refresh did: ``documents`` in the index, ``parts`` written, ``left`` chunks for the next one."""

    documents: int
    parts: int
    left: int


def refresh(store: Store, folder: Path, *, now: int, budget_seconds: float = 20.0) -> Refreshed:
    """Bring the index up to date, as far as the time allows."""
    raise NotImplementedError
