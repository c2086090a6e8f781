"""Pairing: two halves that meet through a mailbox which anybody may read, hold back and rewrite."""

from __future__ import annotations

import copy
import os
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spake2 import SPAKE2_A, SPAKE2_B

from crystal.errors import DeniedError
from crystal.sync.keys.bundle import decode_bundle
from crystal.sync.keys.pairing import MAX_MESSAGE, Pairing, PairingError
from crystal.sync.keys.word_codes import PairingCode, word_list
from tests.support.examples import examples
from tests.support.pairing_bundle import SECRET, bundle
from tests.support.pairing_sides import ANSWER, BUNDLE, CODE, SAID, WRONG, Both, device, ended, home, seeded
from tests.support.table import each_row

# ---------------------------------------------------------------------------------------------------- when all is well


def test_two_sides_with_the_same_code_hand_over_the_bundle() -> None:
    both = Both()
    both.run()
    assert both.said == list(SAID)
    assert decode_bundle(both.said[4]).key.secret == SECRET
    assert both.home.words == both.device.words
    assert len(both.home.words) == 4
    assert set(both.home.words) <= set(word_list())
    assert [len(message) for message in both.messages[:4]] == [51, 51, 34, 34]
    for side in (both.home, both.device):
        assert not side.has_ended
        with pytest.raises(PairingError, match="complete"):
            _ = side.phase


def test_the_same_randomness_gives_the_same_messages_and_other_randomness_others() -> None:
    first, again, other = Both(random=seeded), Both(random=seeded), Both(random=lambda side: seeded("other " + side))
    for both in (first, again, other):
        both.run()
    assert first.messages == again.messages
    assert first.home.words == again.home.words
    assert not set(first.messages) & set(other.messages)
    assert first.home.words != other.home.words


def test_nothing_of_the_bundle_or_the_code_is_seen_on_the_way() -> None:
    both = Both()
    both.run()
    seen = b"".join(both.messages)
    for secret in (SECRET, b"crt_", b"relay.example", b"laptop", b"mini", b"apple", b"stone", bytes(range(16))):
        assert secret not in seen


def test_the_verification_words_depend_on_every_message() -> None:
    """Were one message another that both sides take, the words would be others."""
    words = set()
    for name in (b"laptop", b"desktop"):
        both = Both(random=seeded)
        both.run(steps=5)
        both.home.take(both.device.send(name))
        assert both.home.words == both.device.words
        words.add(both.home.words)
    assert len(words) == 2


def test_there_are_no_words_before_the_end() -> None:
    both = Both()
    for done in both.steps():
        for side in (both.home, both.device):
            if done < 6:
                with pytest.raises(PairingError, match="not complete"):
                    _ = side.words


# ------------------------------------------------------------------------------------------------------- a wrong code


@pytest.mark.slow
@pytest.mark.parametrize(
    "wrong",
    [WRONG, PairingCode(8, CODE.words), PairingCode(7, CODE.words[::-1]), PairingCode(7, CODE.words[:2])],
    ids=["word", "nameplate", "order", "fewer"],
)
def test_a_wrong_code_ends_both_sides_before_the_bundle(wrong: PairingCode) -> None:
    both = Both(of_device=wrong)
    with pytest.raises(PairingError) as caught:
        both.run()
    assert caught.value.code == "wrong-code"
    assert isinstance(caught.value, DeniedError)
    assert caught.value.hint
    assert len(both.messages) == 3
    assert ended(both.device)
    # Home hears of it from the device, and cannot be asked again either.
    with pytest.raises(PairingError) as caught:
        both.home.take(both.device.give_up())
    assert caught.value.code == "gave-up"
    assert ended(both.home)


@pytest.mark.slow
def test_no_side_speaks_out_of_turn() -> None:
    """So home never seals the bundle before the device has confirmed."""
    for done in range(6):
        both = Both()
        if done:
            both.run(steps=done)
        reader = both.reader(done)
        with pytest.raises(PairingError) as caught:
            reader.send(BUNDLE)
        assert caught.value.code == "order"
        assert ended(reader)


# ------------------------------------------------------------------------------------------- somebody in the middle


