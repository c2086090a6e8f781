"""What home gives a device at pairing, and what the device answers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal.errors import UsageError
from crystal.sync.keys.bundle import Bundle, BundleReceipt, decode_answer, decode_bundle
from tests.support.pairing_bundle import SECRET, bundle
from tests.support.table import each_row

NAMES = st.text(max_size=16).filter(str.isprintable)
BUNDLES = st.builds(
    bundle,
    url=st.sampled_from(["https://r.example", "http://127.0.0.1:8080", "https://relay.example.org:8443/crystal/"]),
    token=st.from_regex(r"[!-~]{1,200}", fullmatch=True),
    device_id=st.binary(min_size=16, max_size=16),
    generation=st.integers(1, 2**32 - 1),
    home_name=NAMES,
    device_name=NAMES,
    ca=st.one_of(st.none(), st.from_regex(r"[ -~\r\n]{1,600}", fullmatch=True)),
)


@pytest.mark.slow
@given(BUNDLES)
def test_a_bundle_comes_back_from_its_bytes(one: Bundle) -> None:
    assert decode_bundle(one.encode()) == one


@pytest.mark.slow
@given(BUNDLES, st.data())
def test_a_bundle_that_is_cut_or_longer_is_refused(one: Bundle, data: st.DataObject) -> None:
    whole = one.encode()
    for changed in (whole[: data.draw(st.integers(0, len(whole) - 1))], whole + b"\0"):
        with pytest.raises(UsageError):
            decode_bundle(changed)


@pytest.mark.slow
@given(BUNDLES, st.data())
def test_a_bundle_has_one_form_only(one: Bundle, data: st.DataObject) -> None:
    whole = bytearray(one.encode())
    whole[data.draw(st.integers(0, len(whole) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        back = decode_bundle(bytes(whole))
    except UsageError:
        return
    assert back.encode() == whole


@each_row(
    "field",
    [
        {"url": ""},
        {"url": "relay.example.org"},
        {"url": "file:///etc/passwd"},
        {"url": "https://relay example"},
        {"url": "https://relay\n.example"},
        {"url": "https://" + "x" * 1001},
        {"token": ""},
        {"token": "a b"},
        {"token": "x" * 201},
        {"device_id": bytes(15)},
        {"generation": 0},
        {"generation": 2**32},
        {"device_secret": bytes(32)},
        {"device_secret": SECRET[:31]},
        {"up_prefix": b"short"},
        {"down_prefix": b"upupupup"},
        {"home_name": "a\nb"},
        {"home_name": "\x1b]0;title\x07"},
        {"home_name": "\u202egnp.exe"},
        {"home_name": "\ud800"},
        {"device_name": "ä" * 33},
        {"ca": ""},
        {"ca": "\x1b[2J"},
    ],
)
def test_what_a_bundle_may_not_hold(field: dict[str, object]) -> None:
    with pytest.raises(UsageError) as caught:
        bundle(**field)
    assert "crt_" not in caught.value.message


def test_a_bundle_with_a_certificate_that_is_too_long_is_refused() -> None:
    for size in (16_000, 70_000):
        with pytest.raises(UsageError, match="bytes long"):
            bundle(ca="x" * size).encode()


def test_an_answer_comes_back_from_its_bytes_and_is_read_strictly() -> None:
    answer = BundleReceipt("Mini's läptop", "cc-laptop", bytes(range(32)))
    data = answer.encode()
    assert decode_answer(data) == answer
    for changed in (
        *(data[:size] for size in range(len(data))),
        data + b"x",
        data[:34] + b"\x1b" + data[35:],
    ):
        with pytest.raises(UsageError):
            decode_answer(changed)
