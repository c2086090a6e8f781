"""Bodies too large for the database: one file each, durable before the row that names it is committed.

``incoming/`` holds what is being received, ``bodies/xx/`` what was received whole. A file without a row is left over
from a crash between the two, and swept at the next start.
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
from pathlib import Path
from typing import Any, BinaryIO

from relay_worker.crb1 import HEADER_BYTES, TAG_BYTES
from relay_worker.errors import Refusal

WRITE_BYTES = 512 << 10
READ_BYTES = 256 << 10
RESERVE_BYTES = 128 << 20
"""Bodies leave this much of the disk free, or half of a small one: making room takes some, too."""


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable. Windows does that by itself."""
    if os.name == "nt":
        return
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def refusal_of_disk(error: OSError) -> Refusal:
    """What the client hears of a disk that does not take a body."""
    if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
        return Refusal("disk-full", "the relay's disk is full", retry_after=300)
    return Refusal("unavailable", "the relay's store does not answer", retry_after=5)


class BodyFiles:
    """The two folders.

    Args:
        folder: The data directory.
    """

    def __init__(self, folder: Path) -> None:
        self.incoming = folder / "incoming"
        self.bodies = folder / "bodies"

    def prepare(self) -> None:
        """Make the folders; existing ones stay."""
        for one in (self.incoming, self.bodies, *(self.bodies / f"{number:02x}" for number in range(256))):
            one.mkdir(mode=0o700, exist_ok=True)
        sync_folder(self.bodies)
        sync_folder(self.bodies.parent)

    def check_room(self, reusable: int = 0) -> None:
        """Refuse a body while acknowledging, which frees its place, could fail for want of it.

        Args:
            reusable: Bytes of the database that are free for this body without taking any of the disk.

        Raises:
            Refusal: ``disk-full``.
        """
        disk = shutil.disk_usage(self.bodies)
        reserve = min(RESERVE_BYTES, disk.total // 2)
        if disk.free < reserve // 4 or disk.free + reusable < reserve:
            raise Refusal("disk-full", "the relay's disk is full but for what acknowledging needs", retry_after=300)

    def path(self, name: str) -> Path:
        """Where the body of this name is."""
        return self.bodies / name[:2] / name

    def remove(self, name: str) -> None:
        """Delete a body. A crash before this leaves it to the next start."""
        with contextlib.suppress(OSError):
            self.path(name).unlink()

    def sweep(self, known: Container[str]) -> int:
        """Delete what no row names; how many. Only while nobody receives."""
        left_over = [one for one in self.incoming.iterdir() if one.is_file()]
        left_over += [one for one in self.bodies.glob("??/*") if one.name not in known]
        for one in left_over:
            one.unlink(missing_ok=True)
        return len(left_over)

    def open_whole(self, name: str, size: int) -> BinaryIO:
        """Open a body for reading.

        Raises:
            OSError: It is lost, or not as long as it was.
        """
        file = self.path(name).open("rb")
        if os.fstat(file.fileno()).st_size != size:
            file.close()
            raise OSError(errno.EIO, "the body is not as long as it was")
        return file


class FileSpool:
    """A body on its way to a file. Chunks are gathered and written, and hashed, in another thread.

    Attributes:
        name: The file's, once finished.
        kept: Set when somebody else has taken care of the file.
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

    def keep(self) -> None:
        """Leave the file to whoever calls this: leaving the context does not delete it any more."""
        self.kept = True

    async def write(self, chunk: bytes) -> None:
        """Append a part of the body.

        Raises:
            Refusal: ``disk-full``, ``unavailable``.
        """
        self.size += len(chunk)
        if len(self.head) < HEADER_BYTES:
            self.head = (self.head + chunk[:HEADER_BYTES])[:HEADER_BYTES]
        self.tail = chunk[-TAG_BYTES:] if len(chunk) >= TAG_BYTES else (self.tail + chunk)[-TAG_BYTES:]
        self._waiting += chunk
        if len(self._waiting) >= WRITE_BYTES:
            await self._flush()

    async def finish(self) -> bytes:
        """Write the rest, fsync, give the file its name, fsync the folder.

        Raises:
            Refusal: ``disk-full``, ``unavailable``.
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
        # A cancelled request must not close the file under a thread that writes: the thread is waited for first.
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
        self._digest = b""  # from here on the file has its name, and is removed under it
        sync_folder(target.parent)


class StoredFile:
    """A large body to be sent, in pieces read by another thread."""

    def __init__(self, file: BinaryIO, size: int, tag: bytes, digest: bytes) -> None:
        self._file = file
        self.size = size
        self.tag = tag
        self.digest = digest

    async def chunks(self) -> AsyncIterator[bytes]:
        """The bytes; fewer than ``size`` if the file was cut short."""
        left = self.size
        try:
            while left > 0:
                chunk = await asyncio.to_thread(self._file.read, min(READ_BYTES, left))
                if not chunk:
                    return
                left -= len(chunk)
                yield chunk
        finally:
            self._file.close()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class StoredBytes:
    """A small body to be sent."""

    def __init__(self, body: bytes, tag: bytes, digest: bytes) -> None:
        self._body = body
        self.size = len(body)
        self.tag = tag
        self.digest = digest

    async def chunks(self) -> AsyncIterator[bytes]:
        """All of it at once."""
        yield self._body

    def close(self) -> None:
        """Nothing to let go of."""
