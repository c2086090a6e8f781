"""What the relay could tell: nothing. Fifty things that must not be there are looked for in all that it holds."""

from __future__ import annotations

import base64
import io
import itertools
import logging
import sqlite3
import sys
import urllib.parse
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import generate_latest

from crystal.store.sync import outbox, relay_peers
from crystal.store.sync.refusal_counts import refusals
from crystal.store.texts import text_hash
from crystal.sync.envelope.blob import HEADER_BYTES
from crystal.sync.envelope.packing import padded_length
from tests.support.capture_machine import line
from tests.support.relay_fate import assert_settled, rotate
from tests.support.relay_world import ROOT, World

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

TEXTS = [f"canary words number {number} tnjxq{number * 7919}" for number in range(12)]
SECRET = "ghp_" + "k3Y" * 12
NAMES = {
    "devices": ["zebra-laptop", "quokka-tower"],
    "sessions": ["0d3c1b2a-feed-4c0d-8a55-5e5510a0c4a7", "sessioncanaryx"],
    "paths": ["/home/canaryuser/projectcanary", "/home/canaryuser/othercanary/deep"],
    "branches": ["branch/canary-feature"],
    "projects": ["projectcanary", "othercanary"],
    "remote": ["git@canaryhost.example:team/canaryrepo.git"],
    "titles": ["titlecanary of a session"],
    "tools": ["CanaryTool"],
    "models": ["claude-canary-9"],
    "uuids": ["c0ffee00-aaaa-4bbb-8ccc-0123456789ab", "c0ffee01-aaaa-4bbb-8ccc-0123456789ab"],
}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.close()


def canaries(world: World) -> list[bytes]:
    """Every name, text, hash and key that only the ends may know."""
    agents = [device.agent for device in world.devices]
    words = [*TEXTS, SECRET, *itertools.chain.from_iterable(NAMES.values()), *agents]
    found = [word.encode() for word in words]
    for text in TEXTS:
        sha = text_hash(text)
        found += [sha, sha.hex().encode()]
    for device in world.devices:
        for secret in device.secrets.values():
            found.append(secret)
    found.append(ROOT)
    assert len(found) >= 50
    return found


