"""Stores of other memory programs in a home folder, and ``crystal migrate`` on them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support import memory_stores as stores
from tests.support.command import crystal

SECRET = "sk-ant-api03-" + "a1B2" * 24
TEXTS = ("how do we deploy the zeppelin", "with make zeppelin", f"my key is {SECRET}", "<private>the quokka</private>")
MEMORIES = (("the user likes tea", "preference", "active"), ("we used svn", "fact", "deprecated"))


def make_memory_crystal(home: Path) -> Path:
    path = home / ".openclaw" / "memory-crystal" / "crystal.db"
    stores.memory_crystal(path, TEXTS, memories=MEMORIES)
    return path


def make_context_embeddings(home: Path) -> Path:
    path = home / ".openclaw" / "memory" / "context-embeddings.sqlite"
    stores.context_embeddings(path, ("the zeppelin of lesa", "is yellow", " "))
    return path


def make_claude_mem(home: Path) -> Path:
    path = home / ".claude-mem" / "claude-mem.db"
    stores.claude_mem(path, ("fix the zeppelin", f"use {SECRET}"), "the zeppelin leaked", "helium matters")
    return path


def make_episodic_memory(home: Path) -> Path:
    path = home / ".config" / "superpowers" / "conversation-index" / "db.sqlite"
    stores.episodic_memory(path, (("what is a zeppelin", "an airship"), ("thanks", "<private>the quokka</private>")))
    return path


def make_deja_vu(home: Path) -> Path:
    path = home / ".local" / "share" / "deja" / "notes.jsonl"
    stores.deja_vu(path, ("the zeppelin flies on fridays", SECRET, ""))
    return path


MAKERS: dict[str, Callable[[Path], Path]] = {
    "memory-crystal": make_memory_crystal,
    "context-embeddings": make_context_embeddings,
    "claude-mem": make_claude_mem,
    "episodic-memory": make_episodic_memory,
    "deja-vu": make_deja_vu,
}
COUNTS = {  # rows, those that come, those that do not
    "memory-crystal": (6, 5, 1),
    "context-embeddings": (3, 2, 1),
    "claude-mem": (5, 4, 1),
    "episodic-memory": (3, 3, 0),
    "deja-vu": (3, 1, 2),
}


def start() -> None:
    assert crystal("init", "--yes", "--no-import").code == 0


def took(name: str, *words: str) -> dict[str, Any]:
    done = crystal("migrate", name, "--yes", "--json", *words)
    assert done.code == 0, done.err
    found: dict[str, Any] = json.loads(done.out)
    return found


def listed() -> dict[str, dict[str, Any]]:
    done = crystal("migrate", "--json")
    assert done.code == 0, done.err
    return {one["name"]: one for one in json.loads(done.out)["stores"]}


def hits(query: str, *words: str) -> list[dict[str, Any]]:
    done = crystal("search", query, "--json", *words)
    assert done.code == 0, done.err
    found: list[dict[str, Any]] = json.loads(done.out)["hits"]
    return found


def fingerprints(folder: Path) -> dict[str, tuple[str, int]]:
    """The content and the time of every file."""
    return {
        str(path): (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns)
        for path in folder.rglob("*")
        if path.is_file()
    }


def numbers(counts: dict[str, Any]) -> tuple[int, int, int, int]:
    return counts["read"], counts["new"], counts["known"], sum(counts["left_out"].values())
