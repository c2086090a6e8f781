"""Keep a verbatim copy of every transcript: append-only zstd frames, durable before the ledger refers to them.

One file per transcript, readable with the ``zstd`` tool. The ledger (store/ledger.py) stores each frame's position and
hash; this module only moves bytes. Every function that writes expects the caller to hold the store's write lock, so
that no other process appends.

Source: docs/adr/0005-archive.md.
"""

import contextlib
import errno
import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from io import FileIO
from pathlib import Path

from crystal.config.paths import refused, replace_file, sync_folder, system_errors
from crystal.errors import DamagedError, StoreFullError
from crystal.model.named_tuple import NamedTuple
from crystal.model.zstd import zstd
from crystal.text.lazy_pattern import lazy_pattern

LEVEL = 9
MAX_FRAME_BYTES = 4 << 30
_NUMBERED = lazy_pattern(r"(.*)\+(\d+)", re.DOTALL)
_MAGIC = b"\x28\xb5\x2f\xfd"
_SKIPPABLE = b"\x50\x2a\x4d\x18"
"""Begins a frame that every reader skips; the number of its further bytes follows, in 4 bytes."""
_VOID_BYTES = 8
_READ_BYTES = 1 << 16
_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,150}")


class Frame(NamedTuple):
    """Position of one frame in an archive file, in bytes."""

    offset: int
    length: int


def file_name(transcript: str) -> str:
    """Return the archive's file name for a transcript key: ``<session>.jsonl.zst``, ``<session>/agent-x.jsonl.zst``.

    A key that is not a plain file name (only dots, separators, too long) is written in hexadecimal.
    """
    return "/".join(part if _SAFE.fullmatch(part) else _spelled(part) for part in transcript.split("/")) + ".jsonl.zst"


def _spelled(part: str) -> str:
    """Return a part in hexadecimal; a long one is truncated and gets a hash to stay distinct."""
    name = part.encode("utf-8", "surrogateescape")
    return "x" + (name.hex() if len(name) <= 90 else name[:60].hex() + hashlib.sha256(name).hexdigest()[:60])


Written = dict[Path, int]
"""Archive files with frames that are not durable yet, each with the offset of the first such frame."""


def append(path: Path, recorded_end: int, stretches: Sequence[bytes], written: Written) -> list[Frame]:
    """Append each stretch as a separate frame. Call ``make_durable(written)`` before the commit.

    Args:
        path: The archive file; it and its folders are created (0600, 0700) if missing.
        recorded_end: End of the last frame in the ledger. Frames after it were left by a crash before the commit, or by
            a database that lost its log: their copies of the new text are removed, and the rest is kept.
        stretches: Clean lines, each stretch not empty.
        written: Gets the file.

    Raises:
        StoreFullError: No space; the file is unchanged.
        UnavailableError, UsageError: The file cannot be written.
    """
    with _translated(path):
        _replace_link(path)
        is_new = not path.exists()
        left = None if is_new else _left_behind(path, recorded_end)
        text = b"" if left is None else b"".join(stretches)
        if left is not None and len(left) > len(text) and left.startswith(text) and left.endswith(b"\n"):
            return _divide_end(path, recorded_end, stretches, left[len(text) :])
        if is_new:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o600)
        # Unbuffered: a failed write is not tried again at the close.
        with os.fdopen(descriptor, "r+b", buffering=0) as file:
            frames = _write(file, None if left is None or not text.startswith(left) else recorded_end, stretches)
        if is_new:
            sync_folder(path.parent)
    written.setdefault(path, frames[0].offset)
    return frames


def _replace_link(path: Path) -> None:
    """Replace a link by a copy of its target, because crystal never writes a file that another program may own."""
    if not path.is_symlink():
        return
    if not path.is_file():
        path.unlink()
        return
    write_anew(path, [path.read_bytes()])


def make_durable(written: Written) -> None:
    """Flush files to the disk, each once.

    Raises:
        StoreFullError, UnavailableError, UsageError: A file cannot be flushed; what was appended to it is removed.
    """
    for path, start in written.items():
        with _translated(path), path.open("r+b", buffering=0) as file:
            try:
                os.fsync(file.fileno())
            except OSError:
                with contextlib.suppress(OSError):
                    file.truncate(start)
                raise


def _write(file: FileIO, end: int | None, stretches: Sequence[bytes]) -> list[Frame]:
    """Write the frames from ``end`` on (None: the file's), or truncate the file to that length."""
    end = file.seek(0, os.SEEK_END) if end is None else file.seek(end)
    file.truncate()
    frames = []
    at = end
    try:
        for stretch in stretches:
            frame = compressed(stretch)
            left = memoryview(frame)
            while left:
                left = left[file.write(left) :]
            frames.append(Frame(at, len(frame)))
            at += len(frame)
    except OSError:
        with contextlib.suppress(OSError):
            file.truncate(end)
        raise
    return frames


def compressed(text: bytes) -> bytes:
    """Return a frame of some lines."""
    options: dict[int, int] = {
        zstd.CompressionParameter.compression_level: LEVEL,
        zstd.CompressionParameter.checksum_flag: 1,
    }
    return bytes(zstd.compress(text, options=options))


