"""Write one HTML page that shows sessions without a network, whatever their number.

The data is compressed, in base64, in blocks: no text can end its element, and the page opens only the blocks that it
shows. The page's policy allows its own script and style, by their hashes, and nothing else.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import os
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any, BinaryIO

import orjson

from crystal.export.labels import Wording
from crystal.export.seal import ITERATIONS, SALT_BYTES, Seal, make_seal
from crystal.export.whole_folder import new_file
from crystal.sessions.reading import SessionSummary, ShownTurn, stream_turns
from crystal.store import Store

FILE = "crystal.html"
BLOCK_CHARACTERS = 400_000
_GZIP_LEVEL = 6
_DATA = "<!-- data -->"


def write_html(
    store: Store,
    sessions: Iterable[SessionSummary],
    folder: Path,
    wording: Wording,
    now: int,
    passphrase: str | None = None,
) -> None:
    """Write ``crystal.html`` into an empty folder.

    Args:
        store: The store.
        sessions: What to write, in order; the page lists the last one first.
        folder: An empty folder.
        wording: How speakers are called.
        now: The time, ms.
        passphrase: Encrypts the data; None for a page that opens by itself.
    """
    seal = None if passphrase is None else make_seal(passphrase, os.urandom(SALT_BYTES))
    before, after = _page(seal)
    listed = []
    with new_file(folder / FILE) as file:
        file.write(before)
        blocks = _Blocks(file, seal)
        for session in sessions:
            first = blocks.turns
            for turn in stream_turns(store, session.id):
                blocks.add(_turn(turn, session.harness, wording), len(turn.text))
            listed.append(_session(session, first, blocks.turns - first, wording))
        blocks.end({"written": now, "sessions": listed})
        file.write(after)


class _Blocks:
    """Writes turns in blocks from number 1 on, and at last the index as number 0."""

    def __init__(self, file: BinaryIO, seal: Seal | None) -> None:
        self._file, self._seal = file, seal
        self._rows: list[list[Any]] = []
        self._characters = 0
        self._firsts: list[int] = []
        self.turns = 0

    def add(self, row: list[Any], characters: int) -> None:
        """Add a turn of so many characters."""
        if not self._rows:
            self._firsts.append(self.turns)
        self._rows.append(row)
        self.turns += 1
        self._characters += characters
        if self._characters >= BLOCK_CHARACTERS:
            self._flush()

    def end(self, index: dict[str, Any]) -> None:
        """Write what waits, and the index, which gets the first turn of each block."""
        self._flush()
        self._write(0, {**index, "blocks": self._firsts, "turns": self.turns})

    def _flush(self) -> None:
        if self._rows:
            self._write(len(self._firsts), self._rows)
            self._rows, self._characters = [], 0

    def _write(self, number: int, content: object) -> None:
        data = gzip.compress(orjson.dumps(content), _GZIP_LEVEL, mtime=0)
        if self._seal is not None:
            data = self._seal.close(number, data)
        self._file.write(b'<script type="text/plain" id="block-%d">%b</script>\n' % (number, base64.b64encode(data)))


def _session(one: SessionSummary, first: int, turns: int, wording: Wording) -> dict[str, Any]:
    return {
        "id": one.id, "title": one.title, "agent": wording.agent(one.harness), "project": one.project,
        "branch": one.branch, "device": one.device, "cwd": one.cwd, "started": one.started_at, "last": one.last_at,
        "first": first, "turns": turns,
    }  # fmt: skip


def _turn(turn: ShownTurn, harness: str, wording: Wording) -> list[Any]:
    """Return a turn as the page's script takes it: role, speaker, time, text, remarks."""
    remarks = [f"subagent {turn.subagent}"] if turn.subagent else []
    if turn.copied:
        remarks.append("from the session that this one forks")
    if turn.full_length > len(turn.text):
        remarks.append(f"the whole has {turn.full_length:,} characters")
    return [turn.role, wording.speaker(turn.role, turn.tool, harness), turn.timestamp, turn.text, " · ".join(remarks)]


def _page(seal: Seal | None) -> tuple[bytes, bytes]:
    """Return what is before and after the data."""
    page, script, style = (files(__package__).joinpath(name).read_text("utf-8") for name in _PARTS)
    sealed = {} if seal is None else {"salt": base64.b64encode(seal.salt).decode(), "iterations": ITERATIONS}
    whole = Template(page).substitute(
        script=script, style=style, script_hash=_hash(script), style_hash=_hash(style),
        seal=orjson.dumps(sealed).decode(),
    )  # fmt: skip
    before, after = whole.split(_DATA)
    return before.encode(), after.encode()


_PARTS = ("page.html", "page.js", "page.css")


def _hash(text: str) -> str:
    """Return the hash by which the policy names an inline script or style."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
