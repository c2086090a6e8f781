"""Write the vectors beside this file: one case in each, one reason each, with the code that a receiver must give.

Run: python tests/vectors/envelope/make.py
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
sys.path.append(str(HERE))

from by_hand import (  # noqa: E402
    BEFORE,
    DEVICE,
    LINE,
    LINK,
    MAX_SEQ,
    NOTHING,
    NOW,
    REAL_FRAME,
    REAL_TEXT,
    ROOT,
    SECRET,
    STREAM,
    block,
    encrypted,
    flipped,
    frame,
    head,
    key_id_of,
    link_of,
    mac_key_of,
    plain,
    raw_block,
    same_bytes,
    sealed,
    secret_of,
    squeezed,
    tagged,
    windowed,
)


def case(blob: bytes, reason: str, code: str | None = None, **more: object) -> dict[str, object]:
    """What the receiver has and expects is the usual, unless ``more`` says otherwise."""
    expects = {"channel": 1, "stream": STREAM.hex(), "seq": 1, "prev": NOTHING.hex(), "direction": "up"}
    expects |= {name: more.pop(name) for name in list(expects) if name in more}
    expects["seq"] = str(expects["seq"])
    return {
        "reason": reason,
        "result": "valid" if code is None else "invalid",
        **({} if code is None else {"code": code}),
        "device_secret": SECRET.hex(),
        "expects": expects,
        **more,
        "blob": blob.hex(),
    }


def valid(blob: bytes, reason: str, payload: bytes = LINE, **more: object) -> dict[str, object]:
    opened: dict[str, object] = {"kind": more.pop("kind", 1), "created_at": str(more.pop("created_at", NOW))}
    opened["more"] = more.pop("more", False)
    opened["payload_length"] = len(payload)
    opened["payload_sha256"] = hashlib.sha256(payload).hexdigest()
    return case(blob, reason, None, **more, opened=opened)


def valid_cases() -> Iterator[tuple[str, dict[str, object]]]:
    known = valid(sealed(), "the known answer of the specification")
    known["keys"] = {
        "root": ROOT.hex(),
        "device_id": DEVICE.hex(),
        "generation": 1,
        "link": LINK.hex(),
        "key_id": key_id_of(LINK).hex(),
        "mac_key": mac_key_of(LINK).hex(),
    }
    known["tag"] = sealed()[-32:].hex()
    known["blob_sha256"] = hashlib.sha256(sealed()).hexdigest()
    yield "known-answer", known
    yield "empty-payload", valid(sealed(plain(b"")), "nothing is a payload", b"")
    for channel in range(2, 7):
        yield f"channel-{channel}", valid(sealed(channel=channel), f"channel {channel}", channel=channel)
    for kind in (2, 3):
        yield f"kind-{kind}", valid(sealed(plain(kind=kind)), f"kind {kind}", kind=kind)
    down = link_of(direction="down")
    yield "down", valid(sealed(link=down), "sealed by home for the device", direction="down")
    yield "second", valid(sealed(seq=2, prev=BEFORE), "follows another blob", seq=2, prev=BEFORE.hex())
    yield "any-prev", valid(sealed(seq=9, prev=BEFORE), "the receiver does not ask for prev", seq=9, prev=None)
    yield "any-channel", valid(sealed(channel=5), "the receiver does not ask for the channel", channel=None)
    yield "last-seq", valid(sealed(seq=MAX_SEQ, prev=BEFORE), "the last place", seq=MAX_SEQ, prev=BEFORE.hex())
    yield "more", valid(sealed(flags=1), "the message goes on in the next blob", more=True)
    yield "created-0", valid(sealed(plain(created=0)), "the earliest time", created_at=0)
    yield "created-max", valid(sealed(plain(created=MAX_SEQ)), "the latest time", created_at=MAX_SEQ)
    for length in (1003, 1004, 1005, 1068, 1069, 2028, 2029):
        body = bytes(at % 251 for at in range(length))
        yield f"padding-{length}", valid(sealed(plain(body)), f"{20 + length} bytes before padding", body)
    yield "zstd-raw-block", valid(sealed(squeezed(frame(16, raw_block(LINE)), 16)), "zstd: a raw block")
    two = raw_block(LINE[:7], last=False) + raw_block(LINE[7:])
    yield "zstd-two-blocks", valid(sealed(squeezed(frame(16, two), 16)), "zstd: two blocks")
    yield "zstd-window", valid(sealed(squeezed(windowed(16, 26, raw_block(LINE)), 16)), "zstd: a window of 64 MiB")
    yield "zstd-empty", valid(sealed(squeezed(frame(0, raw_block(b"")), 0)), "zstd: a frame of nothing", b"")
    yield "zstd-real", valid(sealed(squeezed(REAL_FRAME, 1728)), "zstd: as the zstd tool writes it", REAL_TEXT)
    most = squeezed(frame(2**26, same_bytes(2**26)), 2**26)
    yield "zstd-largest", valid(sealed(most), "zstd: 64 MiB, the most that is allowed", bytes(2**26))


def frame_cases() -> Iterator[tuple[str, dict[str, object]]]:
    blob = sealed()
    yield "length-empty", case(b"", "no bytes at all", "length")
    yield "length-in-header", case(blob[:115], "ends inside the header", "length")
    yield "length-header-only", case(blob[:116], "ends after the header", "length")
    yield "length-no-tag", case(blob[:-32], "the tag is missing", "length")
    yield "length-one-less", case(blob[:-1], "the last byte is missing", "length")
    yield "length-one-more", case(blob + b"\0", "a byte follows the tag", "length")
    yield "length-twice", case(blob + blob, "another blob follows", "length")
    yield "length-ct-len-less", case(sealed(ct_len=1039), "ct_len is one less than the ciphertext", "length")
    yield "length-ct-len-more", case(sealed(ct_len=1041), "ct_len is one more than the ciphertext", "length")
    yield "length-ct-len-limit", case(sealed(ct_len=8388609), "ct_len is above the limit", "length")
    yield "length-ct-len-wraps", case(sealed(ct_len=2**32 - 1), "ct_len is 2^32 - 1", "length")
    yield "length-too-small", case(sealed(plain(total=1023)), "authentic, and smaller than any blob", "length")
    yield "magic-lower-case", case(sealed(magic=b"crb1"), "another magic", "magic")
    yield "magic-other", case(sealed(magic=b"CRB2"), "another magic", "magic")
    yield "version-0", case(sealed(version=0), "version 0", "version")
    yield "version-2", case(sealed(version=2), "a version that comes later", "version")
    yield "version-2-short", case(sealed(version=2)[:200], "a later version may be shorter", "version")
    yield "suite-0", case(sealed(suite=0), "suite 0", "suite")
    yield "suite-2", case(sealed(suite=2), "a suite that comes later", "suite")


def key_cases() -> Iterator[tuple[str, dict[str, object]]]:
    def other(secret: bytes, direction: str = "up") -> bytes:
        return sealed(link=link_of(secret, direction))

    blob = sealed()
    yield "key-other-device", case(other(secret_of(device=bytes(16))), "another device's", "key")
    yield "key-other-generation", case(other(secret_of(generation=2)), "the device's next generation", "key")
    yield "key-other-root", case(other(secret_of(root=NOTHING)), "another root's", "key")
    yield "key-other-direction", case(other(SECRET, "down"), "home's own blob, sent back to it", "key")
    yield "key-id-zero", case(sealed(key_id=bytes(16)), "authentic, but names another key", "key")
    impostor = link_of(secret_of(device=bytes(16)))
    named = sealed(link=impostor, key_id=key_id_of(LINK))
    yield "tag-other-key", case(named, "names our key, sealed with another", "tag")
    yield "tag-flipped", case(flipped(blob, -1), "one bit of the tag", "tag")
    yield "tag-zero", case(blob[:-32] + NOTHING, "a tag of zeros", "tag")
    yield "tag-ciphertext", case(flipped(blob, 116), "one bit of the ciphertext", "tag")
    yield "tag-gcm-tag", case(flipped(blob, -33), "one bit of GCM's tag", "tag")
    for name, at in (("channel", 6), ("flags", 7), ("stream", 24), ("seq", 47), ("prev", 48), ("salt", 80)):
        yield f"tag-{name}", case(flipped(blob, at), f"one bit of {name}", "tag")
    second = sealed(plain(b"another\n"), seq=2, prev=blob[-32:])
    mixed = blob[:116] + second[116:-32] + blob[-32:]
    yield "tag-other-ciphertext", case(mixed, "the ciphertext of another blob", "tag")
    header = head(1040)
    inner = encrypted(header, plain())
    unlabelled = tagged(header, inner, label=b"")
    yield "tag-no-label", case(unlabelled, "the tag leaves out the label", "tag")
    inside_out = tagged(header, inner, label=b"crystal-relay/1 device\0")
    yield "tag-other-label", case(inside_out, "the tag has another label", "tag")
    yield "gcm-flipped", case(tagged(header, flipped(inner, 5)), "valid tag, one bit of the ciphertext", "gcm")
    bare = tagged(header, encrypted(header, plain(), aad=b""))
    yield "gcm-no-aad", case(bare, "the header is not GCM's additional data", "gcm")
    elsewhere = tagged(header, encrypted(head(1040, salt=NOTHING), plain(), aad=header))
    yield "gcm-other-salt", case(elsewhere, "encrypted with the key of another header", "gcm")


def field_cases() -> Iterator[tuple[str, dict[str, object]]]:
    for flags in (0x02, 0x03, 0x80):
        yield f"flags-{flags:02x}", case(sealed(flags=flags), f"flags {flags:#04x}", "flags")
    for channel in (0, 7, 255):
        made = sealed(channel=channel)
        yield f"unknown-channel-{channel}", case(made, f"channel {channel}", "unknown-channel", channel=None)
    yield "seq-range-0", case(sealed(seq=0), "seq 0", "seq-range", seq=0)
    yield "seq-range-high", case(sealed(seq=2**63), "seq 2^63", "seq-range", seq=2**63)
    yield "seq-range-highest", case(sealed(seq=2**64 - 1), "seq 2^64 - 1", "seq-range", seq=2**64 - 1)
    first = sealed(prev=BEFORE)
    yield "first-prev", case(first, "the first of its stream follows another", "first-prev", prev=BEFORE.hex())
    yield "channel", case(sealed(channel=2), "authentic, of another channel", "channel")
    yield "stream", case(sealed(stream=bytes(16)), "authentic, of another stream", "stream")
    yield "seq-old", case(sealed(seq=2, prev=BEFORE), "authentic, sent again", "seq", seq=3, prev=BEFORE.hex())
    yield "seq-ahead", case(sealed(seq=4, prev=BEFORE), "authentic, one is missing", "seq", seq=3, prev=BEFORE.hex())
    yield "prev", case(sealed(seq=2, prev=BEFORE), "authentic, after another", "prev", seq=2, prev="ab" * 32)
    yield "prev-zero", case(sealed(seq=2), "authentic, after nothing", "prev", seq=2, prev=BEFORE.hex())


def inner_cases() -> Iterator[tuple[str, dict[str, object]]]:
    def wrong(code: str, reason: str, body: bytes = LINE, **change: int) -> dict[str, object]:
        return case(sealed(plain(body, **change)), reason, code)

    yield "kind-0", wrong("kind", "kind 0", kind=0)
    yield "kind-4", wrong("kind", "kind 4", kind=4)
    yield "codec-2", wrong("codec", "codec 2", codec=2)
    yield "codec-255", wrong("codec", "codec 255", codec=255)
    yield "reserved-low", wrong("reserved", "the second reserved byte is 1", reserved=1)
    yield "reserved-high", wrong("reserved", "the first reserved byte is 1", reserved=256)
    yield "created-2-63", wrong("created", "a time of 2^63", created=2**63)
    over = frame(2**26 + 1, same_bytes(2**26 + 1))
    yield "raw-length-over", wrong("raw-length", "zstd of 64 MiB and a byte", over, codec=1, raw_len=2**26 + 1)
    yield "raw-length-most", wrong("raw-length", "raw_len 2^32 - 1", codec=1, raw_len=2**32 - 1)
    yield "raw-length-less", wrong("raw-length", "codec none, raw_len one less than the body", raw_len=15)
    yield "raw-length-more", wrong("raw-length", "codec none, raw_len one more than the body", raw_len=17)
    yield (
        "body-length-over",
        wrong("body-length", "the body would end behind the plaintext", body_len=1005, raw_len=1005),
    )
    most = 2**32 - 1
    yield "body-length-most", wrong("body-length", "body_len 2^32 - 1", codec=1, body_len=most)
    yield "padded-length-long", wrong("padded-length", "padded one step too far", total=1088)
    yield "padded-length-none", wrong("padded-length", "not padded at all", bytes(1100), total=1120)
    yield "padded-length-off", wrong("padded-length", "one byte of padding too many", bytes(1100), total=1153)
    yield "padding-first", wrong("padding", "the first byte of padding is 1", pad_at=36)
    yield "padding-last", wrong("padding", "the last byte of padding is 1", pad_at=1023)
    # The body is said to end earlier than it does: its rest is padding that is not zero.
    yield "padding-body", wrong("padding", "body_len is too small", body_len=10, raw_len=10)


def zstd_cases() -> Iterator[tuple[str, dict[str, object]]]:
    def wrong(reason: str, body: bytes, raw_len: int = 16) -> dict[str, object]:
        return case(sealed(squeezed(body, raw_len)), "zstd: " + reason, "zstd")

    good = frame(16, raw_block(LINE))
    yield "zstd-no-frame", wrong("not a frame", LINE)
    yield "zstd-nothing", wrong("no bytes", b"")
    yield "zstd-nothing-of-nothing", wrong("no bytes for a payload of none", b"", 0)
    yield "zstd-magic-only", wrong("ends after the magic", good[:4])
    yield "zstd-cut", wrong("the last byte is missing", good[:-1])
    yield "zstd-cut-block", wrong("the last block is missing", frame(16, raw_block(LINE, last=False)))
    yield "zstd-trailing-byte", wrong("a byte follows the frame", good + b"\0")
    yield "zstd-two-frames", wrong("a frame follows the frame", good + frame(0, raw_block(b"")))
    skipped = bytes.fromhex("502a4d1804000000deadbeef")
    yield "zstd-skippable-first", wrong("a skippable frame comes first", skipped + good)
    yield "zstd-skippable-after", wrong("a skippable frame follows", good + skipped)
    yield "zstd-skippable-only", wrong("a skippable frame only", skipped, 0)
    yield "zstd-no-size", wrong("the frame does not announce its size", frame(None, raw_block(LINE)))
    yield "zstd-size-less", wrong("announces less than raw_len", frame(15, raw_block(LINE[:15])))
    yield "zstd-size-more", wrong("announces more than raw_len", frame(17, raw_block(LINE + b"\n")))
    yield "zstd-yields-less", wrong("yields less than announced", frame(16, raw_block(LINE[:15])))
    yield "zstd-yields-more", wrong("yields more than announced", frame(16, raw_block(LINE + b"\n")))
    yield "zstd-bomb-announced", wrong("a bomb that announces 1 GiB", frame(2**30, same_bytes(2**30 // 64)))
    yield "zstd-bomb-hidden", wrong("a bomb that announces 16 bytes", frame(16, same_bytes(2**26)))
    yield "zstd-bomb-size-wraps", wrong("announces 2^64 - 1", frame(2**64 - 1, raw_block(LINE)))
    yield "zstd-window-27", wrong("a window of 128 MiB", windowed(16, 27, raw_block(LINE)))
    yield "zstd-window-26", wrong("a window of 72 MiB", windowed(16, 26, raw_block(LINE), eighths=1))
    yield "zstd-window-41", wrong("a window of 2 TiB", windowed(16, 41, raw_block(LINE)))
    yield "zstd-dictionary", wrong("needs a dictionary", frame(16, raw_block(LINE), descriptor=1, extra=b"\x07"))
    yield "zstd-reserved-bit", wrong("the reserved bit is set", frame(16, raw_block(LINE), descriptor=8))
    yield "zstd-reserved-block", wrong("a block of the reserved type", frame(16, block(3, 16, LINE)))
    summed = frame(16, raw_block(LINE), descriptor=4) + bytes(4)
    yield "zstd-checksum", wrong("a wrong checksum", summed)


def cases() -> dict[str, dict[str, object]]:
    """Every case by the name of its file."""
    made: dict[str, dict[str, object]] = {}
    for prefix, group in (
        ("valid", valid_cases),
        ("invalid", frame_cases),
        ("invalid", key_cases),
        ("invalid", field_cases),
        ("invalid", inner_cases),
        ("invalid", zstd_cases),
    ):
        for name, content in group():
            assert f"{prefix}-{name}" not in made
            made[f"{prefix}-{name}"] = content
    return made


def written(content: dict[str, object]) -> str:
    return json.dumps(content, indent=1) + "\n"


def main() -> None:
    for old in HERE.glob("*.json"):
        old.unlink()
    for name, content in cases().items():
        (HERE / f"{name}.json").write_text(written(content), encoding="utf-8")


if __name__ == "__main__":
    main()