def test_a_relay_that_plays_both_sides_with_a_guess_is_caught_by_both() -> None:
    towards_home, towards_device = device(WRONG), home(WRONG)
    real_home, real_device = home(), device()
    # To home it is a device with the wrong code: it learns at home's confirmation that it guessed wrong ...
    towards_home.take(real_home.send())
    real_home.take(towards_home.send())
    with pytest.raises(PairingError):
        towards_home.take(real_home.send())
    # ... and has nothing with which to go on.
    with pytest.raises(PairingError) as caught:
        real_home.take(bytes([1, 4]) + os.urandom(32))
    assert caught.value.code == "wrong-code"
    assert ended(real_home)
    # To the device it is a home with the wrong code.
    real_device.take(towards_device.send())
    towards_device.take(real_device.send())
    with pytest.raises(PairingError) as caught:
        real_device.take(towards_device.send())
    assert caught.value.code == "wrong-code"
    assert ended(real_device)


def test_a_relay_that_swaps_in_its_own_half_of_spake_is_caught() -> None:
    for number, half in ((0, SPAKE2_A(b"guess").start()), (1, SPAKE2_B(b"guess").start())):
        both = Both()

        def swap(at: int, message: bytes, number: int = number, half: bytes = half) -> bytes:
            return message[:18] + half if at == number else message

        with pytest.raises(PairingError) as caught:
            both.run(swap)
        assert caught.value.code == "wrong-code"
        assert len(both.messages) == 3


@pytest.mark.slow
def test_two_pairings_at_once_cannot_be_crossed() -> None:
    """The same code twice, which never happens: the messages of one do not fit into the other."""
    for crossed in range(6):
        one, two = Both(), Both()
        two.run()
        if crossed == 0:
            continue  # the first message starts a pairing, whichever it is

        def cross(at: int, message: bytes, crossed: int = crossed, other: Both = two) -> bytes:
            return other.messages[crossed] if at == crossed else message

        with pytest.raises(PairingError):
            one.run(cross)


@pytest.mark.slow
def test_every_flipped_bit_is_found_before_it_does_harm() -> None:
    lengths = [51, 51, 34, 34, len(BUNDLE) + 18, len(ANSWER) + 18]
    for number in range(6):
        for at in {0, 1, 2, 17, 18, 19, 33, lengths[number] - 1} & set(range(lengths[number])):
            both = Both(random=seeded)

            def flip(which: int, message: bytes, number: int = number, at: int = at) -> bytes:
                if which != number:
                    return message
                at = min(at, len(message) - 1)
                return message[:at] + bytes([message[at] ^ 1 << at % 8]) + message[at + 1 :]

            with pytest.raises(PairingError):
                both.run(flip)
            # A change before the confirmations never lets the bundle out.
            assert len(both.messages) <= (3 if number < 3 else 4 if number == 3 else 6)
            assert len(both.said) < 6


@pytest.mark.slow
@pytest.mark.parametrize("number", range(6))
def test_every_truncation_and_every_addition_is_refused(number: int) -> None:
    good = Both(random=seeded)
    good.run()
    whole = good.messages[number]
    # Every length is refused for being another; the first and last few are enough to show that none slips through.
    for changed in [
        whole[:size] for size in {*range(4), *range(4, len(whole), 23), *range(len(whole) - 4, len(whole))}
    ] + [
        whole + b"\0",
        whole * 2,
    ]:
        both = Both(random=seeded)
        with pytest.raises(PairingError):
            both.run(lambda which, message, changed=changed: changed if which == number else message)
        assert both.reader(number).has_ended


@pytest.mark.slow
@pytest.mark.parametrize("number", range(6))
def test_any_other_message_of_the_same_pairing_is_refused(number: int) -> None:
    """Reordered, replayed or reflected: whatever has passed so far, in place of the message that is due."""
    good = Both(random=seeded)
    good.run()
    for other in range(6):
        if other == number:
            continue
        both = Both(random=seeded)
        with pytest.raises(PairingError) as caught:
            both.run(lambda which, message, other=other: good.messages[other] if which == number else message)
        assert caught.value.code == "order"


@pytest.mark.slow
def test_a_message_that_comes_twice_ends_the_pairing() -> None:
    for number in range(6):
        both = Both()
        both.run(steps=number + 1)
        reader = both.reader(number)
        with pytest.raises(PairingError):
            reader.take(both.messages[number])
        assert ended(reader)


