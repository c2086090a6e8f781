"""Reserve standard input and output for the protocol: one message a line, and nothing else on standard output.

Output of libraries goes to standard error, because descriptor 1 is redirected there.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

MAX_BYTES = 8 << 20
"""A line longer than this is not read into memory."""

_PIECE = 1 << 16


class Wire:
    """A pair of descriptors that carry lines.

    Args:
        source: Descriptor to read from.
        sink: Descriptor to write to; whole lines, from any thread.
        gone: Called when the reader of ``sink`` is gone.
    """

    def __init__(self, source: int, sink: int, gone: Callable[[], None] = lambda: None) -> None:
        self._source, self._sink, self._gone = source, sink, gone
        self._writing = threading.Lock()

    @classmethod
    def claim(cls, gone: Callable[[], None]) -> Wire:
        """Take over standard input and output, so that nothing else in this process uses them.

        Raises:
            OSError: One of them is closed.
        """
        if sys.stdout is not None:
            sys.stdout.flush()
        source, sink = os.dup(0), os.dup(1)
        for descriptor in (source, sink) if sys.platform != "win32" else ():
            os.set_blocking(descriptor, True)
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)
        try:
            os.dup2(2, 1)
        except OSError:  # standard error is closed too
            os.dup2(nothing, 1)
        os.close(nothing)
        sys.stdout = sys.stderr
        if sys.platform == "win32":
            import msvcrt

            for descriptor in (source, sink):
                msvcrt.setmode(descriptor, os.O_BINARY)
        return cls(source, sink, gone)

    def lines(self) -> Iterator[bytes | None]:
        """Yield every line without its newline; None for a line that is too long."""
        parts: list[bytes] = []
        size = 0
        while piece := self._read():
            *ends, rest = piece.split(b"\n")
            for end in ends:
                yield b"".join((*parts, end)) if size + len(end) <= MAX_BYTES else None
                parts, size = [], 0
            size += len(rest)
            parts = [*parts, rest] if size <= MAX_BYTES and rest else [] if size > MAX_BYTES else parts
        if size:
            yield b"".join(parts) if size <= MAX_BYTES else None

    def write(self, message: Mapping[str, Any]) -> None:
        """Send one message."""
        line = memoryview(encoded(message) + b"\n")
        with self._writing:
            try:
                while line:
                    line = line[os.write(self._sink, line) :]
            except OSError:
                self._gone()

    def _read(self) -> bytes:
        try:
            return os.read(self._source, _PIECE)
        except OSError:
            return b""


def encoded(message: Mapping[str, Any]) -> bytes:
    """Return a message as one line of UTF-8, without the newline; half a surrogate pair stays an escape."""
    try:
        return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        return json.dumps(message, separators=(",", ":")).encode()
