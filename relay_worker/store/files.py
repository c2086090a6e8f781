"""Store bodies too large for the database: one file each, durable before its row is committed.

A file without a row was left by a crash between the two, and is deleted at the next start.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import secrets
import shutil
from collections.abc import AsyncIterator, Container
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Protocol

from relay_worker.errors import RequestRefusedError

READ_BYTES = 256 << 10
INLINE_BYTES = 128 << 10
"""Bodies up to this size are kept in the database; larger ones in files, where the store has files."""
RESERVE_BYTES = 128 << 20
"""Disk space that bodies leave free, or half of a small disk, because deleting also needs space."""


def sync_path(path: Path) -> None:
    """Make a file's content, or the names in a folder, durable."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def lost() -> RequestRefusedError:
    """Return the refusal for a body that has a row and whose bytes are missing."""
    return RequestRefusedError("body-lost", "the relay has lost these bytes; they must be sent again")


class Bodies(Protocol):
    """Storage of bodies outside of the database."""

    def save(self, body: bytes) -> str:
        """Make a body durable. Return its name."""

    def read(self, name: str) -> bytes | None:
        """Return a body, or None if it is missing."""


class BodyFiles:
    """The folder of the body files.

    Args:
        folder: The data directory.
    """

    def __init__(self, folder: Path) -> None:
        self.bodies = folder / "bodies"

    def prepare(self) -> None:
        """Create the folders if missing."""
        for one in (self.bodies, *(self.bodies / f"{number:02x}" for number in range(256))):
            one.mkdir(mode=0o700, exist_ok=True)
        sync_path(self.bodies)
        sync_path(self.bodies.parent)

    def check_room(self, reusable: int = 0) -> None:
        """Refuse a body that would leave too little space for acknowledgements, which free space.

        Args:
            reusable: Free bytes inside the database that this body can use without more disk space.

        Raises:
            RequestRefusedError: ``disk-full``.
        """
        disk = shutil.disk_usage(self.bodies)
        reserve = min(RESERVE_BYTES, disk.total // 2)
        if disk.free < reserve // 4 or disk.free + reusable < reserve:
            raise RequestRefusedError("disk-full", "the relay's disk is full; it can only acknowledge", retry_after=300)

    def path(self, name: str) -> Path:
        """Return the path of a body."""
        return self.bodies / name[:2] / name

    def save(self, body: bytes) -> str:
        """Write a body and make it durable. Return its name.

        Raises:
            RequestRefusedError: ``disk-full``, ``unavailable``; nothing is left of it.
        """
        self.check_room()
        name = secrets.token_hex(16)
        path = self.path(name)
        try:
            with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
                file.write(body)
                file.flush()
                os.fsync(file.fileno())
            sync_path(path.parent)
        except OSError as error:
            self.remove(name)
            if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
                raise RequestRefusedError("disk-full", "the relay's disk is full", retry_after=300) from error
            raise RequestRefusedError("unavailable", "the relay's store does not answer", retry_after=5) from error
        return name

    def read(self, name: str) -> bytes | None:
        """Return a body, or None if it is missing."""
        with contextlib.suppress(OSError):
            return self.path(name).read_bytes()
        return None

    def remove(self, name: str) -> None:
        """Delete a body. After a crash, the next start does it."""
        with contextlib.suppress(OSError):
            self.path(name).unlink()

    def sweep(self, known: Container[str]) -> None:
        """Delete files without a row. Call it only while no body is being received."""
        for one in self.bodies.glob("??/*"):
            if one.name not in known:
                one.unlink(missing_ok=True)

    def open_whole(self, name: str, size: int) -> BodyFile:
        """Open a body for reading.

        Raises:
            RequestRefusedError: ``body-lost``; it is missing or truncated.
        """
        try:
            file = self.path(name).open("rb")
        except OSError as error:
            raise lost() from error
        if os.fstat(file.fileno()).st_size != size:
            file.close()
            raise lost()
        return BodyFile(file, size)


@dataclass(frozen=True, slots=True)
class BodyFile:
    """A large body to be sent, read in pieces by another thread. Its reader closes ``file``."""

    file: BinaryIO
    size: int

    def __len__(self) -> int:
        """Return the size in bytes."""
        return self.size

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the bytes; fewer than announced if the file was truncated."""
        while chunk := await asyncio.to_thread(self.file.read, READ_BYTES):
            yield chunk


@dataclass(frozen=True, slots=True)
class StoredBody:
    """A body to be sent: its tag (an object's is its digest, mail has none), its SHA-256, its bytes or open file."""

    tag: bytes | None
    digest: bytes
    body: bytes | BodyFile = field(repr=False)
