"""Seal and open: what goes in comes out, whatever it is, and nothing of it can be seen on the way."""

from __future__ import annotations

import dataclasses
import itertools
import os
import random
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from crystal.errors import DeniedError
from crystal.sync.envelope.blob import (
    HEADER_BYTES,
    MAX_BLOB,
    MAX_CIPHERTEXT,
    MAX_SEQ,
    ZERO_TAG,
    BlobHeader,
    Channel,
    open_blob,
    read_header,
    tag_of,
)
from crystal.sync.envelope.link import keys_of_link, link_keys
from crystal.sync.envelope.packing import MAX_RAW, PART_BYTES, PayloadKind, padded_length
from crystal.sync.envelope.refusals import EnvelopeError, MalformedError, UnknownVersionError
from tests.support.envelope_blobs import KEYS, LINE, MAKE, NOW, SALT, SECRET, STREAM, opened, sealed, sealed_parts
from tests.support.examples import part_of
from tests.support.table import each_row

MAX_PLAINTEXT = 8_257_536
"""The largest padded length whose ciphertext is within the limit."""


def noise(length: int) -> bytes:
    """Bytes that nothing compresses."""
    return random.Random(length).randbytes(length)


# -------------------------------------------------------------------------------------------------------- round trip


@pytest.mark.slow
@given(
    payload=st.binary(max_size=3000)
    | st.builds(lambda text, times: text * times, st.binary(max_size=40), st.integers(0, 4000)),
    channel=st.sampled_from(Channel),
    kind=st.sampled_from(PayloadKind),
    stream=st.binary(min_size=16, max_size=16),
    seq=st.integers(2, MAX_SEQ),
    prev=st.binary(min_size=32, max_size=32),
    salt=st.binary(min_size=32, max_size=32),
    created_at=st.integers(0, 2**63 - 1),
    more=st.booleans(),
)
def test_what_is_sealed_is_opened(payload, channel, kind, stream, seq, prev, salt, created_at, more) -> None:
    place = {"channel": channel, "stream": stream, "seq": seq, "prev": prev}
    blob = sealed(payload, kind=kind, salt=salt, created_at=created_at, more=more, **place)
    found = opened(blob, **place)
    assert (found.kind, found.created_at, found.payload, found.tag) == (kind, created_at, payload, tag_of(blob))
    assert found.header == read_header(blob)
    assert found.header == BlobHeader(channel, more, KEYS.key_id, stream, seq, prev, salt, len(blob) - 148)


@given(payload=st.binary(max_size=3000), link=st.binary(min_size=32, max_size=32))
@example(payload=b"", link=bytes(32))
def test_the_vectors_own_implementation_seals_the_same(payload: bytes, link: bytes) -> None:
    """Where nothing is compressed, there is one right answer to the byte."""
    noisy = noise(len(payload))
    theirs = MAKE["sealed"](MAKE["plain"](noisy), link)
    assert sealed(noisy, keys_of_link(link)) == theirs


STEPS = sorted(
    {padded_length(2**power + at) for power in range(10, 15) for at in range(0, 2**power, 2 ** (power - 4) or 1)}
)
SIZES = sorted({max(0, step - 20 + off) for step in STEPS[:40] for off in (-1, 0, 1)} | {0, 1, 2, 15})


