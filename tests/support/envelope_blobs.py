"""Blobs for the tests of the envelope: the one of the specification, and pieces to make others of."""

from __future__ import annotations

import json
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from crystal.sync.envelope.blob import ZERO_TAG, VerifiedBlob, open_blob, seal, split_payload, tag_of
from crystal.sync.envelope.link import LinkKeys, link_keys

VECTORS = Path(__file__).parent.parent / "vectors"
MAKE = {
    name: one
    for file in ("make.py", "by_hand.py")
    for name, one in runpy.run_path(str(VECTORS / "envelope" / file)).items()
}
"""The vectors' own implementation, which shares nothing with ours."""

KNOWN: dict[str, Any] = json.loads((VECTORS / "envelope" / "valid-known-answer.json").read_text("utf-8"))
SECRET = bytes.fromhex(KNOWN["device_secret"])
KEYS = link_keys(SECRET, "up")
STREAM = bytes(range(0xA0, 0xB0))
SALT = b"\x5a" * 32
NOW = 1767225600000
LINE = b'{"type":"user"}\n'


def sealed(payload: bytes = LINE, keys: LinkKeys = KEYS, **change: Any) -> bytes:
    usual = {"channel": 1, "kind": 1, "stream": STREAM, "seq": 1, "prev": ZERO_TAG, "salt": SALT, "created_at": NOW}
    return seal(keys, payload, **(usual | change))


def sealed_parts(payload: bytes, salts: Iterator[bytes], *, seq: int, prev: bytes, **place: Any) -> list[bytes]:
    """Seal a payload of any size as the next blobs of a stream."""
    blobs: list[bytes] = []
    for at, (part, more) in enumerate(split_payload(payload), seq):
        blobs.append(sealed(part, seq=at, prev=prev, salt=next(salts), more=more, **place))
        prev = tag_of(blobs[-1])
    return blobs


def opened(blob: bytes, keys: Any = KEYS, **change: Any) -> VerifiedBlob:
    return open_blob(blob, keys, **({"channel": 1, "stream": STREAM, "seq": 1, "prev": ZERO_TAG} | change))
