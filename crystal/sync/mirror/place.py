"""State of the mirror next to it: the newest manifest, and what could not be fetched.

``mirror.json`` holds keys, so only its owner can read it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from crystal.config.paths import make_private_dir, write_private
from crystal.errors import DamagedError
from crystal.sync.mirror.listing import FORMAT

MAX_EPOCHS = 64

ROLLBACK = "rollback"
"""Code for an offered older state."""


@dataclass(slots=True)
class WantedManifest:
    """The last manifest from home.

    Attributes:
        serial: Serial of the document.
        manifest: Its body.
        epochs: Every epoch ever accepted, in hexadecimal, newest last.
        bad: Objects that could not be fetched or opened: id to number of failures in a row.
        problem: The problem in words, or None.
        code: The same as a code.
        starts_over: The mirror must be built from scratch, because it does not continue the published history.
    """

    serial: int = 0
    manifest: Mapping[str, Any] | None = None
    epochs: list[str] = field(default_factory=list)
    bad: dict[str, int] = field(default_factory=dict)
    problem: str | None = None
    code: str | None = None
    starts_over: bool = False


def read_wanted(path: Path) -> WantedManifest:
    """Return the last manifest; an empty one if there is none or the file is damaged: home sends it again."""
    try:
        fields = json.loads(path.read_bytes())
        wanted = WantedManifest(**{name: fields[name] for name in WantedManifest.__slots__ if name in fields})
        if wanted.manifest is not None and wanted.manifest.get("format") != FORMAT:  # home sends another
            wanted.manifest, wanted.bad, wanted.starts_over = None, {}, True
        return wanted
    except FileNotFoundError:
        return WantedManifest()
    except OSError as error:
        raise DamagedError(f"{path} cannot be read: {error.strerror}", hint="check its permissions") from error
    except (ValueError, TypeError, RecursionError):
        return WantedManifest()


def write_wanted(path: Path, wanted: WantedManifest) -> None:
    """Store the last manifest."""
    make_private_dir(path.parent)
    write_private(path, json.dumps(asdict(wanted)).encode())


@dataclass(frozen=True)
class MirrorFiles:
    """The files of a mirror.

    Attributes:
        path: Path of the complete mirror: ``mirror.db`` in the data folder.
    """

    path: Path

    @property
    def building(self) -> Path:
        """Path of a mirror that is being built."""
        return self.path.with_name(self.path.name + ".new")

    @property
    def memo(self) -> Path:
        """Path of the newest manifest."""
        return self.path.with_suffix(".json")

    @property
    def lock(self) -> Path:
        """Path of the lock that is held by whoever fetches."""
        return self.path.with_name(self.path.name + ".lock")


def remove_file(path: Path) -> None:
    """Delete a database and its log."""
    for name in ("", "-wal", "-shm"):
        path.with_name(path.name + name).unlink(missing_ok=True)
