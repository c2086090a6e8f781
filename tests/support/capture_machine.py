"""A whole machine of capture in a temporary folder: real files, real store, a clock that the test turns."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, field
from pathlib import Path

from crystal.capture.engine import Capture
from crystal.capture.spool import PrivateNotes
from crystal.capture.tail import Cleaner
from crystal.config.harnesses import Root
from crystal.ingest import archive
from crystal.ingest.ingest import IngestReport, ingest
from crystal.model.capture import Segment
from crystal.redact import Redactor
from crystal.store import Store
from crystal.store.capture import ledger
from crystal.transcript.project import find_project

NOW = 1_795_000_000_000


def line(text: str, *, role: str = "user", at: int | None = NOW, ident: str | None = None, **more: object) -> bytes:
    """One conversation line as the client writes it, with its newline."""
    fields: dict[str, object] = {
        "type": role,
        "message": {"role": role, "content": text},
        "uuid": ident or str(uuid.uuid4()),
        "cwd": "/home/dev/quartz",
        "gitBranch": "main",
    }
    if at is not None:
        seconds, ms = divmod(at, 1000)
        fields["timestamp"] = f"{_iso(seconds)}.{ms:03d}Z"
    fields.update(more)
    fields = {name: value for name, value in fields.items() if value is not None}
    return json.dumps(fields, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n"


def _iso(seconds: int) -> str:
    from datetime import datetime, timezone

    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S")


@dataclass
class CaptureMachine:
    """One device. ``now`` is its clock; ``private_projects`` its settings."""

    home: Path
    store: Store
    now: int = NOW
    private_projects: tuple[str, ...] = ()
    private_sessions: tuple[str, ...] = ()
    device: str = "desk"
    reports: list[IngestReport] = field(default_factory=list)

    @classmethod
    def at(cls, home: Path) -> CaptureMachine:
        """A machine with its store at ``home``."""
        home.mkdir(parents=True, exist_ok=True)
        return cls(home, Store.open(home / "memory" / "crystal.db"))

    @property
    def root(self) -> Path:
        """Claude Code's folder of transcripts."""
        return self.home / ".claude" / "projects"

    @property
    def spool(self) -> Path:
        """Where notes lie."""
        return self.home / "memory" / "spool"

    def transcript(self, session: str, project: str = "p") -> Path:
        """Where a session's transcript is; its folder is made."""
        folder = self.root / project
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{session}.jsonl"

    def sink(self, segment: Segment, claim: object) -> IngestReport:
        """Ingest here."""
        report = ingest(
            self.store,
            segment,
            ldm_home=self.home,
            archive_folder=self.home / "agents/cc-test/memory/transcripts",
            find_project=find_project,
            now=self.now,
            claim=claim,  # type: ignore[arg-type]
        )
        self.reports.append(report)
        return report

    def capture(self) -> Capture:
        """The hands."""
        redactor = Redactor(b"r" * 32)
        return Capture(
            store=self.store,
            sink=self.sink,
            cleaner=Cleaner(redactor.clean_line, b"k" * 32),
            agent="cc-test",
            device=self.device,
            roots=(Root(self.root),),
            private_projects=self.private_projects,
            private_sessions=self.private_sessions,
            clock=lambda: self.now,
            announced=PrivateNotes(self.spool).marks,
        )

    def note(self, session: str, event: str = "Stop", *, at: int | None = None, **fields: object) -> Path:
        """Leave a note as the hook does."""
        self.spool.mkdir(parents=True, exist_ok=True)
        moment = self.now if at is None else at
        content = {"v": 1, "at": moment, "event": event, "session_id": session, **fields}
        file = self.spool / f"{moment * 1_000_000:020d}-1-{uuid.uuid4().hex[:8]}.json"
        file.write_text(json.dumps(content), "utf-8")
        return file

    def texts(self, role: str | None = None) -> list[str]:
        """What is in the store, sorted."""
        where, values = ("", ()) if role is None else (" WHERE role = ?", (role,))
        return sorted(text for (text,) in self.store.rows(f"SELECT text FROM chunks{where}", values))

    def assert_sound(self) -> None:
        """The ledger has neither hole nor overlap, and the archive and the index give back what it says."""
        for state in ledger.all_states(self.store):
            at = 0
            rows = self.store.rows(
                "SELECT start, stop, state, archive_offset, archive_length, clean_length FROM segments"
                " WHERE transcript = ? AND generation = ? ORDER BY start",
                (state.id, state.mark.generation),
            )
            for start, stop, kind, offset, length, size in rows:
                assert start == at, f"{state.path}: hole or overlap at {at}"
                at = stop
                if kind == "captured":
                    clean = archive.read_frame(self.home / str(state.archive), archive.Frame(offset, length))
                    assert len(clean) == size
            assert at == state.mark.offset
        assert self.store.value("SELECT count(*) FROM chunks WHERE turn NOT IN (SELECT id FROM turns)") == 0


def keep_transcript(home: Path, session: str, *lines: bytes) -> Path:
    """Add lines to a session of Claude Code's, in the project ``p`` of a home folder; return its file."""
    path = home / ".claude" / "projects" / "p" / f"{session}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.writelines(lines)
    return path
