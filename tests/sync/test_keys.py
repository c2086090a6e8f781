"""The relay's keys: deriving, and every form that a key is written in."""

from __future__ import annotations

import base64
import copy
import os
import pickle
import string
import subprocess
import traceback

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal.errors import UsageError
from crystal.sync.keys.derive import checked_secret, device_secret, new_root, shared_device_id, shared_prefix
from crystal.sync.keys.forms import KEY_PREFIX, RelayKey, armor, format_key, parse_key, parse_key_file, unarmor
from tests.support.table import each_row

ROOT = bytes(range(32))
DEVICE = bytes.fromhex("00112233445566778899aabbccddeeff")
SECRETS = st.binary(min_size=32, max_size=32).filter(lambda secret: len(set(secret)) >= 8)
KEYS = st.one_of(
    st.builds(RelayKey, st.just("root"), SECRETS),
    st.builds(RelayKey, st.just("device"), SECRETS, st.binary(min_size=16, max_size=16), st.integers(1, 2**32 - 1)),
)
ALPHABET = "abcdefghijklmnopqrstuvwxyz234567"


def leaks(error: BaseException, key: RelayKey) -> bool:
    """Whether a message, hint or traceback shows a recognisable part of the key."""
    shown = "".join(traceback.format_exception(error)) + str(getattr(error, "hint", ""))
    forms = (
        key.secret.hex(),
        base64.b64encode(key.secret).decode(),
        format_key(key)[len(KEY_PREFIX) :],
        repr(key.secret),
    )
    return any(form[at : at + 12] in shown for form in forms for at in range(0, len(form) - 12, 6))


# --------------------------------------------------------------------------------------------------------- deriving


def test_the_known_answer_of_the_device_secret() -> None:
    assert device_secret(ROOT, DEVICE, 1).hex() == "212cdfbb41d9c4b9e45d4776390b682cbbae69d5d4a2416fffd8a2541d1926ed"


def test_device_generation_and_root_each_give_another_secret() -> None:
    secrets = {
        device_secret(root, device, generation)
        for root in (ROOT, ROOT[::-1])
        for device in (DEVICE, DEVICE[::-1])
        for generation in (1, 2, 2**32 - 1)
    }
    assert len(secrets) == 12


@each_row("length", [0, 31, 33, 64])
def test_a_root_of_another_length_is_refused(length: int) -> None:
    with pytest.raises(ValueError, match=f"root is {length} bytes long, not 32"):
        device_secret(bytes(length), DEVICE, 1)


@each_row(
    ("device", "generation"),
    [(b"", 1), (DEVICE[:15], 1), (DEVICE + b"x", 1), (DEVICE, 0), (DEVICE, -1), (DEVICE, 2**32)],
)
def test_what_can_be_no_device_is_refused(device: bytes, generation: int) -> None:
    with pytest.raises(ValueError, match=r"device_id|generation"):
        device_secret(ROOT, device, generation)
    with pytest.raises(ValueError, match=r"device_id|generation"):
        RelayKey("device", ROOT, device, generation)


def test_a_new_root_is_what_the_source_of_randomness_gives() -> None:
    assert new_root(lambda count: bytes(range(count))) == ROOT
    assert new_root(os.urandom) != new_root(os.urandom)


