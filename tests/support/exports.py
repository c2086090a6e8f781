"""Memories to export: the samples of every agent, and conversations that a test writes."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Iterable
from pathlib import Path

from crystal.app.context import open_machine
from crystal.app.import_open_form import import_export
from crystal.capture.engine import Tally
from tests.support import agent_samples as samples
from tests.support.command import Done, crystal

CLAUDE_SAMPLES = Path(__file__).parents[1] / "data" / "transcripts"
SESSION = "9d3d8d59-5b0e-4d6e-9d19-1a3c1c1d1a11"


def remember_samples(home: Path, harnesses: Iterable[str] = samples.ONE_OF_EACH) -> None:
    """Import the samples of Claude Code and of other agents."""
    for harness in harnesses:
        samples.lay_out(harness, home)
    folder = home / ".claude" / "projects" / "w"
    folder.mkdir(parents=True)
    for path in CLAUDE_SAMPLES.glob("*.jsonl"):
        shutil.copy(path, folder / path.name)
    start_and_import()


def remember(
    home: Path, texts: Iterable[object], *, session: str = SESSION, cwd: str = "/home/me/shop", title: str | None = None
) -> None:
    """Import a conversation of Claude Code in which these texts, or blocks, are said, prompts and answers in turn."""
    path = home / ".claude" / "projects" / "w" / f"{session}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        for number, text in enumerate(texts):
            file.write(transcript_line(text, number, session=session, cwd=cwd))
        if title is not None:
            file.write(json.dumps({"type": "custom-title", "customTitle": title, "sessionId": session}) + "\n")
    start_and_import()


def transcript_line(text: object, number: int, *, session: str = SESSION, cwd: str = "/home/me/shop") -> str:
    """Return a line of Claude Code: a prompt, or for an odd number an answer."""
    kind = "assistant" if number % 2 else "user"
    line = {
        "type": kind, "uuid": str(uuid.uuid5(uuid.UUID(session), str(number))), "sessionId": session, "cwd": cwd,
        "gitBranch": "main", "timestamp": f"2026-11-20T10:{number // 60 % 60:02d}:{number % 60:02d}.000Z",
        "message": {"role": kind, "content": text},
    }  # fmt: skip
    return json.dumps(line) + "\n"


def start_and_import() -> None:
    done = crystal("backfill", "--no-embed")
    assert done.code == 0, done.err


def exported(folder: Path, form: str, *words: str) -> Done:
    """Export everything, or what the words say."""
    done = crystal("export", "--as", form, "--to", str(folder), *(words or ("--all",)))
    assert done.code == 0, done.err
    return done


def records(path: Path) -> list[dict[str, object]]:
    """Return the objects of a file of the open form."""
    return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]


def take(path: Path) -> Tally:
    """Import a file of the open form into this machine's memory."""
    with open_machine() as machine:
        return import_export(machine, path, lambda _: None)


def kept_sessions() -> int:
    """Return the number of sessions in the memory."""
    return len(json.loads(crystal("sessions", "-n", "1000", "--json").out)["sessions"])
