"""What is not exactly what was sealed for exactly this place is refused, whatever was done to it."""

from __future__ import annotations

import itertools
import random
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from cryptography.hazmat.primitives.hmac import HMAC

from crystal.sync.envelope import blob
from crystal.sync.envelope.blob import MAX_BLOB, tag_of
from crystal.sync.envelope.link import link_keys
from crystal.sync.envelope.packing import MAX_RAW
from crystal.sync.envelope.refusals import (
    EnvelopeError,
    ForkedError,
    MalformedError,
    MisplacedError,
    TamperedError,
    WrongKeyError,
)
from tests.support.envelope_blobs import KEYS, MAKE, SALT, SECRET, STREAM, opened, sealed
from tests.support.table import each_row

BLOB = sealed()


def code_of(candidate: bytes, **change: object) -> str:
    """Why it is refused, or ``accepted``."""
    try:
        opened(candidate, **change)
    except EnvelopeError as refused:
        return refused.code
    return "accepted"


@pytest.mark.slow
def test_no_bit_can_be_flipped() -> None:
    codes: Counter[str] = Counter()
    for at, bit in itertools.product(range(len(BLOB)), range(8)):
        changed = bytearray(BLOB)
        changed[at] ^= 1 << bit
        codes[code_of(bytes(changed))] += 1
    assert codes == {"tag": 9296, "key": 128, "magic": 32, "version": 8, "suite": 8, "length": 32}


def test_no_two_neighbouring_bytes_can_be_swapped() -> None:
    for at in range(len(BLOB) - 1):
        changed = BLOB[:at] + BLOB[at + 1 : at + 2] + BLOB[at : at + 1] + BLOB[at + 2 :]
        assert changed == BLOB or code_of(changed) != "accepted", at


def test_every_truncation_is_refused_from_either_end() -> None:
    for length in range(len(BLOB)):
        assert code_of(BLOB[:length]) == "length"
        assert code_of(BLOB[len(BLOB) - length :]) != "accepted"


def test_every_extension_is_refused_at_either_end() -> None:
    for more in range(1, 300):
        assert code_of(BLOB + bytes(more)) == "length"
        assert code_of(BLOB + BLOB[:more]) == "length"
        assert code_of(bytes(more) + BLOB) == "magic"
    for value in range(256):
        assert code_of(BLOB + bytes([value])) == "length"
    assert code_of(BLOB + BLOB) == "length"


def test_an_extension_is_refused_even_when_the_header_counts_it() -> None:
    for more in (1, 16, 64, 1088):
        counted = (1040 + more).to_bytes(4, "big")
        assert code_of(BLOB[:112] + counted + BLOB[116:-32] + bytes(more) + BLOB[-32:]) == "tag"


def test_a_blob_longer_than_any_is_refused_before_it_is_read() -> None:
    long = BLOB[:112] + (MAX_BLOB + 1 - 148).to_bytes(4, "big") + bytes(MAX_BLOB + 1 - 116)
    assert code_of(long) == "length"


def other_keys() -> Iterator[tuple[str, bytes, str]]:
    for device, generation, root, direction in itertools.product(
        (MAKE["DEVICE"], bytes(16)), (1, 2), (0, 1), ("up", "down")
    ):
        secret = MAKE["secret_of"](bytes([root]) + MAKE["ROOT"][1:], device, generation)
        if (secret, direction) != (SECRET, "up"):
            yield f"{device.hex()} {generation} {root} {direction}", secret, direction


@each_row(("secret", "direction"), [case[1:] for case in other_keys()])
def test_another_device_generation_root_or_direction_opens_nothing(secret: bytes, direction: str) -> None:
    theirs = link_keys(secret, direction)  # type: ignore[arg-type]
    with pytest.raises(WrongKeyError) as ours:
        opened(sealed(keys=theirs))
    assert ours.value.code == "key"
    with pytest.raises(WrongKeyError):
        opened(BLOB, theirs)
    # Nor when their blob is made to name our key: the tag tells.
    named = sealed(keys=theirs)
    assert code_of(named[:8] + KEYS.key_id + named[24:]) == "tag"


