"""Measure sealing and opening a blob, against its parts: zstd, AES-256-GCM and HMAC-SHA256 over the same bytes.

    python benchmarks/seal.py [--runs N]

The parts are the same library calls on the same lengths and nothing else: no derived keys, no header, no checks, no
copies. Both are run in turn and medians are compared. One core. Exits 1 where a ratio is above its limit.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.hmac import HMAC

from crystal.sync.envelope.blob import HEADER_BYTES, TAG_BYTES, ZERO_TAG, open_blob, seal
from crystal.sync.envelope.link import link_keys
from crystal.sync.envelope.packing import padded_length

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

FIXTURES = Path(__file__).parent.parent / "tests" / "data" / "transcripts"
# Deriving a blob's keys takes the same time for every size, so the smallest blob feels it most.
SIZES = {"1 KB": (1 << 10, 5.0), "64 KB": (64 << 10, 2.0), "1 MB": (1 << 20, 2.0)}
KEYS = link_keys(bytes(range(32)), "up")
STREAM, HEADER = bytes(16), bytes(HEADER_BYTES)


def texts(size: int) -> dict[str, bytes]:
    """Lines of transcripts, repeated up to the size, and bytes that nothing compresses."""
    lines = b"".join(path.read_bytes() for path in sorted(FIXTURES.glob("*.jsonl")))
    begin = len(lines) // 3
    lines = (lines[begin:] + lines) * (1 + size // len(lines))
    return {"transcript": lines[:size], "noise": random.Random(7).randbytes(size)}


def sealing(payload: bytes) -> tuple[Callable[[], bytes], Callable[[], object]]:
    """What seals the payload, and its parts over the same bytes."""

    def ours() -> bytes:
        return seal(
            KEYS,
            payload,
            channel=1,
            kind=1,
            stream=STREAM,
            seq=1,
            prev=ZERO_TAG,
            salt=os.urandom(32),
            created_at=1767225600000,
        )

    plaintext = bytes(len(ours()) - HEADER_BYTES - TAG_BYTES - 16)
    cipher, nonce = AESGCM(bytes(32)), bytes(12)

    def parts() -> object:
        zstd.compress(payload, level=3)
        mac = HMAC(KEYS.mac_key, SHA256())
        mac.update(HEADER)
        mac.update(cipher.encrypt(nonce, plaintext, HEADER))
        return mac.finalize()

    return ours, parts


def opening(payload: bytes, blob: bytes) -> tuple[Callable[[], object], Callable[[], object]]:
    """What opens the blob, and its parts over the same bytes."""

    def ours() -> object:
        return open_blob(blob, KEYS, channel=1, stream=STREAM, seq=1, prev=ZERO_TAG)

    cipher, nonce = AESGCM(bytes(32)), bytes(12)
    length = len(blob) - HEADER_BYTES - TAG_BYTES - 16
    ciphertext = cipher.encrypt(nonce, bytes(length), HEADER)
    frame = zstd.compress(payload, level=3)
    # What does not compress is not decompressed either.
    compressed = length < padded_length(20 + len(payload))

    def parts() -> object:
        mac = HMAC(KEYS.mac_key, SHA256())
        mac.update(HEADER)
        mac.update(ciphertext)
        mac.finalize()
        cipher.decrypt(nonce, ciphertext, HEADER)
        return zstd.decompress(frame) if compressed else None

    return ours, parts


def timed(ours: Callable[[], object], parts: Callable[[], object], runs: int) -> tuple[float, float]:
    """Median seconds of each, run in turn."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(runs):
        for work, found in zip((ours, parts), times, strict=True):
            start = time.perf_counter()
            work()
            found.append(time.perf_counter() - start)
    return statistics.median(times[0]), statistics.median(times[1])


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=1000, help="for the smallest size; larger ones take fewer")
    runs = parser.parse_args().runs
    kept = True
    for name, (size, limit) in SIZES.items():
        for what, payload in texts(size).items():
            ours, parts = sealing(payload)
            blob = ours()
            times = max(min(runs, 50), runs // max(1, size // 8192))
            for verb, pair in (("seal", (ours, parts)), ("open", opening(payload, blob))):
                mine, bare = timed(*pair, times)
                print(
                    f"{verb} {name} of {what}: {mine * 1e6:.0f} µs, {size / mine / 1e6:.0f} MB/s; "
                    f"its parts {bare * 1e6:.0f} µs; ratio {mine / bare:.2f}, at most {limit:.1f}; "
                    f"blob {len(blob)} bytes"
                )
                kept &= mine <= limit * bare
    print("kept" if kept else "EXCEEDED")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
