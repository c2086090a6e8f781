"""A backlog at the relay, measured: how fast the home machine fetches, opens and commits what a device sent.

    python benchmarks/relay_backlog.py [--blobs 10000] [--plain 1000] [--sessions 20] [--folder DIR]

Real crypto, real stores that wait for the disk, the real relay app, all in one process over HTTP messages. The same
blobs are taken the plain way too (fetch one, open it, commit it, then the next), and the same segments are ingested
from memory, each in a transaction of its own: their ratios do not depend on the machine. Exits 1 where the target is
missed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from crystal.ingest.ingest import ingest
from crystal.model.capture import Origin, Project, Segment, SegmentPiece, Watermark
from crystal.store.sync import outbox
from crystal.sync import poller
from crystal.sync.envelope.blob import open_blob
from crystal.sync.envelope.packing import PayloadKind
from crystal.sync.sending import put_message
from crystal.sync.wire import decode_segment, encode_segment
from tests.support.capture_machine import CaptureMachine, line
from tests.support.relay_world import Device, World, link_keys

BLOBS_PER_SECOND = 300
WORDS = "the relay keeps what it was given until somebody who may has said that it is safe elsewhere ".split()


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--blobs", type=int, default=10_000)
    asked.add_argument("--plain", type=int, default=1000)
    asked.add_argument("--sessions", type=int, default=20)
    asked.add_argument("--folder", type=Path)
    given = asked.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        return measure(Path(folder), given.blobs, given.plain, given.sessions)


def measure(folder: Path, blobs: int, plain: int, sessions: int) -> int:
    rate = polled(folder / "together", blobs, sessions)
    print(f"backlog: {blobs} blobs polled and committed at {rate:.0f} blobs/s{verdict(rate >= BLOBS_PER_SECOND)}")
    together = polled(folder / "some", plain, sessions)
    was = poller.AT_ONCE, poller.LIVE_TURN
    poller.AT_ONCE = 1
    one_by_one = polled(folder / "plain", plain, sessions, at_once=1)
    poller.AT_ONCE, poller.LIVE_TURN = was
    print(f"plain: fetched, opened and committed one by one at {one_by_one:.0f} blobs/s")
    local = ingested(folder / "local", plain, sessions)
    print(f"local: the same segments ingested from memory, one by one, at {local:.0f} segments/s")
    print(f"ratio: {together / one_by_one:.2f} times the plain way, {together / local:.2f} times local ingest")
    return 0 if rate >= BLOBS_PER_SECOND else 1


def verdict(is_kept: bool) -> str:
    return f" (target {BLOBS_PER_SECOND} {'kept' if is_kept else 'MISSED'})"


def segments(device: str, count: int, sessions: int) -> Iterator[Segment]:
    """Short turns of some sessions, one segment each."""
    at = [0] * sessions
    for number in range(count):
        which = number % sessions
        session = f"session-{which}"
        words = " ".join(WORDS[(number * 7 + place) % len(WORDS)] for place in range(60))
        text = line(f"{number} {words}", role="assistant" if number % 2 else "user")
        start, end = at[which], at[which] + len(text)
        at[which] = end
        before, after = Watermark(session, start), Watermark(session, end, 1, 1, 0, bytes(32))
        piece = SegmentPiece(start, end, "captured", None, text, bytes(32), ((start, text[:-1]),))
        yield Segment(Origin(f"cc-{device}", device, session), f"/x/{session}.jsonl", before, after, (piece,))


def filled(folder: Path, count: int, sessions: int) -> tuple[World, Device]:
    """A world with a backlog at the relay."""
    world = World(folder)
    device = world.device("laptop")
    link = device.link()
    with device.store.transaction():
        for segment in segments("laptop", count, sessions):
            projects = {"/home/dev/quartz": Project("/home/dev/quartz", None, None, "quartz")}
            payload = encode_segment(segment, projects, "live")
            put_message(device.store, link, payload, kind=PayloadKind.RECORDS, lane="live", now=device.machine.now)
    device.deliver()
    return world, device


def polled(folder: Path, count: int, sessions: int, *, at_once: int = 4) -> float:
    world, _ = filled(folder, count, sessions)
    world.home.at_once = at_once
    began = time.perf_counter()
    report = world.home.poller().poll()
    seconds = time.perf_counter() - began
    assert report.blobs == count, report
    assert report.turns == count, report
    world.close()
    return count / seconds


def ingested(folder: Path, count: int, sessions: int) -> float:
    """The same segments from memory."""
    world, device = filled(folder / "from", count, sessions)
    keys = link_keys(device.secrets[1], "up")
    stream = outbox.streams(device.store)[0]
    ready = []
    for blob in outbox.kept_from(device.store, stream.id, 1):
        sealed = outbox.sealed_blob(device.store, stream.id, blob.seq) or b""
        opened = open_blob(sealed, keys, channel=1, stream=stream.stream, seq=blob.seq, prev=None)
        ready.append(decode_segment(opened.payload).segment)
    machine = CaptureMachine.at(folder / "to")
    began = time.perf_counter()
    for segment in ready:
        ingest(
            machine.store,
            segment,
            ldm_home=machine.home,
            archive_folder=machine.home / "agents/cc-laptop/memory/transcripts",
            find_project=lambda cwd: Project(cwd, None, None, "quartz"),
            now=machine.now,
        )
    seconds = time.perf_counter() - began
    machine.store.close()
    world.close()
    return count / seconds


if __name__ == "__main__":
    sys.exit(main())
