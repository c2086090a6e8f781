"""One machine with real transcripts, and a look at every byte that it keeps."""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Iterator
from pathlib import Path

from crystal.app.background import enrich
from crystal.app.capture import run_capture
from crystal.app.capture_engine import make_capture
from crystal.app.context import Machine
from crystal.app.forget import execute_plan, plan_forget
from crystal.app.import_past import import_sessions, plan_import
from crystal.forgetting.request import ForgetPlan, ForgetRequest, Forgotten
from tests.support.archive_frames import frames_in
from tests.support.capture_machine import line
from tests.support.pairing_boxes import Box

DATA = Path(__file__).parent.with_name("data") / "transcripts"
NOW = 1_795_000_000_000


class Desk(Box):
    """A machine whose memory is looked at from outside."""

    def __init__(self, folder: Path, name: str = "desk") -> None:
        super().__init__(folder, name, f"cc-{name}")
        self.set("embedding.provider", "none")
        self.set("hook.flush_seconds", 0)
        self.set("summary.idle_minutes", 1)

    @property
    def ldm(self) -> Path:
        return self.home / ".ldm"

    def transcript(self, session: str, folder: str = "p") -> Path:
        path = self.home / ".claude" / "projects" / folder
        path.mkdir(parents=True, exist_ok=True)
        return path / f"{session}.jsonl"

    def say(self, session: str, *lines: bytes, folder: str = "p") -> Path:
        """Append lines to a session's transcript."""
        path = self.transcript(session, folder)
        with path.open("ab") as file:
            file.writelines(lines)
        return path

    def capture(self) -> None:
        """Capture everything that was said, and do what follows."""
        with self.open() as machine:
            run_capture(machine, lambda capture: capture.sweep())
            enrich(machine, budget_seconds=60)

    def meet(self) -> None:
        """Begin to capture: what is said from now on counts."""
        with self.open() as machine:
            make_capture(machine).meet()

    def backfill(self) -> None:
        """Import everything that is there."""
        with self.open() as machine:
            import_sessions(machine, plan_import(machine, [], None), lambda _: None)
            enrich(machine, budget_seconds=60)

    def plan(self, **wish: object) -> ForgetPlan:
        """What a wish comes to."""
        with self.open() as machine:
            return plan_forget(machine, ForgetRequest(**wish))  # type: ignore[arg-type]

    def forget(self, **wish: object) -> Forgotten:
        """Plan and carry out."""
        with self.open() as machine:
            return execute_plan(machine, plan_forget(machine, ForgetRequest(**wish)))  # type: ignore[arg-type]

    def texts(self) -> list[str]:
        """What the memory says, sorted."""
        with self.open() as machine:
            return texts_of(machine)

    def files(self) -> Iterator[tuple[str, bytes]]:
        """Every file of crystal's, raw, and archives as they read."""
        for path in sorted(self.ldm.rglob("*")):
            if path.is_file():
                yield str(path.relative_to(self.ldm)), path.read_bytes()
                if path.name.endswith(".zst"):
                    yield f"{path.relative_to(self.ldm)} decompressed", b"".join(frames_in(path))

    def holding(self, *words: str) -> list[str]:
        """The files that hold one of some words, in any form in which JSON may write it."""
        sought = {form for word in words for form in _forms(word)}
        return [name for name, data in self.files() if any(form in data for form in sought)]


def _forms(word: str) -> set[bytes]:
    escaped = json.dumps(word, ensure_ascii=False)[1:-1]
    return {
        form.encode("utf-8", "surrogatepass")
        for form in (word, escaped, json.dumps(word)[1:-1], json.dumps(escaped, ensure_ascii=False)[1:-1])
    }


def texts_of(machine: Machine) -> list[str]:
    """What the memory says, sorted."""
    return sorted(str(text) for (text,) in machine.store.rows("SELECT text FROM chunks"))


def said(text: str, *, at: int = NOW, role: str = "user", ident: str | None = None, **more: object) -> bytes:
    """A line of a conversation."""
    return line(text, role=role, at=at, ident=ident or str(uuid.uuid4()), **more)


@contextlib.contextmanager
def reading(store_path: Path) -> Iterator[None]:
    """Another process that reads the store, and so keeps its log."""
    import apsw

    db = apsw.Connection(str(store_path))
    db.execute("BEGIN; SELECT count(*) FROM chunks")
    try:
        yield
    finally:
        db.close()
