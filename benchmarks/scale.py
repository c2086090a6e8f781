"""Measure what a memory takes on the disk, and how long ``doctor`` and the preview of ``forget`` take in a large one.

    python benchmarks/scale.py [disk] [speed] [--size 20MB] [--transcripts FOLDER] [--chunks 540000] [--folder DIR]

``disk``: transcripts that are mostly conversation are imported with ``crystal backfill``; the whole
folder is compared with their bytes, part by part. ``--transcripts`` takes a folder of your own instead of made-up ones.
``speed``: ``crystal doctor`` and ``crystal forget --query WORD --dry-run`` in a store of so many chunks, for a
rare word and common ones, against ``crystal search WORD`` in the same store and run. The exit code is 1 when a target
was missed.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import apsw
import orjson
from filling import fill
from machine import Machine, folder_size
from transcripts import parse_size
from words import Writer

from crystal.app.status import PARTS, sizes_of
from crystal.config.paths import resolve_places
from crystal.search.index import bring_up_to_date
from crystal.store import Store

MAX_RATIO, DOCTOR_SECONDS, PREVIEW_SECONDS = 1.6, 1.0, 2.0
RUNS = 3
PATIENCE_SECONDS = 1800
WORD = "quokkafest"
COMMON = ("config", "the")
"""Words of one message in twenty, and of nearly every one."""
MESSAGES = 40


def main() -> int:
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("parts", nargs="*", choices=["disk", "speed", []], help="disk, speed; both if none is given")
    options.add_argument("--size", type=parse_size, default=parse_size("20MB"))
    options.add_argument("--transcripts", type=Path, help="a folder of transcripts; made up if not given")
    options.add_argument("--chunks", type=int, default=540_000)
    options.add_argument("--folder", type=Path, help="where there is room; the system's temporary folder if not given")
    given = options.parse_args()
    kept = []
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        if not given.parts or "disk" in given.parts:
            kept.append(disk(Path(folder) / "disk", given.transcripts, given.size))
        if not given.parts or "speed" in given.parts:
            kept.append(speed(Path(folder) / "speed", given.chunks))
    print("targets kept" if all(kept) else "a target was missed")
    return 0 if all(kept) else 1


# ------------------------------------------------------------------------------------------------------------ disk


def disk(folder: Path, transcripts: Path | None, size: int) -> bool:
    """Import text-heavy transcripts and compare the folder with them."""
    machine = Machine(folder)
    if transcripts is None:
        write_talk(machine.projects / "-home-dev-talk", size)
    else:
        shutil.copytree(transcripts, machine.projects, dirs_exist_ok=True)
    told = folder_size(machine.projects)
    machine.crystal("init", "--yes", "--no-import")
    machine.crystal("backfill")
    wait_for_the_rest(machine)
    places = resolve_places({"HOME": str(folder)}, folder)
    found = sizes_of(places)
    ratio = found["whole"] / told
    sizes = f"{told / 1e6:.1f} MB of transcripts, {found['whole'] / 1e6:.1f} MB in crystal's folder"
    print(f"disk: {sizes}: {ratio:.2f} times (target {MAX_RATIO})")
    for part in PARTS:
        print(f"  {part:<10} {found[part] / told:.3f}")
    for name, taken in tables(places.db):
        print(f"    {name:<26} {taken / told:.3f}")
    return ratio <= MAX_RATIO


def wait_for_the_rest(machine: Machine) -> None:
    """Wait for what follows an import in the background: vectors, index, summaries, and the space they leave."""
    left = "SELECT (SELECT count(*) FROM chunks WHERE vector_generation = 0) + (SELECT count(*) FROM index_log)"
    left += " + (SELECT count(*) FROM sessions WHERE summarized_turn < last_turn)"
    deadline = time.monotonic() + PATIENCE_SECONDS
    while machine.value(left) and time.monotonic() < deadline:
        time.sleep(1)
        machine.crystal("sync")
    machine.settle()
    machine.crystal("sync")


def tables(path: Path) -> list[tuple[str, int]]:
    """The largest tables and indexes of a database, with their bytes."""
    db = apsw.Connection(str(path))
    try:
        sql = "SELECT name, sum(pgsize) FROM dbstat GROUP BY name ORDER BY 2 DESC LIMIT 12"
        return [(str(name), int(size)) for name, size in db.execute(sql)]
    finally:
        db.close()


def write_talk(folder: Path, size: int) -> None:
    """Write sessions of questions and long answers, in the form of the client, until they have so many bytes."""
    writer, written, number = Writer(5), 0, 0
    folder.mkdir(parents=True)
    while written < size:
        session = str(uuid.uuid5(uuid.NAMESPACE_URL, f"session-{number}"))
        with (folder / f"{session}.jsonl").open("wb") as file:
            for line in talk(writer, session, number):
                written += file.write(orjson.dumps(line) + b"\n")
        number += 1


def talk(writer: Writer, session: str, number: int) -> Iterator[dict[str, object]]:
    """The lines of one session: a question of some hundred characters, an answer of some thousand."""
    parent, begin = None, datetime(2026, 5, 1, tzinfo=timezone.utc) + timedelta(hours=3 * number)
    for at in range(MESSAGES):
        own = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{session}-{at}"))
        line: dict[str, object] = {
            "parentUuid": parent, "isSidechain": False, "userType": "external", "cwd": "/home/dev/talk",
            "sessionId": session, "version": "2.1.329", "gitBranch": "main", "uuid": own,
            "timestamp": (begin + timedelta(minutes=at)).isoformat().replace("+00:00", "Z"),
        }  # fmt: skip
        if at % 2 == 0:
            yield {**line, "type": "user", "message": {"role": "user", "content": writer.prose(300)}}
        else:
            usage = {"input_tokens": 4, "cache_creation_input_tokens": 1200, "cache_read_input_tokens": 48211,
                     "output_tokens": 611, "service_tier": "standard"}  # fmt: skip
            message = {
                "id": f"msg_{own[:24]}", "type": "message", "role": "assistant", "model": "claude-opus",
                "content": [{"type": "text", "text": writer.prose(2400)}], "stop_reason": "end_turn", "usage": usage,
            }  # fmt: skip
            yield {**line, "type": "assistant", "requestId": f"req_{own[:20]}", "message": message}
        parent = own


# ----------------------------------------------------------------------------------------------------------- speed


def speed(folder: Path, chunks: int) -> bool:
    """Time ``doctor`` and a preview in a store of so many chunks, against a search for the same word."""
    machine = Machine(folder)
    machine.crystal("init", "--yes", "--no-import")
    fill(machine.db, chunks, special=WORD)
    with Store.open(machine.db) as store:
        while bring_up_to_date(store, now=int(time.time() * 1000), budget_seconds=60.0):
            pass
    previews = {f"preview of {word!r}": ("forget", "--query", word, "--dry-run") for word in (WORD, *COMMON)}
    commands = {"search": ("search", WORD), "doctor": ("doctor",), **previews}
    taken = {name: min(machine.crystal(*words).wall for _ in range(RUNS)) for name, words in commands.items()}
    targets = {"doctor": DOCTOR_SECONDS, **dict.fromkeys(previews, PREVIEW_SECONDS)}
    for name, most in targets.items():
        print(f"speed: {chunks:,} chunks: {name} {taken[name]:.2f} s (target {most:.0f} s),"
              f" {taken[name] / taken['search']:.1f} times a search ({taken['search']:.2f} s)")  # fmt: skip
    return all(taken[name] < most for name, most in targets.items())


if __name__ == "__main__":
    sys.exit(main())