PLACES = {
    "channel": (1, 2),
    "stream": (STREAM, STREAM[:8] + bytes(8)),
    "seq": (2, 3),
    "prev": (b"\xbe" * 32, b"\xbf" * 32),
}


def test_a_blob_fits_its_own_place_and_no_other() -> None:
    places = [dict(zip(PLACES, values, strict=True)) for values in itertools.product(*PLACES.values())]
    for made, expected in itertools.product(places, places):
        code = code_of(sealed(**made), **expected)
        differs = [name for name in PLACES if made[name] != expected[name]]
        assert code == (differs[0] if differs else "accepted")


@each_row(
    ("change", "kind"),
    [
        ({"channel": 2}, MisplacedError),
        ({"stream": bytes(16)}, MisplacedError),
        ({"seq": 7}, MisplacedError),
        ({"prev": SALT}, ForkedError),
    ],
)
def test_the_class_says_what_can_be_done(change: dict[str, object], kind: type[EnvelopeError]) -> None:
    with pytest.raises(EnvelopeError) as refused:
        opened(sealed(seq=2, prev=b"\xbe" * 32), **({"seq": 2, "prev": b"\xbe" * 32} | change))
    assert type(refused.value) is kind


def test_no_part_of_one_blob_fits_another() -> None:
    """Header, ciphertext and tag of blobs that differ in one thing each, in every combination."""
    blobs = [
        sealed(),
        sealed(b"another\n", salt=b"\1" * 32),
        sealed(salt=bytes(32)),
        sealed(channel=2),
        sealed(seq=2, prev=tag_of(BLOB)),
        sealed(stream=bytes(16)),
        sealed(keys=link_keys(SECRET, "down")),
    ]
    for head, body, tag in itertools.product(range(len(blobs)), repeat=3):
        if len({head, body, tag}) > 1:
            mixed = blobs[head][:116] + blobs[body][116:-32] + blobs[tag][-32:]
            assert code_of(mixed) in ("tag", "key"), (head, body, tag)


def test_a_key_that_a_look_up_returns_by_mistake_is_not_used() -> None:
    theirs = link_keys(SECRET, "down")
    assert code_of(BLOB, keys=lambda _: theirs) == "key"
    assert code_of(BLOB, keys=lambda _: None) == "key"
    assert code_of(BLOB, keys={KEYS.key_id: KEYS}.get) == "accepted"


def test_nothing_is_decoded_before_the_tag_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    def reached(*_: object) -> None:
        raise AssertionError("looked at what is not authentic")

    for name in ("check_fields", "AESGCM", "blob_key"):
        monkeypatch.setattr(blob, name, reached)
    monkeypatch.setattr(blob.packing, "unpack", reached)
    for at in range(116, len(BLOB)):
        changed = bytearray(BLOB)
        changed[at] ^= 0xFF
        with pytest.raises(TamperedError):
            opened(bytes(changed))