def spellings(canary: bytes) -> set[bytes]:
    """A canary in every way that it could be written down."""
    found = {canary, canary[::-1], canary.hex().encode(), canary.hex().upper().encode()}
    found.add(urllib.parse.quote(canary).encode())
    found.add(urllib.parse.quote(canary, safe="").encode())
    for code in (base64.b64encode, base64.urlsafe_b64encode):
        for shift in range(3):
            inner = code(b"\0" * shift + canary)
            # Not the letters that its neighbours share.
            found.add(inner[4 if shift else 0 : len(inner) // 4 * 4 - 4])
    try:
        text = canary.decode()
    except UnicodeDecodeError:
        pass
    else:
        found |= {text.encode("utf-16-le"), text.encode("utf-16-be"), text.upper().encode(), text.lower().encode()}
    return {spelling for spelling in found if len(spelling) >= 6}


def unpacked(data: bytes) -> Iterator[bytes]:
    """Whatever is compressed anywhere in it."""
    at = -1
    while (at := data.find(b"\x28\xb5\x2f\xfd", at + 1)) >= 0:
        try:
            yield zstd.ZstdDecompressor().decompress(data[at:], 1 << 22)
        except zstd.ZstdError:
            continue
    for mark in (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda"):
        at = -1
        while (at := data.find(mark, at + 1)) >= 0:
            try:
                yield zlib.decompressobj().decompress(data[at : at + (1 << 16)])
            except zlib.error:
                continue


def everything_said(world: World) -> None:
    """A whole session: capture, send, receipts, a rotation, an outage, documents, the past."""
    one, two = world.device("zebra-laptop"), world.device("quokka-tower")
    session, other = NAMES["sessions"]
    fields = {
        "cwd": NAMES["paths"][0],
        "gitBranch": NAMES["branches"][0],
        "sessionId": session,
        "ident": NAMES["uuids"][0],
    }
    one.say(session, line(TEXTS[0], **fields), line(f"{TEXTS[1]} {SECRET}", cwd=NAMES["paths"][1]))
    tool = {"type": "tool_use", "id": "t1", "name": "CanaryTool", "input": {"command": TEXTS[2]}}
    said = line("", role="assistant", message={"role": "assistant", "model": "claude-canary-9", "content": [tool]})
    one.say(session, said, b'{"type":"summary","summary":"titlecanary of a session","leafUuid":"x"}\n')
    two.say(other, *(line(text) for text in TEXTS[3:6]))
    world.settle(2)
    rotate(world, "zebra-laptop")
    one.say(session, *(line(text) for text in TEXTS[6:9]))
    world.settle(3)
    world.relay.wipe()
    one.say(session, line(TEXTS[9], ident=NAMES["uuids"][1]))
    two.say(other, line(TEXTS[10] + " long" * 30_000))
    one.deliver()
    two.deliver()
    two.send_all()
    two.say(other, line(TEXTS[11]))
    two.deliver()


class Everything(logging.Handler):
    """Every field of every record, whoever writes it."""

    def __init__(self) -> None:
        super().__init__(logging.NOTSET)
        self.text = io.StringIO()

    def emit(self, record: logging.LogRecord) -> None:
        self.text.write(repr({**record.__dict__, "said": record.getMessage()}) + "\n")


@pytest.mark.slow
def test_the_relay_holds_none_of_fifty_secrets_in_any_spelling(world: World) -> None:
    log = Everything()
    loggers = [
        logging.getLogger(name) for name in ("", "crystal-relay", "relay_worker", *logging.root.manager.loggerDict)
    ]
    levels = [(logger, logger.level) for logger in loggers]
    logging.getLogger().addHandler(log)
    for logger in loggers:
        logger.setLevel(logging.DEBUG)
        if not logger.propagate:
            logger.addHandler(log)
    try:
        everything_said(world)
        metrics = generate_latest(world.relay.served.app.relay.metrics.registry)
        held = {str(path): path.read_bytes() for path in world.relay.folder.rglob("*") if path.is_file()}
        names = "\n".join(held).replace(str(world.folder), "").encode()
        world.settle(3)
        held |= {f"later {path}": path.read_bytes() for path in world.relay.folder.rglob("*") if path.is_file()}
    finally:
        for logger, level in levels:
            logger.removeHandler(log)
            logger.setLevel(level)
    relay_log = "\n".join(row for row in log.text.getvalue().splitlines() if "relay" in row)
    assert relay_log, "the relay logs its requests"
    held |= {"metrics": metrics, "names": names, "log": relay_log.encode()}
    assert sum(map(len, held.values())) > 50_000
    haystacks = [(name, data) for name, data in held.items()]
    haystacks += [(f"{name}, unpacked", inner) for name, data in held.items() for inner in unpacked(data)]
    for canary in canaries(world):
        for spelling in spellings(canary):
            for name, data in haystacks:
                assert spelling not in data, f"{canary!r} is in {name} as {spelling!r}"
    assert_settled(world)


def test_the_search_for_leaks_would_find_one() -> None:
    canary = TEXTS[0].encode()
    for written in (
        canary,
        base64.b64encode(b"xy" + canary + b"z"),
        base64.b64encode(b"x" + canary),
        canary.hex().encode(),
        zstd.compress(b"head" + canary),
        zlib.compress(b"head" + canary),
        TEXTS[0].encode("utf-16-le"),
    ):
        data = b"noise" * 10 + written + b"noise" * 10
        places = [data, *unpacked(data)]
        assert any(spelling in place for spelling in spellings(canary) for place in places), written


@pytest.mark.slow
def test_the_relay_sees_few_sizes_and_all_of_them_padded(world: World) -> None:
    everything_said(world)
    sizes = set()
    for file in world.relay.folder.rglob("*.db"):
        db = sqlite3.connect(file)
        sizes |= {size for (size,) in db.execute("SELECT size FROM blobs")}
        db.close()
    assert sizes
    overhead = HEADER_BYTES + 16 + 32
    assert {size - overhead for size in sizes} == {padded_length(size - overhead - 20) for size in sizes}


@pytest.mark.slow
def test_the_device_keeps_nothing_readable_in_its_outbox_and_no_key_in_any_store(world: World) -> None:
    everything_said(world)
    device = world.devices[0]
    sealed = b"".join(
        outbox.sealed_blob(device.store, stream.id, blob.seq) or b""
        for stream in outbox.streams(device.store)
        for blob in outbox.kept_from(device.store, stream.id, 1)
    )
    assert sealed
    for canary in canaries(world):
        for spelling in spellings(canary):
            assert spelling not in sealed
    secrets = [*itertools.chain.from_iterable(device.secrets.values() for device in world.devices), ROOT]
    for machine in (world.home.machine, *(device.machine for device in world.devices)):
        machine.store.db.wal_checkpoint()
        for file in machine.store.path.parent.glob("crystal.db*"):
            data = file.read_bytes()
            for secret in secrets:
                for spelling in spellings(secret):
                    assert spelling not in data, f"a key is in {file}"
    assert relay_peers.find_peer(world.home.store, "zebra-laptop").accepted_from == 2


@pytest.mark.slow
def test_no_error_of_the_core_shows_a_key_or_a_word(world: World) -> None:
    device = world.device("zebra-laptop")
    device.say("s", line(TEXTS[0]))
    secret = device.secrets[1]
    shown = repr(device.link()) + repr(device.link().keys) + repr(outbox.streams(device.store))
    device.secrets[1] = bytes(32)
    device.say("s", line(TEXTS[1]))
    device.deliver()
    world.home.poll()
    from crystal.store import problems
    from crystal.store.sync import inbox

    shown += repr(inbox.all_streams(world.home.store)) + repr(refusals(world.home.store))
    shown += repr(problems.list_problems(world.home.store)) + repr(problems.list_problems(device.store))
    for canary in (secret, TEXTS[0].encode(), TEXTS[1].encode()):
        for spelling in spellings(canary):
            assert spelling not in shown.encode("utf-8", "backslashreplace")
    assert repr(secret) not in shown
