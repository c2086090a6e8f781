"""List every file of crystal on this machine, and read compressed and indexed content.

Archives and other compressed files are read frame by frame; what cannot be decompressed is reported as unread. In a
file of the index words have no separator, so only a match within one of them counts as a word.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import stat
import sys
import zlib
from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from crystal.embedding.local.manifest import Manifest, check_files, installed_models
from crystal.errors import CrystalError
from crystal.search.index.files import MAGIC, TRAILER

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

INDEX_MAGIC = MAGIC
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
SKIPPABLE = tuple(bytes([0x50 + low, 0x2A, 0x4D, 0x18]) for low in range(16))
GZIP_MAGIC = b"\x1f\x8b"
HEAD = 16
READ = 1 << 20
TEXT = 1 << 22
MAX_LINE = 1 << 26
"""Maximum bytes of a line whose id is searched for."""


class Unreadable(Exception):
    """Compressed bytes cannot be decompressed: their content is unknown."""


@dataclass(frozen=True, slots=True)
class Found:
    """File: its path for display, relative to the LDM home if it is there, and its size."""

    path: Path
    name: str
    size: int


def files_of(folders: Sequence[Path], models: Path, others: Collection[Path]) -> Iterator[Found | tuple[str, str]]:
    """Yield every file below some folders once, and (name, why) for what cannot be read. Links are followed.

    Args:
        folders: The folders; file names are relative to the first.
        models: The folder of models; unchanged installed files are skipped.
        others: Folders below that belong to another program.
    """
    known = _models_as_installed(models) | set(others)
    seen: set[tuple[int, int]] = set()
    for root in dict.fromkeys(folders):
        yield from _walk(root, folders[0], known, seen)


def _walk(folder: Path, home: Path, known: set[Path], seen: set[tuple[int, int]]) -> Iterator[Found | tuple[str, str]]:
    name = name_of(folder, home)
    try:
        status = folder.stat()
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except FileNotFoundError:
        return
    except OSError as error:
        yield name, error.strerror or str(error)
        return
    if (status.st_dev, status.st_ino) in seen:
        return
    seen.add((status.st_dev, status.st_ino))
    for entry in entries:
        path = Path(entry.path)
        if path in known:
            continue
        try:
            status = path.stat()
        except FileNotFoundError:
            continue
        except OSError as error:
            yield name_of(path, home), error.strerror or str(error)
            continue
        if stat.S_ISDIR(status.st_mode):
            yield from _walk(path, home, known, seen)
        elif stat.S_ISREG(status.st_mode) and (status.st_dev, status.st_ino) not in seen:
            seen.add((status.st_dev, status.st_ino))
            yield Found(path, name_of(path, home), status.st_size)


def name_of(path: Path, home: Path) -> str:
    """Return the display name of a file: relative to the LDM home if it is there."""
    with contextlib.suppress(ValueError):
        return path.relative_to(home).as_posix()
    return str(path)


def _models_as_installed(models: Path) -> set[Path]:
    found: set[Path] = set()
    for model in installed_models(models):
        if isinstance(model, Manifest):
            with contextlib.suppress(CrystalError):
                check_files(models / model.name, model)
                found |= {models / model.name / name for name in model.files}
    return found


# ----------------------------------------------------------------------------------------------------- compressed


def is_compressed(head: bytes) -> bool:
    """Return True if a file with this beginning is compressed in a supported way."""
    return head.startswith((ZSTD_MAGIC, *SKIPPABLE, GZIP_MAGIC))


def decompressed(path: Path, head: bytes) -> Iterator[bytes]:
    """Yield the content of a compressed file, some megabytes at a time.

    Raises:
        Unreadable: The rest cannot be decompressed. Everything before was yielded.
        OSError: The file cannot be read.
    """
    if head.startswith(GZIP_MAGIC):
        try:
            with gzip.open(path) as text:
                while piece := text.read(TEXT):
                    yield piece
        except (OSError, EOFError, zlib.error) as error:
            raise Unreadable(str(error)) from error
        return
    with path.open("rb") as file:
        yield from frames(file)


def frames(file: BinaryIO) -> Iterator[bytes]:
    """Yield the content of the frames of a file, some megabytes at a time, up to the first non-frame.

    A skippable frame is yielded unchanged.

    Raises:
        Unreadable: A frame is damaged or cut off, or something else follows.
    """
    data, start = b"", 0
    while True:
        while len(data) < HEAD and (more := file.read(READ)):
            data += more
        if not data:
            return
        read_frame = _skippable_frame if data.startswith(SKIPPABLE) else _zstd_frame
        data = yield from read_frame(file, data, start)
        start = file.tell() - len(data)


def _skippable_frame(file: BinaryIO, data: bytes, start: int) -> Generator[bytes, None, bytes]:
    """Yield a skippable frame unchanged. ``data`` begins with it; return what was read after it."""
    left = int.from_bytes(data[4:8], "little")
    data = data[8:]
    while left > 0:
        data = data or _read_more(file, start)
        yield data[:left]
        data, left = data[left:], left - len(data)
    return data


def _zstd_frame(file: BinaryIO, data: bytes, start: int) -> Generator[bytes, None, bytes]:
    """Yield the content of a compressed frame. ``data`` begins with it; return what was read after it."""
    decoder: Any = zstd.ZstdDecompressor()
    try:
        while not decoder.eof:
            if decoder.needs_input and not data:
                data = _read_more(file, start)
            text = decoder.decompress(data if decoder.needs_input else b"", TEXT)
            data = b"" if not decoder.eof else decoder.unused_data
            if text:
                yield text
    except zstd.ZstdError as error:
        raise Unreadable(f"the frame at byte {start}: {error}") from error
    return data


def _read_more(file: BinaryIO, start: int) -> bytes:
    """Read the next bytes of the frame that begins at ``start``."""
    data = file.read(READ)
    if not data:
        raise Unreadable(f"the frame at byte {start} is cut off")
    return data


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


@dataclass(frozen=True, slots=True)
class WordList:
    """Positions of the words in a file of the index: the first byte, then where each word starts and ends."""

    start: int
    ends: npt.NDArray[Any]

    def joins(self, start: int, stop: int) -> bool:
        """Return True if a stretch of the file begins in one word and ends in another."""
        low, high = start - self.start, stop - self.start
        if low < 0 or not len(self.ends) or low >= int(self.ends[-1]):
            return False
        return high > int(self.ends[int(np.searchsorted(self.ends, low, "right"))])


def word_list(path: Path) -> WordList | None:
    """Return the words of a file of the index; None if it has none or is incomplete."""
    try:
        with path.open("rb") as file:
            file.seek(-TRAILER.size, os.SEEK_END)
            size = file.tell()
            at, _, magic = TRAILER.unpack(file.read(TRAILER.size))
            if magic != MAGIC or at > size:
                return None
            file.seek(at)
            arrays = json.loads(file.read(size - at))["arrays"]
            if "words" not in arrays:
                return None
            bounds = arrays["word_at"]
            file.seek(bounds["at"])
            ends = np.fromfile(file, bounds["dtype"], int(bounds["shape"][0]))
            return WordList(int(arrays["words"]["at"]), ends)
    except (OSError, ValueError, KeyError, TypeError, MemoryError):
        return None