def go_on(side: Pairing, hello: bytes) -> None:
    side.take(hello)
    side.send()
    side.take(b"\x01\x04" + bytes(32))


def test_a_reflected_message_is_refused_even_with_its_type_changed() -> None:
    for change in (
        lambda own: own,
        lambda own: own[:1] + b"\x02" + own[2:],
        lambda own: b"\x01\x02" + bytes(16) + own[18:],
        # With the side byte of SPAKE2 changed as well, the library's own check or the confirmation stops it.
        lambda own: own[:1] + b"\x02" + os.urandom(16) + b"B" + own[19:],
    ):
        side = home()
        own = side.send()
        with pytest.raises(PairingError):
            go_on(side, change(own))
    # A side whose own confirmation is read back to it by the other's name.
    both = Both()
    both.run(steps=2)
    confirm = both.home.send()
    both.device.take(confirm)
    own_confirm = both.device.send()
    with pytest.raises(PairingError):
        both.home.take(confirm[:1] + b"\x04" + confirm[2:])
    with pytest.raises(PairingError):
        both.device.take(b"\x01\x05" + own_confirm[2:])


@each_row(
    "half",
    [
        b"\x01" + bytes(31),  # the neutral element
        b"\xec" + b"\xff" * 30 + b"\x7f",  # of order 2
        bytes(32),  # of order 4
        bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"),  # of order 8
        b"\x02" + bytes(31),  # not on the curve
        b"\xff" * 32,
        b"\xee" + b"\xff" * 30 + b"\x7f",  # one, written as p + 1
    ],
)
def test_points_that_would_give_the_key_away_are_refused(half: bytes) -> None:
    for other_half in (half, half[:-1] + bytes([half[-1] ^ 0x80])):
        of_home = home()
        of_home.send()
        for side, start in ((of_home, b"\x01\x02" + bytes(16) + b"B"), (device(), b"\x01\x01" + bytes(16) + b"A")):
            with pytest.raises(PairingError) as caught:
                side.take(start + other_half)
            assert caught.value.code == "malformed"


def test_the_size_of_a_message_is_capped() -> None:
    for start in (b"\x01\x02", b"\x01\x01", b"\x01\x05"):
        of_home = home()
        of_home.send()
        for side in (of_home, device()):
            with pytest.raises(PairingError, match="bytes long"):
                side.take(start + bytes(MAX_MESSAGE))
    largest = bundle(ca="x" * 15_600).encode()
    assert len(largest) <= 16_000
    both = Both()
    both.run(steps=4)
    message = both.home.send(largest)
    assert len(message) <= MAX_MESSAGE
    assert both.device.take(message) == largest


def test_another_version_is_named() -> None:
    both = Both()
    with pytest.raises(PairingError, match="version 2") as caught:
        both.run(lambda _, message: b"\x02" + message[1:])
    assert caught.value.code == "version"
    assert "upgrade" in (caught.value.hint or "")


@pytest.mark.slow
@examples(20)
@given(st.binary(max_size=80))
def test_no_bytes_do_more_than_end_the_pairing(data: bytes) -> None:
    of_home = home()
    of_home.send()
    for side in (of_home, device()):
        with pytest.raises(PairingError):
            side.take(data)
        assert side.has_ended


@pytest.mark.slow
def test_giving_up_ends_both() -> None:
    for done in (1, 3, 5):
        both = Both()
        both.run(steps=done)
        message = both.device.give_up()
        assert ended(both.device)
        with pytest.raises(PairingError) as caught:
            both.home.take(message)
        assert caught.value.code == "gave-up"
        assert ended(both.home)


def test_a_pairing_is_not_shown_copied_or_pickled() -> None:
    both = Both()
    both.run()
    got = decode_bundle(both.said[4])
    for thing in (both.home, got):
        assert "stone" not in repr(thing)
        for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError):
                attempt(thing)
    assert repr(SECRET)[2:20] not in repr(got)
    assert "AAAA" not in repr(got)
    assert "stone" not in f"{CODE!r} {CODE}"
    assert both.home._secret == b""