@each_row("broken", [bytes, lambda count: os.urandom(count - 1), lambda count: b"ab" * (count // 2)])
def test_a_broken_source_of_randomness_makes_no_root(broken) -> None:
    with pytest.raises(UsageError, match="new root"):
        new_root(broken)


def test_a_shared_root_gives_every_name_its_device() -> None:
    ids = {shared_device_id(ROOT, name) for name in ("laptop", "Laptop", "mini", "")}
    assert len(ids) == 4
    assert {len(device) for device in ids} == {16}
    assert shared_device_id(ROOT, "cafe\u0301") == shared_device_id(ROOT, "café")
    up, down = shared_prefix(ROOT, DEVICE, "up"), shared_prefix(ROOT, DEVICE, "down")
    assert up != down
    assert len(up) == len(down) == 8


# ------------------------------------------------------------------------------------------------- forms that are read


@pytest.mark.slow
@given(SECRETS)
def test_every_form_of_a_key_is_read(secret: bytes) -> None:
    standard = base64.b64encode(secret).decode()
    url_safe = base64.urlsafe_b64encode(secret).decode()
    forms = [secret.hex(), secret.hex().upper(), standard, standard.rstrip("="), url_safe, url_safe.rstrip("=")]
    root = RelayKey("root", secret)
    forms += [format_key(root), format_key(root).upper()]
    for form in forms:
        for text in (form, form + "\n", form + "\r\n", f"  \t{form} \n\n", "\ufeff" + form):
            assert parse_key(text) == root
            assert parse_key_file(text.encode()) == root


@each_row("words", [["-hex", "32"], ["-base64", "32"]])
def test_what_openssl_prints_is_read(words: list[str]) -> None:
    printed = subprocess.run(["openssl", "rand", *words], capture_output=True, check=True, timeout=30).stdout
    key = parse_key_file(printed)
    assert key.kind == "root"
    assert printed.strip() in {key.secret.hex().encode(), base64.b64encode(key.secret)}


def test_32_raw_bytes_in_a_file_are_read() -> None:
    raw = subprocess.run(["openssl", "rand", "32"], capture_output=True, check=True, timeout=30).stdout
    assert parse_key_file(raw) == RelayKey("root", raw)
    # Bytes that look like the mark of a text are still 32 bytes.
    marked = b"\xff\xfe" + bytes(range(30))
    assert parse_key_file(marked).secret == marked


@pytest.mark.slow
@given(KEYS)
def test_crystals_own_form_carries_kind_device_and_generation(key: RelayKey) -> None:
    text = format_key(key)
    assert text.startswith("crystal-key1-")
    assert len(text) == (73 if key.kind == "root" else 105)
    back = parse_key(text)
    assert (back.kind, back.secret, back.device_id, back.generation) == (
        key.kind,
        key.secret,
        key.device_id,
        key.generation,
    )
    wrapped = "\n  ".join(text[at : at + 20] for at in range(0, len(text), 20))
    assert parse_key(wrapped) == key


# ------------------------------------------------------------------------------------------- what is not read, and why


@pytest.mark.slow
def test_every_single_wrong_character_is_found() -> None:
    for key in (RelayKey("root", os.urandom(32)), RelayKey("device", os.urandom(32), os.urandom(16), 7)):
        text = format_key(key)
        for at in range(len(text)):
            for letter in ALPHABET + "0189-_:/é":
                if letter != text[at]:
                    with pytest.raises(UsageError):
                        parse_key(text[:at] + letter + text[at + 1 :])


def test_every_swap_of_neighbours_is_found() -> None:
    for _ in range(20):
        text = format_key(RelayKey("device", os.urandom(32), os.urandom(16), 1))
        for at in range(len(text) - 1):
            if text[at] != text[at + 1]:
                with pytest.raises(UsageError):
                    parse_key(text[:at] + text[at + 1] + text[at] + text[at + 2 :])


def test_every_missing_and_every_doubled_character_is_found() -> None:
    text = format_key(RelayKey("root", os.urandom(32)))
    for at in range(len(text)):
        for changed in (text[:at] + text[at + 1 :], text[:at] + text[at] + text[at:], text[:at]):
            with pytest.raises(UsageError):
                parse_key(changed)


def unpadded_with_loose_bits() -> str:
    good = base64.b64encode(ROOT).decode().rstrip("=")
    at = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/".index(good[-1])
    return good[:-1] + "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"[at + 1]


@each_row(
    ("text", "problem"),
    [
        ("", "is empty"),
        (" \n\t", "is empty"),
        (ROOT.hex()[:-1], "63 hex digits"),
        (ROOT.hex()[:-2], "62 hex digits"),
        (ROOT.hex() + "0", "65 hex digits"),
        # 43 hex digits would also be base64 of 32 bytes, and 44 of 33.
        (ROOT.hex()[:43], "43 hex digits"),
        (ROOT.hex()[:44], "44 hex digits"),
        (ROOT.hex()[:32], "32 hex digits"),
        ("0x" + ROOT.hex(), "is 49 bytes long|cut off"),
        (ROOT.hex()[:30] + " " + ROOT.hex()[30:], "characters that no form"),
        (base64.b64encode(ROOT[:31]).decode(), "31 bytes"),
        (base64.b64encode(ROOT + b"x").decode(), "33 bytes"),
        (base64.b64encode(ROOT).decode()[:-2], "cut off|31 bytes"),
        (base64.b64encode(ROOT).decode() + "=", "cut off"),
        (unpadded_with_loose_bits(), "last character"),
        (unpadded_with_loose_bits() + "=", "last character"),
        ("_" + base64.b64encode(b"\xff" * 24 + ROOT[:8]).decode()[1:], "characters that no form"),
        ("00" * 32, "weak: all its bytes are equal"),
        ("ff" * 32, "weak: all its bytes are equal"),
        (base64.b64encode(b"a" * 32).decode(), "weak: all its bytes are equal"),
        ("deadbeef" * 8, "weak: it repeats 4"),
        ('"' + ROOT.hex() + '"', "characters that no form"),
        ("correct horse battery staple", "characters that no form"),
        ("password", "bytes long"),
        ("crystal-key2-aaaa", "not a key"),
        ("crystal1:aaaa", "not a key"),
        ("crt_0123_abc_def", "not a key"),
        (KEY_PREFIX, "checksum|cut off"),
        (KEY_PREFIX + "a" * 500, "513 characters"),
        (KEY_PREFIX + "ä", "not ASCII"),
        (KEY_PREFIX + "\u212a" * 60, "not ASCII"),
        ("１" * 64, "characters that no form"),
        ("٣" * 64, "characters that no form"),
        ("ab\0" * 20, "characters that no form"),
        ("\ud800" * 64, "characters that no form"),
    ],
)
def test_what_is_no_key_is_refused_with_its_reason(text: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem) as caught:
        parse_key(text, name="CRYSTAL_RELAY_KEY")
    assert caught.value.message.startswith("CRYSTAL_RELAY_KEY")
    assert caught.value.hint
    assert not leaks(caught.value, RelayKey("root", ROOT))
    # Its own output is the one thing that a message may never show: not even part of a wrong key.
    assert len(text) < 20 or text[4:16] not in caught.value.message + (caught.value.hint or "")


@each_row(
    ("data", "problem"),
    [
        (b"", "is empty"),
        (ROOT.hex()[:32].encode(), "32 hex digits"),
        (b"abcdefghijklmnopqrstuvwxyz012345", "24 bytes"),
        (bytes(32), "weak"),
        (b"\xff" * 32, "weak"),
        (bytes(range(128, 159)), "31 raw bytes"),
        (bytes(range(128, 160)) + b"\n", "33 raw bytes"),
        (bytes(range(128, 192)), "64 raw bytes"),
        (b"\xff\xfe\x00", "3 raw bytes"),
    ],
)
def test_what_a_file_holds_that_is_no_key_is_refused(data: bytes, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        parse_key_file(data)


@each_row(
    "payload",
    [
        b"",
        b"\x01",
        b"\x01" + ROOT[:31],
        b"\x01" + ROOT + b"x",
        b"\x02" + ROOT,
        b"\x02" + DEVICE + bytes(4) + ROOT,
        b"\x03" + ROOT,
        b"\x01" + bytes(32),
    ],
)
def test_a_right_checksum_over_something_else_is_no_key(payload: bytes) -> None:
    with pytest.raises(UsageError):
        parse_key(armor(KEY_PREFIX, payload))


@given(st.text(max_size=120))
def test_no_text_does_more_than_be_refused(text: str) -> None:
    try:
        parse_key(text)
    except UsageError:
        return
    raise AssertionError("random text was taken for a key")


@given(st.binary(max_size=200).filter(lambda data: len(data) != 32))
def test_no_file_does_more_than_be_refused(data: bytes) -> None:
    with pytest.raises(UsageError):
        parse_key_file(data)


@pytest.mark.slow
@given(st.binary(max_size=300), st.data())
def test_armour_gives_back_what_it_was_given_and_finds_what_was_changed(payload: bytes, data: st.DataObject) -> None:
    text = armor("test-", payload)
    assert unarmor("test-", text.upper(), name="it", max_chars=1000) == payload
    at = data.draw(st.integers(5, len(text) - 1))
    letter = data.draw(st.sampled_from([letter for letter in ALPHABET if letter != text[at]]))
    with pytest.raises(UsageError):
        unarmor("test-", text[:at] + letter + text[at + 1 :], name="it", max_chars=1000)
    with pytest.raises(UsageError):
        unarmor("text-", text, name="it", max_chars=1000)


# --------------------------------------------------------------------------------------------------- a key stays unseen


def test_a_key_is_not_shown_copied_or_pickled() -> None:
    for key in (RelayKey("root", ROOT), RelayKey("device", ROOT, DEVICE, 3)):
        shown = f"{key!r} {key} {[key]} {key:}"
        assert "***" in shown
        assert ROOT.hex()[:8] not in shown
        assert "x04" not in shown
        for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError):
                attempt(key)
        with pytest.raises(TypeError):
            hash(key)


def test_keys_are_equal_when_all_of_them_is() -> None:
    keys = [
        RelayKey("root", ROOT),
        RelayKey("root", ROOT[::-1]),
        RelayKey("device", ROOT, DEVICE, 1),
        RelayKey("device", ROOT, DEVICE, 2),
        RelayKey("device", ROOT, DEVICE[::-1], 1),
    ]
    for first, one in enumerate(keys):
        for second, other in enumerate(keys):
            assert (one == other) is (first == second)
    assert keys[0] != ROOT


@each_row(
    "arguments",
    [("root", ROOT[:31]), ("device", ROOT), ("device", ROOT, DEVICE), ("root", ROOT, DEVICE), ("root", ROOT, None, 1)],
)
def test_a_key_that_contradicts_itself_is_refused(arguments) -> None:
    with pytest.raises(ValueError, match=r"secret|carries"):
        RelayKey(*arguments)


def test_the_weakest_secret_that_is_taken_has_eight_different_bytes() -> None:
    assert checked_secret(bytes(range(8)) * 4, name="it")
    with pytest.raises(UsageError, match="7 different"):
        checked_secret((bytes(range(7)) * 5)[:32], name="it")
    assert set(string.ascii_lowercase + "234567") == set(ALPHABET)
