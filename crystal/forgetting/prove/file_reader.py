"""List and read every file of crystal on this machine: databases, compressed content, the words of index files.

Closing any handle on a database that this process has open releases all POSIX locks of the process on it, including
SQLite's: then another process may change the file while it is open here (https://www.sqlite.org/howtocorrupt.html,
section 2.2). So handles on these files stay open until the process ends, one for each file.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import sys
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from crystal.embedding.local.manifest import ModelManifest, check_files, installed_models
from crystal.errors import CrystalError
from crystal.search.index.index_files import MAGIC, TRAILER

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

ZSTD_MAGIC = (b"\x28\xb5\x2f\xfd", *(bytes([0x50 + low, 0x2A, 0x4D, 0x18]) for low in range(16)))
"""Beginnings of a frame, and of frames that are to be skipped."""
GZIP_MAGIC = b"\x1f\x8b"
COMPRESSED = (*ZSTD_MAGIC, GZIP_MAGIC)
"""Beginnings of files that are compressed in a supported way."""
TEXT = 1 << 22
MAX_LINE = 1 << 26
"""Maximum bytes of a line that is read as a whole."""


class UnreadableFileError(Exception):
    """Compressed bytes cannot be decompressed: their content is unknown."""


def files_of(folders: Sequence[Path], others: Collection[Path], unread: Callable[[str, str], None]) -> Iterator[Path]:
    """Yield every file below some folders once. Links are followed.

    Args:
        folders: The folders; file names are relative to the first.
        others: Files and folders below that belong to another program, or are known to be as installed.
        unread: Called with the name of a folder or file that cannot be read, and why.
    """

    def refused(error: OSError) -> None:
        path = Path(error.filename)
        if not isinstance(error, FileNotFoundError):
            unread(name_of(path, folders[0]), error.strerror or str(error))
        elif path.is_symlink():  # what it leads to may come back, with a disk
            unread(name_of(path, folders[0]), f"it leads to {path.readlink()}, which is not there")

    seen: set[tuple[int, int]] = set()

    def is_new(path: Path) -> bool:
        try:
            status = path.stat()
        except OSError as error:
            refused(error)
            return False
        known = (status.st_dev, status.st_ino) in seen or path in others
        seen.add((status.st_dev, status.st_ino))
        return not known

    for root in dict.fromkeys(folders):
        for folder, below, names in os.walk(root, onerror=refused, followlinks=True):
            below[:] = sorted(name for name in below if is_new(Path(folder, name)))
            for path in (Path(folder, name) for name in sorted(names)):
                if is_new(path) and path.is_file():
                    yield path


def name_of(path: Path, home: Path) -> str:
    """Return the display name of a file: relative to the LDM home if it is there."""
    with contextlib.suppress(ValueError):
        return path.relative_to(home).as_posix()
    return str(path)


def models_as_installed(models: Path) -> set[Path]:
    """Return the files of models that are exactly what was installed."""
    found: set[Path] = set()
    for model in installed_models(models):
        if isinstance(model, ModelManifest):
            with contextlib.suppress(CrystalError):
                check_files(models / model.name, model)
                found |= {models / model.name / name for name in model.files}
    return found


@contextlib.contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Return a file positioned at its start. One of a database stays open for the next reader.

    Raises:
        OSError: As ``open``.
    """
    if sys.platform == "win32" or not path.name.endswith(_OF_DATABASES):  # on other systems locks belong to the handle
        with path.open("rb", buffering=0) as file:
            yield file
        return
    found = path.stat()
    if (found.st_dev, found.st_ino) not in _held:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        found = os.fstat(handle)
        _held[found.st_dev, found.st_ino] = handle
    with open(_held[found.st_dev, found.st_ino], "rb", buffering=0, closefd=False) as file:
        file.seek(0)
        yield file


_OF_DATABASES = (".db", "-shm")
_held: dict[tuple[int, int], int] = {}


# ----------------------------------------------------------------------------------------------------- compressed


def decompressed(path: Path, head: bytes) -> Iterator[bytes]:
    """Yield the content of a compressed file, some megabytes at a time.

    Raises:
        UnreadableFileError: The rest cannot be decompressed. Everything before was yielded.
    """
    try:
        with gzip.open(path) if head.startswith(GZIP_MAGIC) else zstd.open(path) as file:
            while piece := file.read(TEXT):
                yield piece
    except (OSError, EOFError, zlib.error, zstd.ZstdError) as error:
        raise UnreadableFileError(str(error)) from error


def lines_of(texts: Iterable[bytes]) -> Iterator[bytes]:
    """Yield whole lines, many at a time; an overlong line is split."""
    kept = b""
    for text in texts:
        kept += text
        end = kept.rfind(b"\n") + 1 or (len(kept) if len(kept) > MAX_LINE else 0)
        if end:
            yield kept[:end]
            kept = kept[end:]
    if kept:
        yield kept


# ---------------------------------------------------------------------------------------------------------- index


def word_borders(path: Path) -> npt.NDArray[Any]:
    """Return where words begin and end in a file of the index, which has none between them; empty if unknown."""
    try:
        with path.open("rb") as file:
            file.seek(-TRAILER.size, os.SEEK_END)
            size = file.tell()
            at, _, magic = TRAILER.unpack(file.read(TRAILER.size))
            if magic == MAGIC and at <= size:
                file.seek(at)
                arrays = json.loads(file.read(size - at))["arrays"]
                bounds = arrays["word_at"]
                file.seek(bounds["at"])
                borders = np.fromfile(file, bounds["dtype"], int(bounds["shape"][0]))
                return borders.astype(np.int64) + int(arrays["words"]["at"])
    except (OSError, ValueError, KeyError, TypeError, MemoryError):
        pass
    return np.zeros(0, np.int64)
