"""The files of home's agents that travel with the mirror: session summaries and daily logs."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from crystal.config.paths import AGENT_ID
from crystal.store import Store
from crystal.store.forget.forgetting import is_anything_forgotten
from crystal.store.sync.mirror_export import documents_seen, note_document, note_document_gone

FOLDERS = ("sessions", "daily")
SUFFIX = ".md"
MOST_BYTES = 1 << 20
"""A file that is larger stays at home: no summary is, and an object has its limits."""


@dataclass(frozen=True, slots=True)
class FileFacts:
    """A file's size in bytes and when it was changed last."""

    size: int
    mtime_ns: int


class Documents(Protocol):
    """Files by name: the agent, a slash, the path below the agent's folder."""

    def names(self) -> Mapping[str, FileFacts]:
        """All of them."""
        ...

    def read(self, name: str) -> bytes | None:
        """The content, None when it is gone."""
        ...


@dataclass(frozen=True, slots=True)
class AgentDocuments:
    """The summaries and daily logs below ``agents``, the folder of all agents (``~/.ldm/agents``)."""

    agents: Path

    def names(self) -> Mapping[str, FileFacts]:
        """All of them, as they are on disk now."""
        return dict(self._found())

    def read(self, name: str) -> bytes | None:
        """The content, None when it is gone or grew too large."""
        agent, _, path = name.partition("/")
        try:
            data = (self.agents / agent / "memory" / path).read_bytes()
        except OSError:
            return None
        return data if len(data) <= MOST_BYTES else None

    def _found(self) -> Iterator[tuple[str, FileFacts]]:
        for agent in _entries(self.agents):
            if not AGENT_ID.fullmatch(agent.name):
                continue
            for folder in FOLDERS:
                for file in _entries(Path(agent.path) / "memory" / folder):
                    facts = _facts(file)
                    if facts is not None and file.name.endswith(SUFFIX) and _is_plain(file.name):
                        yield f"{agent.name}/{folder}/{file.name}", facts


def note_changes(store: Store, documents: Documents) -> None:
    """Note which files are new, changed or gone since they were looked at last."""
    seen, found = documents_seen(store), documents.names()
    changed: list[tuple[str, FileFacts, bytes, bool]] = []
    # A device that forgot has taken out of its copy what may tell of it; what was written anew comes, changed or not.
    comes_again = is_anything_forgotten(store)
    for name, facts in found.items():
        size, mtime_ns, sha = seen.get(name, (-1, -1, b""))
        if (facts.size, facts.mtime_ns) != (size, mtime_ns) and (data := documents.read(name)) is not None:
            digest = hashlib.sha256(data).digest()
            changed.append((name, facts, digest, digest != sha or comes_again))
    gone = seen.keys() - found.keys()
    if changed or gone:
        with store.transaction():
            for name, facts, digest, is_other in changed:
                note_document(store, name, facts.size, facts.mtime_ns, digest, is_other=is_other)
            for name in gone:
                note_document_gone(store, name)


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return sorted(found, key=lambda one: one.name)
    except OSError:
        return []


def _facts(file: os.DirEntry[str]) -> FileFacts | None:
    try:
        found = file.stat(follow_symlinks=False)
    except OSError:
        return None
    is_ours = stat.S_ISREG(found.st_mode) and found.st_size <= MOST_BYTES
    return FileFacts(found.st_size, found.st_mtime_ns) if is_ours else None


def _is_plain(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in name
