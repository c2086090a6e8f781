"""Bodies too large for the database: one file each, durable before the row that names it is committed.

``incoming/`` holds bodies being received, ``bodies/xx/`` complete ones. A file without a row was left by a crash
between the two, and is deleted at the next start.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import os
import secrets
import shutil
from collections.abc import AsyncIterator, Callable, Container
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from relay_worker.crb1 import HEADER_BYTES, TAG_BYTES
from relay_worker.errors import RequestRefusedError

WRITE_BYTES = 512 << 10
READ_BYTES = 256 << 10
RESERVE_BYTES = 128 << 20
"""Disk space that bodies leave free, or half of a small disk, because deleting also needs some."""


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def refusal_of_disk(error: OSError) -> RequestRefusedError:
    """Return the refusal for a disk error."""
    if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
        return RequestRefusedError("disk-full", "the relay's disk is full", retry_after=300)
    return RequestRefusedError("unavailable", "the relay's store does not answer", retry_after=5)


class BodyFiles:
    """Folders of the body files.

    Args:
        folder: The data directory.
    """

    def __init__(self, folder: Path) -> None:
        self.incoming = folder / "incoming"
        self.bodies = folder / "bodies"

    def prepare(self) -> None:
        """Create the folders if missing."""
        for one in (self.incoming, self.bodies, *(self.bodies / f"{number:02x}" for number in range(256))):
            one.mkdir(mode=0o700, exist_ok=True)
        sync_folder(self.bodies)
        sync_folder(self.bodies.parent)

    def check_room(self, reusable: int = 0) -> None:
        """Refuse a body that would leave too little space for acknowledging, which frees space.

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

    def remove(self, name: str) -> None:
        """Delete a body. If a crash prevents it, the next start does it."""
        with contextlib.suppress(OSError):
            self.path(name).unlink()

    def sweep(self, known: Container[str]) -> int:
        """Delete files without a row. Return their number. Only while no body is being received."""
        left_over = [one for one in self.incoming.iterdir() if one.is_file()]
        left_over += [one for one in self.bodies.glob("??/*") if one.name not in known]
        for one in left_over:
            one.unlink(missing_ok=True)
        return len(left_over)

    def open_whole(self, name: str, size: int) -> BodyFile:
        """Open a body for reading.

        Raises:
            RequestRefusedError: ``body-lost``; it is missing or truncated.
        """
        lost = RequestRefusedError("body-lost", "the relay has lost these bytes; they must be sent again")
        try:
            file = self.path(name).open("rb")
        except OSError as error:
            raise lost from error
        if os.fstat(file.fileno()).st_size != size:
            file.close()
            raise lost
        return BodyFile(file, size)


class FileSpool:
    """Body being written to a file. Chunks are collected, written and hashed in another thread.

    Attributes:
        name: The file name, once finished.
        kept: Set to keep the file on leaving the context, because another owner has taken over.
    """

    def __init__(self, files: BodyFiles) -> None:
        self._files = files
        self.name = secrets.token_hex(16)
        self.size = 0
        self.head = b""
        self.tail = b""
        self.kept = False
        self._hash = hashlib.sha256()
        self._waiting = bytearray()
        self._file: BinaryIO | None = None
        self._digest: bytes | None = None

    @property
    def _part(self) -> Path:
        return self._files.incoming / f"{self.name}.part"

    async def __aenter__(self) -> FileSpool:
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._file is not None:
            self._file.close()
        if not self.kept:
            with contextlib.suppress(OSError):
                self._part.unlink(missing_ok=True)
            if self._digest is not None:
                self._files.remove(self.name)

    async def write(self, chunk: bytes) -> None:
        """Append a part of the body.

        Raises:
            RequestRefusedError: ``disk-full``, ``unavailable``.
        """
        self.size += len(chunk)
        if len(self.head) < HEADER_BYTES:
            self.head = (self.head + chunk[:HEADER_BYTES])[:HEADER_BYTES]
        self.tail = chunk[-TAG_BYTES:] if len(chunk) >= TAG_BYTES else (self.tail + chunk)[-TAG_BYTES:]
        self._waiting += chunk
        if len(self._waiting) >= WRITE_BYTES:
            await self._flush()

    async def finish(self) -> bytes:
        """Write the rest, fsync, rename the file, fsync the folder.

        Raises:
            RequestRefusedError: ``disk-full``, ``unavailable``.
        """
        await self._flush()
        await self._in_thread(self._settle)
        self._digest = self._hash.digest()
        return self._digest

    async def _flush(self) -> None:
        waiting, self._waiting = self._waiting, bytearray()
        if waiting:
            await self._in_thread(self._write, waiting)

    async def _in_thread(self, call: Callable[..., None], *args: Any) -> None:
        # A cancelled request must not close the file while a thread writes to it: wait for the thread first.
        task = asyncio.ensure_future(asyncio.to_thread(call, *args))
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            with contextlib.suppress(OSError):
                await task
            raise
        except OSError as error:
            raise refusal_of_disk(error) from error

    def _write(self, waiting: bytearray) -> None:
        if self._file is None:
            self._files.check_room()
            self._file = os.fdopen(os.open(self._part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb", buffering=0)
        view = memoryview(waiting)
        self._hash.update(view)
        while view:
            view = view[self._file.write(view) :]

    def _settle(self) -> None:
        assert self._file is not None
        os.fsync(self._file.fileno())
        self._file.close()
        target = self._files.path(self.name)
        self._part.rename(target)
        self._digest = b""  # from here on the file has its final name, and is deleted by it
        sync_folder(target.parent)


@dataclass(frozen=True, slots=True)
class StoredBody:
    """Body to be sent: its tag (an object's is its digest), its SHA-256, and its bytes or its open file."""

    tag: bytes
    digest: bytes
    body: bytes | BodyFile = field(repr=False)


class BodyFile:
    """Large body to be sent, read in pieces by another thread.

    Args:
        file: The open file; closed by ``close``.
        size: Its size in bytes.
    """

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file = file
        self._size = size

    def __len__(self) -> int:
        """Return the size in bytes."""
        return self._size

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the bytes; fewer than announced if the file was truncated."""
        left = self._size
        while left > 0:
            chunk = await asyncio.to_thread(self._file.read, min(READ_BYTES, left))
            if not chunk:
                return
            left -= len(chunk)
            yield chunk

    def close(self) -> None:
        """Close the file."""
        self._file.close()
