"""Files of home's agents that are part of the mirror: session summaries and daily logs."""

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
MAX_BYTES = 1 << 20
"""Maximum file size in bytes; larger files stay at home. No summary is that large, and an object is limited."""


@dataclass(frozen=True, slots=True)
class FileFacts:
    """Size of a file in bytes and its modification time."""

    size: int
    mtime_ns: int


class Documents(Protocol):
    """Files by name: the agent, a slash, the path below the agent's folder."""

    def names(self) -> Mapping[str, FileFacts]:
        """Return all names."""
        ...

    def read(self, name: str) -> bytes | None:
        """Return the content, or None if the file is gone."""
        ...


@dataclass(frozen=True, slots=True)
class AgentDocuments:
    """Summaries and daily logs below ``agents``, the folder of all agents (``~/.ldm/agents``)."""

    agents: Path

    def names(self) -> Mapping[str, FileFacts]:
        """Return all names that are on disk now."""
        return dict(self._found())

    def read(self, name: str) -> bytes | None:
        """Return the content, or None if the file is gone or has become too large."""
        agent, _, path = name.partition("/")
        try:
            data = (self.agents / agent / "memory" / path).read_bytes()
        except OSError:
            return None
        return data if len(data) <= MAX_BYTES else None

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
    """Record which files are new, changed or gone since the last call."""
    seen, found = documents_seen(store), documents.names()
    changed: list[tuple[str, FileFacts, bytes, bool]] = []
    # A device that forgot something removed related text from its copy; rewritten files are sent, changed or not.
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
    is_ours = stat.S_ISREG(found.st_mode) and found.st_size <= MAX_BYTES
    return FileFacts(found.st_size, found.st_mtime_ns) if is_ours else None


def _is_plain(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in name
