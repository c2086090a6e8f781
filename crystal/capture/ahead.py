"""Cleaning ahead: while one stretch of the past is written, the next ones are cleaned in processes of their own.

Cleaning is pure and takes about half of the time of an import. What another process cleaned is used only for exactly
the bytes that it was given; for all other bytes, and when such a process is gone, the caller cleans for himself. So
nothing here can change what is kept, only how soon.

A process is given several stretches at a time, since a big one after a small one would leave it idle. A thread writes
them into its pipe, so that it may wait for its answer to be read without anybody waiting for it.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import IO

from crystal import transcript
from crystal.capture import files
from crystal.capture.backfill import Past
from crystal.capture.engine import Capture
from crystal.capture.tail import SEGMENT_BYTES, CleanedLines, CleanLine, cut_at
from crystal.errors import CrystalError
from crystal.redact import Redactor
from crystal.store.capture import ledger

MAX_SIZE = 2 * SEGMENT_BYTES
"""A longer stretch is one huge line: it is not held twice."""

MAX_AHEAD = 3 * SEGMENT_BYTES
"""How many bytes are cleaned ahead, about: they are in memory."""

_LENGTH = 8
# Ctrl-C is for the import, which then closes the pipe.
_PROGRAM = """\
import signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
sys.path.insert(0, sys.argv[1])
import crystal
sys.path.append(sys.path.pop(0))
from crystal.capture.ahead import serve
serve(sys.stdin.buffer, sys.stdout.buffer)
"""


class CleanerGone(Exception):
    """A cleaning process has ended."""


class CleanerProcess:
    """One cleaning process. The code that started it must close it.

    Args:
        key: The redactor's key. It goes through the pipe, never on the command line.
        secrets: Whether secrets are taken out.
    """

    def __init__(self, key: bytes, *, secrets: bool) -> None:
        self.waiting = 0
        """Bytes that were given and not yet finished."""
        root = str(Path(__file__).resolve().parents[2])
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-X", "utf8", "-c", _PROGRAM, root],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._given: SimpleQueue[bytes | None] = SimpleQueue()
        self._given.put(json.dumps({"key": key.hex(), "secrets": secrets}).encode())
        self._writer = threading.Thread(target=self._write, name="cleaning ahead", daemon=True)
        self._writer.start()

    def begin(self, raw: bytes) -> None:
        """Give it a stretch to clean. Does not wait."""
        self.waiting += len(raw)
        self._given.put(raw)

    def finish(self, raw: bytes) -> CleanedLines:
        """Wait for the lines of a stretch; they come in the order in which the stretches were given.

        Raises:
            Gone: The process has ended.
        """
        self.waiting -= len(raw)
        assert self._process.stdout is not None
        answer = _receive(self._process.stdout)
        if answer is None:
            raise CleanerGone
        return unpack(answer, raw)

    def close(self) -> None:
        """End it. Closing twice does nothing."""
        self._process.kill()
        self._process.wait()
        self._given.put(None)
        self._writer.join()
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()

    def _write(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # it has ended: the one who waits for its answers finds out
            while (message := self._given.get()) is not None:
                _put(self._process.stdin, message)


def start_hands(count: int, key: bytes, *, secrets: bool) -> list[CleanerProcess]:
    """Start cleaning processes, or fewer where the machine refuses: without them an import is slow, not wrong."""
    hands: list[CleanerProcess] = []
    with contextlib.suppress(OSError):
        while len(hands) < count:
            hands.append(CleanerProcess(key, secrets=secrets))
    return hands


class Ahead:
    """Knows what will be read next and has it cleaned.

    Args:
        hands: The cleaning processes.
        coming: The stretches that will be read, in order, each with its place in the plan.
    """

    def __init__(self, hands: Sequence[CleanerProcess], coming: Iterator[tuple[int, bytes]]) -> None:
        self._hands = list(hands)
        self._at_work = list(hands)
        self._coming = coming
        self._busy: deque[tuple[int, bytes, CleanerProcess]] = deque()
        self._place = 0

    def __enter__(self) -> Ahead:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for hand in self._hands:
            hand.close()

    def reach(self, place: int) -> None:
        """Note which transcript of the plan is read now: what is left of those before it is of no use."""
        self._place = place
        while self._busy and self._busy[0][0] < place:
            self._finish_first()
        self._begin_next()

    def result_for(self, raw: bytes) -> CleanedLines | None:
        """Return the cleaned lines of exactly these bytes, if they come next; else None."""
        if not self._busy or self._busy[0][1] != raw:
            return None
        cleaned = self._finish_first()
        self._begin_next()
        return cleaned

    def _finish_first(self) -> CleanedLines | None:
        _, raw, hand = self._busy.popleft()
        try:
            return hand.finish(raw)
        except CleanerGone:
            if hand in self._at_work:
                self._at_work.remove(hand)
            return None

    def _begin_next(self) -> None:
        while self._at_work and sum(len(raw) for _, raw, _ in self._busy) < MAX_AHEAD:
            place, raw = next(self._coming, (0, None))
            if raw is None:
                return
            if place >= self._place and len(raw) <= MAX_SIZE:
                hand = min(self._at_work, key=lambda hand: hand.waiting)
                hand.begin(raw)
                self._busy.append((place, raw, hand))


def stretches(capture: Capture, plan: Sequence[Past]) -> Iterator[tuple[int, bytes]]:
    """Yield the bytes that an import of the plan will read, cut in the same way, each with its transcript's index."""
    for place, past in enumerate(plan):
        with contextlib.suppress(OSError, CrystalError):
            for raw in _stretches_of(capture, past):
                yield place, raw


