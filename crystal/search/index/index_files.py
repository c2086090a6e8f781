"""Read and write memory-mapped files of arrays: the arrays, then a directory with the checksum of each.

    CRYSIDX1, padded to 64 bytes
    the arrays, little-endian, each at a multiple of 64
    the directory: JSON
    20 bytes: offset of the directory (u64), its CRC-32 (u32), CRYSIDX1

Opening a file checks its directory and its modification time; the whole file is read if the time differs, and by
``check_file``.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import mmap
import os
import shutil
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import numpy as np

from crystal.model.quick_dataclass import dataclass
from crystal.search.index.array_types import Array
from crystal.store.search.index_log import SUFFIX, PartFile

T = TypeVar("T")

MAGIC = b"CRYSIDX1"
ALIGNMENT = 64
TRAILER = struct.Struct("<QI8s")
TEMPORARY = ".tmp"


SYMPTOMS = (IndexError, ValueError, KeyError, OverflowError, MemoryError, TypeError)
"""Errors that wrong bytes in a file can cause."""


class IndexDamagedError(Exception):
    """A file of the index is missing, or differs from what was written. The index is rebuilt; nothing is lost."""


def raises_index_damaged(kind: type[T]) -> type[T]:
    """Turn errors from wrong bytes in a file into ``IndexDamagedError``, in every public method of a class."""
    for name, method in list(vars(kind).items()):
        if callable(method) and not name.startswith("_"):
            setattr(kind, name, _guarded(method))
    return kind


def _guarded(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        try:
            return method(*args, **kwargs)
        except SYMPTOMS as error:
            raise IndexDamagedError(f"{method.__name__}: {error}") from error

    return guarded


@dataclass(frozen=True, slots=True)
class IndexFileContents:
    """Content of a file: its metadata, and its arrays, which are read-only."""

    meta: Mapping[str, Any]
    arrays: Mapping[str, Array]
    mapped: mmap.mmap | None = None

    def let_go(self) -> None:
        """Release the pages that were read; the next access reads them again."""
        if self.mapped is not None and hasattr(mmap, "MADV_DONTNEED"):
            self.mapped.madvise(mmap.MADV_DONTNEED)


def resident_bytes() -> int:
    """Return the resident bytes of mapped files of this process, 0 if the system does not report it."""
    try:
        with Path("/proc/self/statm").open("rb") as file:
            return int(file.read().split()[2]) * mmap.PAGESIZE
    except (OSError, ValueError, IndexError):
        return 0


@functools.lru_cache(maxsize=1024)
def path_of(folder: Path, name: str) -> Path:
    """Return the path of a file of the index."""
    return folder / f"{name}{SUFFIX}"


def make_folder(folder: Path) -> None:
    """Make the folder of the index, which no other user can read."""
    for one in (folder.parent, folder):  # with ``parents`` only the last one would be private
        one.mkdir(mode=0o700, exist_ok=True)


def prove_room(folder: Path, size: int) -> None:
    """Check that files can be written, before there is work that would be lost.

    Raises:
        OSError: The folder cannot be written, or the disk has fewer free bytes.
    """
    make_folder(folder)
    probe = path_of(folder, f"probe-{os.urandom(8).hex()}")
    os.close(os.open(probe, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    probe.unlink()
    if shutil.disk_usage(folder).free < size:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))


def write_file(path: Path, meta: Mapping[str, Any], arrays: Mapping[str, Array]) -> tuple[int, int, int]:
    """Write arrays to a new file, durably. An unfinished file is deleted, so that a full disk gets its space back.

    Returns:
        Its size, modification time (ns) and checksum, as a ``PartFile`` has them.
    """
    make_folder(path.parent)
    temporary = path.with_name(path.name + TEMPORARY)
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0)
    try:
        with os.fdopen(os.open(temporary, flags, 0o600), "wb") as file:
            checksum = _write_arrays(file, meta, arrays)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        remove_file(temporary)
        raise
    found = path.stat()
    return found.st_size, found.st_mtime_ns, checksum


def _write_arrays(file: BinaryIO, meta: Mapping[str, Any], arrays: Mapping[str, Array]) -> int:
    """Write the content of a file; return the checksum of the directory."""
    file.write(MAGIC)
    listed: dict[str, dict[str, Any]] = {}
    for name, array in arrays.items():
        is_one = array.ndim == 1 and len(array) > 1 and bool((array == array[0]).all())  # stored as one number
        data = np.ascontiguousarray(array[:1] if is_one else array).reshape(-1).view(np.uint8).data
        at = _align(file)
        file.write(data)
        crc = zlib.crc32(data)
        listed[name] = {"dtype": array.dtype.str, "shape": array.shape, "at": at, "size": len(data), "crc": crc}
        if is_one:
            listed[name]["strides"] = [0]
    end = _align(file)
    directory = json.dumps({"meta": meta, "arrays": listed}).encode()
    checksum = zlib.crc32(directory)
    file.write(directory + TRAILER.pack(end, checksum, MAGIC))
    return checksum


def _align(file: BinaryIO) -> int:
    file.write(bytes(-file.tell() % ALIGNMENT))
    return file.tell()


def open_file(path: Path, written: PartFile) -> IndexFileContents:
    """Map a file.

    Raises:
        IndexDamagedError: It is missing, or differs from what was written.
    """
    is_same(path, written)
    mapped, directory = _directory(path, written)
    try:
        arrays = {
            name: np.ndarray(one["shape"], one["dtype"], mapped, one["at"], one.get("strides"))
            for name, one in directory["arrays"].items()
        }
        for array in arrays.values():
            array.flags.writeable = False
        return IndexFileContents(directory["meta"], arrays, mapped)
    except (KeyError, TypeError, ValueError) as error:
        raise IndexDamagedError(f"{path.name}: {error}") from error


def is_same(path: Path, written: PartFile) -> None:
    """Check that a file has the recorded size and time, without reading it.

    Raises:
        IndexDamagedError: It is missing, or has changed.
    """
    if _written_at(path, written) != written.mtime_ns:
        raise IndexDamagedError(f"{path.name} was touched")


def proven(path: Path, written: PartFile) -> PartFile:
    """Return the record of a file with its present time; if that differs from the recorded time, compare its content.

    Copying, restoring and syncing change only the time: such a file is usable, and reading it is faster than searching
    without the index.

    Raises:
        IndexDamagedError: It is missing, or differs from what was written.
    """
    mtime_ns = _written_at(path, written)
    if mtime_ns == written.mtime_ns:
        return written
    _check_once(path, written, mtime_ns)
    return written._replace(mtime_ns=mtime_ns)


def _written_at(path: Path, written: PartFile) -> int:
    """Return the modification time of a file; raise IndexDamagedError if its size has changed."""
    try:
        found = path.stat()
    except OSError as error:
        raise IndexDamagedError(f"{path.name}: {error.strerror}") from error
    if found.st_size != written.bytes:
        raise IndexDamagedError(f"{path.name} has {found.st_size} bytes instead of {written.bytes}")
    return found.st_mtime_ns


@functools.lru_cache(maxsize=1024)
def _check_once(path: Path, written: PartFile, _mtime_ns: int) -> None:
    check_file(path, written)


def check_file(path: Path, written: PartFile) -> None:
    """Read a whole file and compare it with its checksums; ignore its modification time.

    Raises:
        IndexDamagedError: It differs from what was written.
    """
    mapped, directory = _directory(path, written)
    with memoryview(mapped) as view:
        for name, one in directory["arrays"].items():
            if zlib.crc32(view[one["at"] : one["at"] + one["size"]]) != one["crc"]:
                raise IndexDamagedError(f"{path.name}: {name} is damaged")


def _directory(path: Path, written: PartFile) -> tuple[mmap.mmap, dict[str, Any]]:
    try:
        with path.open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        if len(mapped) != written.bytes:
            raise IndexDamagedError(f"{path.name} has {len(mapped)} bytes instead of {written.bytes}")
        at, checksum, magic = TRAILER.unpack(mapped[-TRAILER.size :])
        directory = mapped[at : len(mapped) - TRAILER.size]
        is_ours = mapped[: len(MAGIC)] == magic == MAGIC
        if not is_ours or checksum != written.checksum or zlib.crc32(directory) != checksum:
            raise IndexDamagedError(f"{path.name} is not the file that was written")
        return mapped, json.loads(directory)
    except (OSError, ValueError, struct.error) as error:
        raise IndexDamagedError(f"{path.name}: {error}") from error


def files_in(folder: Path) -> Iterator[Path]:
    """Return all files of this package in a folder, finished or not."""
    return (path for ending in (SUFFIX, SUFFIX + TEMPORARY) for path in folder.glob(f"*{ending}"))


def remove_file(path: Path) -> None:
    """Delete a file if the system allows it: Windows does not delete open files, and a later sweep does."""
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)