def test_sizes_around_nothing_and_every_step_of_the_padding_come_out() -> None:
    for size, payload_of in itertools.product(SIZES, (noise, lambda size: LINE * (size // 16) + b"x" * (size % 16))):
        payload = payload_of(size)
        blob = sealed(payload)
        assert opened(blob).payload == payload
        assert len(blob) - 164 == padded_length(len(blob) - 164)
        assert len(blob) - 164 <= padded_length(20 + size)


@pytest.mark.slow
@each_row("size", part_of([PART_BYTES - 1, PART_BYTES, PART_BYTES + 1, MAX_PLAINTEXT - 20], 2))
def test_a_part_that_cannot_be_compressed_fits(size: int) -> None:
    blob = sealed(noise(size))
    assert len(blob) <= MAX_BLOB
    assert opened(blob).payload == noise(size)


@each_row("size", [MAX_PLAINTEXT - 19, MAX_CIPHERTEXT - 36, MAX_CIPHERTEXT, MAX_CIPHERTEXT + 1])
def test_what_does_not_fit_is_not_sealed(size: int) -> None:
    with pytest.raises(ValueError, match="does not fit"):
        sealed(noise(size))


@pytest.mark.slow
def test_what_compresses_well_fits_up_to_the_limit_of_opening() -> None:
    assert len(sealed(bytes(MAX_CIPHERTEXT + 1))) < 4096
    assert len(opened(sealed(bytes(MAX_RAW))).payload) == MAX_RAW
    with pytest.raises(ValueError, match=str(MAX_RAW)):
        sealed(bytes(MAX_RAW + 1))


def test_compression_is_used_where_the_padded_blob_is_smaller() -> None:
    assert len(sealed(LINE * 1000)) == 1188
    assert len(sealed(noise(16_000))) == 164 + padded_length(16_020)


# ----------------------------------------------------------------------------------------------------------- padding


@given(st.integers(0, 2**40))
@example(1024)
@example(1025)
@example(65536)
def test_padding_is_padme_with_a_floor(length: int) -> None:
    assert padded_length(length) == MAKE["padme"](length)
    assert padded_length(length) >= max(length, 1024)
    assert padded_length(padded_length(length)) == padded_length(length)
    assert length < 1024 or (padded_length(length) - length) * 16 <= length


def test_a_longer_content_is_never_padded_to_less() -> None:
    found = [padded_length(length) for length in range(70_000)]
    assert found == sorted(found)


def test_few_lengths_are_left() -> None:
    lengths, length = set(), 0
    while (length := padded_length(length)) <= MAX_PLAINTEXT:
        lengths.add(length)
        length += 1
    assert len(lengths) == 320
    assert max(lengths) == MAX_PLAINTEXT


# ------------------------------------------------------------------------------------------------------- many blobs


def collected(blobs: list[bytes], seq: int, prev: bytes) -> bytes:
    """What a receiver makes of consecutive blobs."""
    payload = b""
    for at, blob in enumerate(blobs):
        found = opened(blob, seq=seq + at, prev=prev)
        assert found.header.more is (at < len(blobs) - 1)
        assert (found.kind, found.created_at) == (PayloadKind.RAW, NOW)
        payload += found.payload
        prev = found.tag
    return payload


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "count"),
    [
        (0, 1),
        (1, 1),
        (PART_BYTES, 1),
        (PART_BYTES + 1, 2),
        (MAX_CIPHERTEXT, 2),
        (2 * PART_BYTES, 2),
        (2 * PART_BYTES + 1, 3),
    ],
)
def test_a_long_payload_goes_on_in_the_next_blobs(size: int, count: int) -> None:
    salts = (bytes([at]) * 32 for at in itertools.count())
    blobs = sealed_parts(noise(size), salts, seq=5, prev=SALT, kind=2)
    assert len(blobs) == count
    assert all(len(blob) <= MAX_BLOB for blob in blobs)
    assert [read_header(blob).salt for blob in blobs] == [bytes([at]) * 32 for at in range(count)]
    assert collected(blobs, 5, SALT) == noise(size)


def test_parts_never_run_past_the_last_place() -> None:
    with pytest.raises(ValueError, match="seq"):
        sealed_parts(bytes(PART_BYTES + 1), itertools.repeat(SALT), seq=MAX_SEQ, prev=SALT, kind=2)


# ----------------------------------------------------------------------------------------------- what seal refuses


@each_row(
    "change",
    [
        {"stream": bytes(15)},
        {"stream": bytes(17)},
        {"prev": bytes(31)},
        {"salt": bytes(31)},
        {"salt": bytes(33)},
        {"salt": b""},
        {"seq": 0},
        {"seq": -1},
        {"seq": MAX_SEQ + 1, "prev": SALT},
        {"seq": 1, "prev": SALT},
        {"channel": 0},
        {"channel": 7},
        {"kind": 0},
        {"kind": 4},
        {"created_at": -1},
        {"created_at": 2**63},
    ],
)
def test_nothing_is_sealed_that_no_receiver_would_open(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"\d"):
        sealed(**change)


@each_row("length", [0, 16, 31, 33, 64])
def test_a_secret_has_32_bytes(length: int) -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        link_keys(bytes(length), "up")
    with pytest.raises(ValueError, match="32 bytes"):
        keys_of_link(bytes(length))


def test_a_link_goes_up_or_down() -> None:
    with pytest.raises(ValueError, match="sideways"):
        link_keys(SECRET, "sideways")  # type: ignore[arg-type]


# -------------------------------------------------------------------------------------------------------------- keys


def test_every_key_of_every_link_is_another() -> None:
    found = []
    for device, generation in itertools.product((bytes(16), MAKE["DEVICE"]), (1, 2)):
        secret = MAKE["secret_of"](MAKE["ROOT"], device, generation)
        found.append(secret)
        for keys in (link_keys(secret, "up"), link_keys(secret, "down")):
            found += [keys.link, keys.mac_key, keys.key_id]
    assert len({key[:16] for key in found}) == len(found) == 4 * 7


def test_keys_and_payloads_stay_out_of_what_is_printed() -> None:
    shown = f"{KEYS!r} {KEYS} {opened(sealed(b'a password'))!r}"
    for secret in (KEYS.link, KEYS.mac_key, b"a password"):
        assert secret.hex() not in shown
        assert repr(secret)[2:-1] not in shown
    assert KEYS.key_id.hex() in repr(KEYS)


def test_keys_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        KEYS.link = bytes(32)  # type: ignore[misc]


def test_a_mirrors_key_makes_a_link_of_its_own() -> None:
    mirror = keys_of_link(SALT)
    blob = sealed(keys=mirror, channel=Channel.MIRROR)
    assert opened(blob, mirror, channel=2).payload == LINE
    with pytest.raises(EnvelopeError):
        opened(blob, channel=2)


def test_another_salt_gives_another_key_and_no_byte_of_the_old_ciphertext() -> None:
    one, two = sealed(salt=bytes(32)), sealed(salt=b"\1" * 32)
    same = sum(a == b for a, b in zip(one[HEADER_BYTES:], two[HEADER_BYTES:], strict=True))
    assert same < 30  # one in 256 by chance


def test_nothing_of_the_payload_is_in_the_blob() -> None:
    canary = b"canary-4711-in-the-coal-mine"
    for payload in (canary, canary * 500, canary + noise(2000)):
        blob = sealed(payload)
        assert not any(canary[at : at + 6] in blob for at in range(len(canary) - 6))


# ----------------------------------------------------------------------------------------------------------- headers


def test_a_header_is_read_without_a_key() -> None:
    header = read_header(sealed(channel=4, seq=9, prev=SALT, more=True))
    assert header == BlobHeader(4, True, KEYS.key_id, STREAM, 9, SALT, SALT, 1040)


@each_row(
    ("change", "code", "kind"),
    [
        ({"magic": b"CRB2"}, "magic", MalformedError),
        ({"version": 2}, "version", UnknownVersionError),
        ({"suite": 2}, "suite", UnknownVersionError),
        ({"flags": 2}, "flags", UnknownVersionError),
        ({"channel": 9}, "unknown-channel", UnknownVersionError),
        ({"seq": 0}, "seq-range", MalformedError),
        ({"seq": 2**63}, "seq-range", MalformedError),
        ({"prev": SALT}, "first-prev", MalformedError),
        ({"length": 1039}, "length", MalformedError),
    ],
)
def test_a_header_that_is_wrong_is_not_read(change: dict[str, object], code: str, kind: type[EnvelopeError]) -> None:
    length = change.pop("length", 1040)
    with pytest.raises(kind) as refused:
        read_header(MAKE["head"](length, **change) + bytes(1072))
    assert refused.value.code == code
    assert isinstance(refused.value, DeniedError)


@each_row("length", [0, 1, 31])
def test_what_is_shorter_than_a_tag_has_none(length: int) -> None:
    with pytest.raises(MalformedError):
        tag_of(bytes(length))


def test_documents_that_replace_each_other_need_no_chain() -> None:
    blob = sealed(b"{}", channel=Channel.RECEIPTS, kind=PayloadKind.CONTROL, seq=900, prev=ZERO_TAG)
    assert open_blob(blob, KEYS, channel=5, stream=STREAM, seq=900, prev=None).payload == b"{}"


def test_a_blob_survives_a_file(tmp_path: Path) -> None:
    with tempfile.NamedTemporaryFile(dir=tmp_path, delete=False) as file:
        file.write(sealed(os.urandom(5000), seq=1))
    blob = Path(file.name).read_bytes()
    assert len(opened(blob).payload) == 5000
    assert opened(bytearray(blob)).payload == opened(memoryview(blob)).payload == opened(blob).payload
