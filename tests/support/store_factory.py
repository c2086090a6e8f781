"""Stores with conversations in them, written the way ingest writes them: for the tests of search and reading."""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Sequence
from pathlib import Path

from crystal.config.harnesses import CLAUDE_CODE
from crystal.errors import CrystalError
from crystal.model.capture import Origin, Project, Turn
from crystal.store import Store
from crystal.store.capture.turns import add_turns
from crystal.store.search.vectors import ensure_generation, pending_chunks, put_vectors
from crystal.text.chunking import split

NOW = 1_795_219_200_000  # 2026-11-21T00:00:00Z
HOUR = 3_600_000
DAY = 24 * HOUR
SESSION = "11111111-aaaa-4000-8000-000000000001"


def after_turn(store: Store, number: int) -> None:
    """What a test wants to happen after the so manieth turn (replace it): nothing."""


def open_store(folder: Path) -> Store:
    store = Store.open(folder / "crystal.db")
    store.execute("PRAGMA synchronous = OFF")  # nothing here has to survive a power cut
    return store


def project_of(folder: str) -> Project:
    """``/code/shop`` is a repository; ``/code/shop|api`` a folder inside it."""
    root, _, inside = folder.partition("|")
    name = re.split(r"[/\\]", root)[-1]
    return Project(f"{root}/{inside}" if inside else root, root, None, name)


def add_turn(
    store: Store,
    text: str,
    *,
    session: str = SESSION,
    role: str = "user",
    ts: int | None = NOW - HOUR,
    project: str | None = "/code/shop",
    branch: str | None = "main",
    agent: str = "cc-test",
    device: str = "desk",
    subagent: str | None = None,
    tool: str | None = None,
    uuid: str | None = None,
    part: int = 0,
    offset: int | None = None,
    message_id: str | None = None,
    full_length: int | None = None,
    title: str | None = None,
    harness: str = CLAUDE_CODE,
) -> str:
    """Say something; give the line's uuid. Saying a known uuid in another session makes a copy, as a fork does."""
    number = int(store.value("SELECT count(*) FROM turns") or 0)
    turn = Turn(
        uuid or f"u{number:06d}",
        part,
        role,
        text,
        number * 100 if offset is None else offset,
        ts,  # type: ignore[arg-type]
        cwd=None if project is None else project_of(project).cwd,
        branch=branch,
        tool=tool,
        message_id=message_id,
        full_length=len(text) if full_length is None else full_length,
    )
    projects = {} if project is None else {project_of(project).cwd: project_of(project)}
    with store.transaction():
        add_turns(
            store, Origin(agent, device, session, subagent, harness), [(turn, None, split(text))], projects, title
        )
    after_turn(store, number + 1)
    return turn.uuid


def chunk_id(store: Store, uuid: str) -> int:
    return int(store.value("SELECT c.id FROM chunks c JOIN turns t ON t.id = c.turn WHERE t.uuid = ?", (uuid,)))


class Meaning:
    """An embedder that knows which words mean the same: one dimension a group of words, and a last one for the rest."""

    provider, model = "test", "meaning"
    groups = ("car automobile vehicle", "cat kitten feline", "money cash payment", "rain weather storm", "auth login")

    def __init__(self, fail: CrystalError | None = None) -> None:
        self.dimension, self.identity, self.fail = len(self.groups) + 1, "test meaning", fail

    def embed_documents(self, texts: Sequence[str]) -> list[bytes]:
        return [self.vector(text) for text in texts]

    def embed_query(self, text: str) -> bytes:
        if self.fail:
            raise self.fail
        return self.vector(text)

    def take_tokens(self) -> int:
        return 0

    def vector(self, text: str) -> bytes:
        words = re.findall(r"\w+", text.lower())
        counts = [float(sum(word in group.split() for word in words)) for group in self.groups]
        counts.append(0.2 + 0.01 * (sum(map(len, words)) % 7))
        length = math.sqrt(sum(count * count for count in counts))
        return array("f", [count / length for count in counts]).tobytes()


def embed_all(store: Store, embedder: Meaning) -> int:
    """Give every chunk its vector; give the generation."""
    generation = ensure_generation(store, embedder.provider, embedder.model, embedder.dimension, NOW)
    waiting = pending_chunks(store, generation, 100_000)
    put_vectors(store, generation, [(ident, embedder.vector(text)) for ident, _, text in waiting])
    return generation
