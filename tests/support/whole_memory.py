"""What crystal made of it: the memory of one home folder, seen through its commands, its store and its files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from crystal.capture.lock import try_lock
from crystal.model.capture import Chunk
from crystal.store import Store
from crystal.text import chunking
from tests.support.archive_frames import frames_in

Said = Counter[tuple[str, str]]
ROOT = Path(__file__).resolve().parents[2]


def wait_until(holds: Callable[[], object], what: Callable[[], str] | str, seconds: float = 60.0) -> None:
    """Poll until something holds.

    Raises:
        AssertionError: It did not within the time.
    """
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds:.0f} s for {what if isinstance(what, str) else what()}")
        time.sleep(0.03)


class Memory:
    """The memory below one home folder. ``env`` is the environment of its user."""

    def __init__(self, home: Path, env: Mapping[str, str]) -> None:
        self.home = home
        self.env = dict(env)
        self.ldm = home / ".ldm"
        self.data = self.ldm / "memory"

    # -- commands ----------------------------------------------------------------------------------------------------

    def crystal(self, *arguments: str, code: int = 0, stdin: str = "") -> str:
        """Run the command; it must end with ``code``."""
        done = self.run(*arguments, stdin=stdin)
        assert done.returncode == code, (
            f"crystal {' '.join(arguments)}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        )
        return done.stdout

    def run(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run the command to its end."""
        return subprocess.run(
            [sys.executable, "-m", "crystal", *arguments],
            env=self.env,
            cwd=ROOT,
            input=stdin,
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=300,
            check=False,
        )

    def verify(self) -> dict[str, Any]:
        """Sweep what the client wrote after its last hook, then prove that nothing is missing."""
        self.crystal("sync")
        proof = json.loads(self.crystal("verify", "--json"))
        assert (proof["ok"], proof["percent"], proof["faults"]) == (True, 100.0, [])
        return dict(proof)

    def settle(self) -> None:
        """Wait until the hooks' workers have acted on every note and are gone; between its locks a worker has none."""
        for _ in range(2):
            wait_until(
                lambda: not self.notes() and self._is_free("capture.lock") and self._is_free("enrich.lock"),
                lambda: f"the worker; {len(self.notes())} notes wait",
            )
            time.sleep(0.1)

    def notes(self) -> list[Path]:
        """The hook's notes that wait."""
        return sorted((self.data / "spool").glob("*.json"))

    def _is_free(self, name: str) -> bool:
        if not self.data.is_dir():
            return True
        with try_lock(self.data / name) as held:
            return held

    # -- what it holds -----------------------------------------------------------------------------------------------

    def said(self, session: str | None = None) -> Said:
        """Every turn in the store: (role, text), counted."""
        with Store.open_existing(self.data / "crystal.db") as store:
            rows = store.rows(
                "SELECT t.id, t.role, c.start, c.text FROM turns t JOIN sessions s ON s.id = t.session"
                " LEFT JOIN chunks c ON c.turn = t.id WHERE ? IS NULL OR s.session_id = ? ORDER BY t.id, c.start",
                (session, session),
            )
            turns: dict[tuple[int, str], list[Chunk]] = {}
            for turn, role, start, text in rows:
                turns.setdefault((int(turn), str(role)), []).append(Chunk(int(start), str(text)))
        return Counter((role, chunking.merge(chunks)) for (_, role), chunks in turns.items())

    def value(self, sql: str, *values: object) -> Any:
        """One value of the store."""
        with Store.open_existing(self.data / "crystal.db") as store:
            return store.value(sql, values)

    def texts(self, role: str) -> list[str]:
        """What one role said, sorted."""
        return sorted(text for (who, text), count in self.said().items() for _ in range(count) if who == role)

    def bytes_on_disk(self) -> dict[Path, bytes]:
        """Every file that crystal keeps, archives decompressed."""
        files = {}
        for folder, _, names in os.walk(self.ldm):
            for name in names:
                path = Path(folder, name)
                files[path] = b"".join(frames_in(path)) if name.endswith(".zst") else path.read_bytes()
        return files

    def files_with(self, text: str) -> list[Path]:
        """The files that hold a text, however it is written: plainly or in JSON's ASCII."""
        forms = {text.encode(), json.dumps(text)[1:-1].encode()}
        return [path for path, data in self.bytes_on_disk().items() if any(form in data for form in forms)]


def said(*turns: tuple[str, str]) -> Said:
    """What is expected: (role, text) of each turn."""
    return Counter(turns)