def _stretches_of(capture: Capture, past: Past) -> Iterator[bytes]:
    state = ledger.state_of(capture.store, capture.device, past.key)
    ranges = ledger.skipped_ranges(capture.store, state) if state else []
    end = past.found.size
    with files.opened(past.found.path, replace(capture, anywhere=past.named).folders) as file:
        for start, stop in [*ranges, (state.mark.offset if state else 0, end)]:
            at = start
            while at < stop:
                limit = SEGMENT_BYTES if stop == end else min(SEGMENT_BYTES, stop - at)
                raw = transcript.read_segment(file, at, limit=limit)
                raw = raw if stop == end else cut_at(raw, stop)
                if not raw.raw:
                    break
                yield raw.raw
                at = raw.end


# ------------------------------------------------------------------------------------------------ in the other process


def serve(source: IO[bytes], sink: IO[bytes]) -> None:
    """Clean stretch after stretch until the source ends."""
    given = json.loads(_receive(source) or b"{}")
    redactor = Redactor(bytes.fromhex(given["key"]), secrets=given["secrets"])
    while (raw := _receive(source)) is not None:
        _put(sink, pack(raw, redactor.clean_line))


def pack(raw: bytes, clean_line: CleanLine) -> bytes:
    """Encode the lines that cleaning changes: their numbers, lengths and findings as JSON, a newline, the lines."""
    changed, texts = [], []
    for number, line in enumerate(raw[:-1].split(b"\n")):
        clean, findings = clean_line(line)
        if findings or clean != line:
            changed.append((number, len(clean), dict(findings)))
            texts.append(clean)
    return json.dumps(changed).encode() + b"\n" + b"".join(texts)


def unpack(packed: bytes, raw: bytes) -> CleanedLines:
    """Return every line of the stretch, cleaned, with its findings."""
    cleaned: CleanedLines = [(line, {}) for line in raw[:-1].split(b"\n")]
    at = packed.index(b"\n") + 1
    for number, length, findings in json.loads(packed[:at]):
        cleaned[number] = (packed[at : at + length], findings)
        at += length
    return cleaned


def _put(pipe: IO[bytes], message: bytes) -> None:
    pipe.write(len(message).to_bytes(_LENGTH, "little"))
    pipe.write(message)
    pipe.flush()


def _receive(pipe: IO[bytes]) -> bytes | None:
    """Read the next message in full; None if the other side has ended."""
    length = pipe.read(_LENGTH)
    if len(length) < _LENGTH:
        return None
    message = pipe.read(int.from_bytes(length, "little"))
    return message if len(message) == int.from_bytes(length, "little") else None