def test_the_tag_is_compared_by_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its comparison takes the same time wherever the difference is; ours would be a second one to trust."""
    compared = []

    class Watched:
        """An HMAC that gives nothing out."""

        def __init__(self, *arguments: object) -> None:
            self._mac = HMAC(*arguments)
            self.update = self._mac.update

        def verify(self, signature: bytes) -> None:
            compared.append(signature)
            self._mac.verify(signature)

    monkeypatch.setattr(blob, "HMAC", Watched)
    assert code_of(BLOB) == "accepted"
    assert compared == [tag_of(BLOB)]


# ----------------------------------------------------------------------------------------------------------- garbage


def random_bytes(draw: random.Random) -> bytes:
    return draw.randbytes(draw.choice((0, 1, 6, 115, 116, 148, 1187, 1188, 1189, 1300)))


def random_after_a_valid_beginning(draw: random.Random) -> bytes:
    kept = draw.randrange(len(BLOB))
    return BLOB[:kept] + draw.randbytes(len(BLOB) - kept)


def right_header_random_rest(draw: random.Random) -> bytes:
    length = draw.choice((1040, 1104, 1168))
    return BLOB[:112] + length.to_bytes(4, "big") + draw.randbytes(length + 32)


def some_bytes_changed(draw: random.Random) -> bytes:
    changed = bytearray(BLOB)
    for _ in range(draw.randint(1, 6)):
        changed[draw.randrange(len(changed))] = draw.randrange(256)
    return bytes(changed)


def bytes_left_out_and_put_in(draw: random.Random) -> bytes:
    start = draw.randrange(len(BLOB))
    piece = draw.randbytes(draw.randrange(40))
    return BLOB[:start] + piece + BLOB[start + draw.choice((len(piece), draw.randrange(40))) :]


GARBAGE: tuple[Callable[[random.Random], bytes], ...] = (
    random_bytes,
    random_after_a_valid_beginning,
    right_header_random_rest,
    some_bytes_changed,
    bytes_left_out_and_put_in,
)


@pytest.mark.slow
def test_of_200_000_garbage_inputs_none_is_accepted() -> None:
    draw = random.Random(1)
    codes: Counter[str] = Counter()
    for make in itertools.islice(itertools.cycle(GARBAGE), 200_000):
        candidate = make(draw)
        if candidate != BLOB:
            codes[code_of(candidate)] += 1
    assert codes.keys() == {"tag", "key", "magic", "version", "suite", "length"}
    assert codes.total() > 199_000


@pytest.mark.slow
def test_garbage_with_a_valid_tag_is_refused_too() -> None:
    """A sender with the key and a fault, or malice: whatever it encrypts, a refusal comes out, or what was meant."""
    draw = random.Random(3)
    good = MAKE["squeezed"](MAKE["REAL_FRAME"], len(MAKE["REAL_TEXT"]))
    for _ in range(5_000):
        inner = bytearray(good)
        for _ in range(draw.randint(1, 4)):
            inner[draw.randrange(80)] = draw.randrange(256)
        try:
            found = opened(MAKE["sealed"](bytes(inner)))
        except EnvelopeError:
            continue
        assert len(found.payload) == int.from_bytes(inner[12:16], "big") <= MAX_RAW


# ------------------------------------------------------------------------------------------------------------- bombs


def peak_of(work: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_an_authentic_bomb_takes_no_memory() -> None:
    for announced, yields in ((16, 2**26), (2**26, 2**30), (2**30, 2**30), (16, 2**33 // 16)):
        frame = MAKE["frame"](announced, MAKE["same_bytes"](yields))
        bomb = MAKE["sealed"](MAKE["squeezed"](frame, 16))
        assert peak_of(lambda bomb=bomb: code_of(bomb)) < 2**20
        assert code_of(bomb) == "zstd"


@pytest.mark.slow
def test_the_largest_that_is_allowed_takes_a_small_multiple_of_itself() -> None:
    largest = MAKE["sealed"](MAKE["squeezed"](MAKE["frame"](MAX_RAW, MAKE["same_bytes"](MAX_RAW)), MAX_RAW))
    assert peak_of(lambda: opened(largest)) < 3 * MAX_RAW
    endless = MAKE["sealed"](MAKE["squeezed"](MAKE["frame"](MAX_RAW, MAKE["same_bytes"](2**30)), MAX_RAW))
    assert code_of(endless) == "zstd"
    assert peak_of(lambda: code_of(endless)) < 3 * MAX_RAW


def test_a_blob_that_only_the_sender_can_have_made_names_the_sender() -> None:
    """Refusals after the tag say ``MalformedError``: fetching again would not help."""
    with pytest.raises(MalformedError):
        opened(MAKE["sealed"](MAKE["plain"](pad_at=1023)))