def void(path: Path, lost: Frame, frames: Sequence[Frame]) -> None:
    """Take a frame that cannot be read, and is archived elsewhere, out of an archive: it must not count as missing.

    It becomes a frame that is skipped. If the file was cut, what is left of its last frame is cut off.

    Args:
        path: The archive file.
        lost: The frame; if it can be read, it stays.
        frames: All frames in the ledger, with it; the others stay.
    """
    if path.is_symlink() or not path.is_file() or text_of(path, lost) is not None:
        return
    size, end = path.stat().st_size, lost.offset + lost.length
    torn = [one.offset for one in frames if one.offset < size < one.offset + one.length]
    others = [one for one in frames if one != lost]
    with _translated(path), path.open("r+b") as file:
        if torn and not any(min(torn) < one.offset < size for one in frames):
            file.truncate(min(torn))
        elif (
            end <= size
            and lost.length >= _VOID_BYTES
            and all(end <= one.offset or one.offset + one.length <= lost.offset for one in others)
        ):
            file.seek(lost.offset)
            file.write(_SKIPPABLE + (lost.length - _VOID_BYTES).to_bytes(4, "little"))


def next_name(name: str) -> str:
    """Return the name of an archive's replacement: ``s.jsonl.zst``, ``s+1.jsonl.zst``, ``s+2.jsonl.zst``.

    No transcript name has a plus sign, see ``file_name``.
    """
    stem = name.removesuffix(".jsonl.zst")
    match = _NUMBERED.fullmatch(stem)
    return f"{match[1]}+{int(match[2]) + 1}.jsonl.zst" if match else f"{stem}+1.jsonl.zst"


def write_anew(path: Path, frames: Iterable[bytes]) -> list[Frame]:
    """Write an archive of these frames, which is durable before it replaces any file, or a link, at ``path``.

    Raises:
        StoreFullError, UnavailableError, UsageError: It cannot be written; what is at ``path`` stays.
    """
    placed: list[Frame] = []

    def noted() -> Iterator[bytes]:
        for frame in frames:
            placed.append(Frame(sum(placed[-1]) if placed else 0, len(frame)))
            yield frame

    with _translated(path):
        replace_file(path, noted(), lambda _, handle: os.fsync(handle))
        sync_folder(path.parent)
    return placed


def read_raw(path: Path, frame: Frame) -> bytes:
    """Return the bytes of a frame as stored, as many as there are."""
    with _translated(path), path.open("rb") as file:
        file.seek(frame.offset)
        return file.read(frame.length)


@contextlib.contextmanager
def _translated(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise StoreFullError(f"{path}: no space left", hint="free some disk space; nothing was lost") from error
        raise refused(error, path) from error


def _left_behind(path: Path, recorded_end: int) -> bytes | None:
    """Return the text of the frames after the recorded ones, maybe with a torn last one; None if they do not decode."""
    with path.open("rb") as file:
        file.seek(recorded_end)
        data, parts = file.read(), []
    try:
        while data:
            decoder = zstd.ZstdDecompressor()
            parts.append(decoder.decompress(data))
            data = decoder.unused_data if decoder.eof else b""
    except zstd.ZstdError:
        return None
    return b"".join(parts) if parts else None


def _divide_end(path: Path, recorded_end: int, stretches: Sequence[bytes], rest: bytes) -> list[Frame]:
    """Replace the frames after the recorded ones, which have the same text, by the given stretches and the rest."""
    with path.open("rb") as file:
        recorded = file.read(recorded_end)
    _, *frames, _ = write_anew(path, [recorded, *map(compressed, stretches), compressed(rest)])
    return frames


def read_frame(path: Path, frame: Frame) -> bytes:
    """Return the clean lines of one frame.

    Raises:
        DamagedError: The file is missing or too short, or the frame does not decode to its end.
    """
    try:
        decoder = zstd.ZstdDecompressor()
        with path.open("rb") as file:
            file.seek(frame.offset)
            text = decoder.decompress(file.read(frame.length), MAX_FRAME_BYTES)
    except (OSError, zstd.ZstdError) as error:
        raise _damaged(path, frame, error) from error
    if not decoder.eof:
        raise _damaged(path, frame, "the frame is cut off")
    return bytes(text)


def _damaged(path: Path, frame: Frame, problem: Exception | str) -> DamagedError:
    what = problem.strerror if isinstance(problem, OSError) else problem
    return DamagedError(f"archive {path}, byte {frame.offset}: {what}", hint="run: crystal verify --repair")


def text_of(path: Path, frame: Frame) -> bytes | None:
    """Return the clean lines of one frame, or None if it cannot be read."""
    try:
        return read_frame(path, frame)
    except DamagedError:
        return None


def placed_frames(path: Path, start: int = 0) -> Iterator[tuple[Frame, bytes | None]]:
    """Yield every frame of an archive file from an offset on, in file order, without a ledger.

    Unreadable bytes up to the next frame are yielded as one frame without text.
    """
    with system_errors(path):
        data = path.read_bytes()
    at = start
    while at < len(data):
        text, stop = _frame_at(data, at)
        if text != b"":  # what `void` left
            yield Frame(at, stop - at), text
        at = stop


def _frame_at(data: bytes, at: int) -> tuple[bytes | None, int]:
    """Return the text of the frame at an offset, or None, and the offset of the next frame."""
    decoder = zstd.ZstdDecompressor()
    parts, end = [], at
    with contextlib.suppress(zstd.ZstdError):
        while end < len(data) and not decoder.eof:
            piece = data[end : end + _READ_BYTES]
            end += len(piece)
            parts.append(decoder.decompress(piece))
        if decoder.eof:
            return b"".join(parts), end - len(decoder.unused_data)
    following = data.find(_MAGIC, at + 1)
    return None, len(data) if following < 0 else following
