"""Read one file of a source: its bytes, and its text as it may be stored."""

from __future__ import annotations

import codecs
import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path

from crystal.model.named_tuple import NamedTuple
from crystal.sources.scan import stamp_of

MAX_BYTES = 2 << 20
"""Maximum size of an indexed file: larger files are data, not text that a person reads."""

CleanText = Callable[[str], tuple[str, Mapping[str, int]]]
"""Returns a text without secrets and private spans, with the same number of lines, and counts of what it removed."""

_BYTE_ORDER_MARKS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))


class FileContent(NamedTuple):
    """The bytes of a file, with its stamp and the time of its last change (ms).

    ``why`` is the reason why it cannot be indexed; ``data`` is then empty.
    """

    data: bytes
    stamp: str
    changed_at: int
    why: str | None = None


def read_content(root: Path, path: str, now_ns: int) -> FileContent | None:
    """Read a file of a folder; None if it is gone.

    Raises:
        OSError: The file cannot be read.
    """
    whole = root / path
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        if os.path.realpath(whole) != str(whole):  # a folder above it became a link meanwhile
            return None
        descriptor = os.open(whole, flags)
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        stamp, changed_at = stamp_of(status, now_ns), status.st_mtime_ns // 1_000_000
        if not stat.S_ISREG(status.st_mode):
            return None
        data = file.read(MAX_BYTES + 1) if status.st_size <= MAX_BYTES else b""
    if status.st_size > MAX_BYTES or len(data) > MAX_BYTES:
        return FileContent(b"", stamp, changed_at, f"larger than {MAX_BYTES >> 20} MB")
    return FileContent(data, stamp, changed_at)


def text_of(content: FileContent) -> tuple[str, str | None]:
    """Return the text of a file, and the reason if it has no text."""
    data = content.data
    encoding = next((name for mark, name in _BYTE_ORDER_MARKS if data.startswith(mark)), "utf-8")
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError:
        return "", "binary" if b"\0" in data else "not UTF-8"
    return ("", "binary") if "\0" in text else (text.replace("\r\n", "\n"), content.why)


def encoded(text: str, before: bytes) -> bytes:
    """Encode a text with the line ends of the file's former content."""
    return (text.replace("\n", "\r\n") if b"\r\n" in before else text).encode("utf-8", "replace")
