"""Pairing: two halves that meet through a mailbox which anybody may read, hold back and rewrite."""

from __future__ import annotations

import copy
import hashlib
import os
import pickle
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spake2 import SPAKE2_A, SPAKE2_B

from crystal.errors import Denied, UsageProblem
from crystal.sync.keys.bundle import (
    Answer,
    Bundle,
    decode_answer,
    decode_bundle,
    digest_of,
    encode_answer,
    encode_bundle,
)
from crystal.sync.keys.codes import PairingCode, new_code, parse_code
from crystal.sync.keys.derive import device_secret
from crystal.sync.keys.exchange import MAX_MESSAGE, PairingFailed
from crystal.sync.keys.pairing import HomePairing, JoinPairing
from crystal.sync.keys.words import word_list

CODE = PairingCode(7, ("apple", "river", "stone"))
WRONG = PairingCode(7, ("apple", "river", "stove"))
SECRET = device_secret(bytes(range(32)), bytes(range(16)), 1)


def bundle(**more: object) -> Bundle:
    fields: dict = {
        "url": "https://relay.example.org",
        "token": "crt_0123456789ab_" + "A" * 43 + "_deadbeef",
        "device_id": bytes(range(16)),
        "generation": 1,
        "device_secret": SECRET,
        "up_prefix": b"upupupup",
        "down_prefix": b"downdown",
        "home_name": "mini",
        "device_name": "laptop",
    }
    return Bundle(**(fields | more))


def seeded(seed: str) -> Callable[[int], bytes]:
    """Randomness that comes out the same for the same seed."""
    counter = iter(range(10**6))

    def random(count: int) -> bytes:
        stream = b""
        while len(stream) < count:
            stream += hashlib.sha256(f"{seed} {next(counter)}".encode()).digest()
        return stream[:count]

    return random


class Both:
    """Home and device with the same code, and every message that passed."""

    def __init__(
        self, of_device: PairingCode = CODE, random: Callable[[str], Callable[[int], bytes]] | None = None
    ) -> None:
        make = random or (lambda _: os.urandom)
        self.home = HomePairing(CODE, make("home"))
        self.device = JoinPairing(of_device, make("device"))
        self.messages: list[bytes] = []

    def steps(self, change: Callable[[int, bytes], bytes] = lambda _, message: message) -> Iterator[int]:
        """Run step by step; ``change`` sees and rewrites each message on its way. Yields the number of messages."""

        def passed(message: bytes) -> bytes:
            self.messages.append(message)
            return change(len(self.messages) - 1, message)

        reply = self.device.take_hello(passed(self.home.hello()))
        yield 1
        reply = self.home.take_hello(passed(reply))
        yield 2
        reply = self.device.take_confirm(passed(reply))
        yield 3
        self.home.take_confirm(passed(reply))
        yield 4
        self.got = self.device.take_bundle(passed(self.home.give_bundle(bundle())))
        yield 5
        self.answer = self.home.take_answer(passed(self.device.answer("laptop", "cc-laptop")))
        yield 6

    def run(self, change: Callable[[int, bytes], bytes] = lambda _, message: message) -> None:
        for _ in self.steps(change):
            pass


def ended(side: HomePairing | JoinPairing) -> bool:
    """Whether no method of a side does anything any more."""
    if not side.has_ended:
        return False
    good = Both()
    good.run()
    for name in ("hello", "take_hello", "take_confirm", "give_bundle", "take_bundle", "take_answer", "answer"):
        method = getattr(side, name, None)
        arguments = {"hello": (), "give_bundle": (bundle(),), "answer": ("laptop", "cc")}.get(name)
        for message in good.messages if arguments is None else [b""]:
            if method is not None:
                with pytest.raises(PairingFailed, match="has ended"):
                    method(*(arguments if arguments is not None else (message,)))
    with pytest.raises(PairingFailed):
        _ = side.words
    return True


# ---------------------------------------------------------------------------------------------------- when all is well


def test_two_sides_with_the_same_code_hand_over_the_bundle() -> None:
    both = Both()
    both.run()
    assert both.got == bundle()
    assert both.got.key.device_secret(bytes(range(16)), 1) == SECRET
    assert both.answer == Answer("laptop", "cc-laptop", digest_of(bundle()))
    assert both.home.words == both.device.words
    assert len(both.home.words) == 4
    assert set(both.home.words) <= set(word_list())
    assert [len(message) for message in both.messages[:4]] == [51, 51, 34, 34]
    assert not both.home.has_ended
    assert not both.device.has_ended


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
    for name in ("laptop", "desktop"):
        both = Both(random=seeded)
        steps = both.steps()
        for _ in range(5):
            next(steps)
        both.home.take_answer(both.device.answer(name, "cc"))
        assert both.home.words == both.device.words
        words.add(both.home.words)
    assert len(words) == 2


def test_the_device_may_correct_a_name_that_cannot_be_used() -> None:
    both = Both()
    steps = both.steps()
    for _ in range(5):
        next(steps)
    for name, agent in (
        ("", "cc"),
        ("lap\ntop", "cc"),
        ("x" * 65, "cc"),
        ("\x1b[31mred", "cc"),
        ("ok", "../etc"),
        ("ok", ""),
    ):
        with pytest.raises(UsageProblem):
            both.device.answer(name, agent)
    assert next(steps) == 6


def test_there_are_no_words_before_the_end() -> None:
    both = Both()
    for done in both.steps():
        for side in (both.home, both.device):
            if done < 6 and not (done == 5 and side is both.device):
                with pytest.raises(PairingFailed, match="not complete"):
                    _ = side.words


# ------------------------------------------------------------------------------------------------------- a wrong code


@pytest.mark.parametrize(
    "wrong",
    [WRONG, PairingCode(8, CODE.words), PairingCode(7, CODE.words[::-1]), PairingCode(7, CODE.words[:2])],
    ids=["word", "nameplate", "order", "fewer"],
)
def test_a_wrong_code_ends_both_sides_before_the_bundle(wrong: PairingCode) -> None:
    both = Both(of_device=wrong)
    with pytest.raises(PairingFailed) as caught:
        both.run()
    assert caught.value.code == "wrong-code"
    assert isinstance(caught.value, Denied)
    assert caught.value.hint
    assert len(both.messages) == 3
    assert ended(both.device)
    # Home hears of it from the device, and cannot be asked again either.
    with pytest.raises(PairingFailed) as caught:
        both.home.take_confirm(both.device.give_up())
    assert caught.value.code == "gave-up"
    assert ended(both.home)


def test_home_never_seals_the_bundle_before_the_device_has_confirmed() -> None:
    for done in range(4):
        both = Both()
        steps = both.steps()
        for _ in range(done):
            next(steps)
        with pytest.raises(PairingFailed) as caught:
            both.home.give_bundle(bundle())
        assert caught.value.code == "order"
        assert ended(both.home)


# ------------------------------------------------------------------------------------------- somebody in the middle


def test_a_relay_that_plays_both_sides_with_a_guess_is_caught_by_both() -> None:
    towards_home, towards_device = JoinPairing(WRONG, os.urandom), HomePairing(WRONG, os.urandom)
    home, device = HomePairing(CODE, os.urandom), JoinPairing(CODE, os.urandom)
    # To home it is a device with the wrong code: it learns at home's confirmation that it guessed wrong ...
    confirm_of_home = home.take_hello(towards_home.take_hello(home.hello()))
    with pytest.raises(PairingFailed):
        towards_home.take_confirm(confirm_of_home)
    # ... and has nothing with which to go on.
    with pytest.raises(PairingFailed) as caught:
        home.take_confirm(bytes([1, 4]) + os.urandom(32))
    assert caught.value.code == "wrong-code"
    assert ended(home)
    # To the device it is a home with the wrong code.
    confirm = towards_device.take_hello(device.take_hello(towards_device.hello()))
    with pytest.raises(PairingFailed) as caught:
        device.take_confirm(confirm)
    assert caught.value.code == "wrong-code"
    assert ended(device)


def test_a_relay_that_swaps_in_its_own_half_of_spake_is_caught() -> None:
    for number, half in ((0, SPAKE2_A(b"guess").start()), (1, SPAKE2_B(b"guess").start())):
        both = Both()

        def swap(at: int, message: bytes, number: int = number, half: bytes = half) -> bytes:
            return message[:18] + half if at == number else message

        with pytest.raises(PairingFailed) as caught:
            both.run(swap)
        assert caught.value.code == "wrong-code"
        assert len(both.messages) == 3


def test_two_pairings_at_once_cannot_be_crossed() -> None:
    """The same code twice, which never happens: the messages of one do not fit into the other."""
    for crossed in range(6):
        one, two = Both(), Both()
        two.run()
        if crossed == 0:
            continue  # the first message starts a pairing, whichever it is

        def cross(at: int, message: bytes, crossed: int = crossed, other: Both = two) -> bytes:
            return other.messages[crossed] if at == crossed else message

        with pytest.raises(PairingFailed):
            one.run(cross)


def test_every_flipped_bit_is_found_before_it_does_harm() -> None:
    lengths = [51, 51, 34, 34, 250, 60]
    for number in range(6):
        for at in {0, 1, 2, 17, 18, 19, 33, lengths[number] - 1} & set(range(lengths[number])):
            for bit in (0, 7):
                both = Both(random=seeded)

                def flip(which: int, message: bytes, number: int = number, at: int = at, bit: int = bit) -> bytes:
                    if which != number:
                        return message
                    at = min(at, len(message) - 1)
                    return message[:at] + bytes([message[at] ^ 1 << bit]) + message[at + 1 :]

                with pytest.raises(PairingFailed):
                    both.run(flip)
                # A change before the confirmations never lets the bundle out.
                assert len(both.messages) <= (3 if number < 3 else 4 if number == 3 else 6)
                assert not hasattr(both, "answer")


@pytest.mark.parametrize("number", range(6))
def test_every_truncation_and_every_addition_is_refused(number: int) -> None:
    good = Both(random=seeded)
    good.run()
    whole = good.messages[number]
    # Every length is refused for being another; the first and last few are enough to show that none slips through.
    for changed in [
        whole[:size] for size in {*range(4), *range(4, len(whole), 9), *range(len(whole) - 4, len(whole))}
    ] + [
        whole + b"\0",
        whole * 2,
    ]:
        both = Both(random=seeded)
        with pytest.raises(PairingFailed):
            both.run(lambda which, message, changed=changed: changed if which == number else message)
        assert (both.device if number % 2 == 0 else both.home).has_ended


@pytest.mark.parametrize("number", range(6))
def test_any_other_message_of_the_same_pairing_is_refused(number: int) -> None:
    """Reordered, replayed or reflected: whatever has passed so far, in place of the message that is due."""
    good = Both(random=seeded)
    good.run()
    for other in range(6):
        if other == number:
            continue
        both = Both(random=seeded)
        with pytest.raises(PairingFailed) as caught:
            both.run(lambda which, message, other=other: good.messages[other] if which == number else message)
        assert caught.value.code == "order"


def test_a_message_that_comes_twice_ends_the_pairing() -> None:
    for number in range(6):
        both = Both()
        steps = both.steps()
        for _ in range(number + 1):
            next(steps)
        side = both.device if number % 2 == 0 else both.home
        name = ["take_hello", "take_hello", "take_confirm", "take_confirm", "take_bundle", "take_answer"][number]
        with pytest.raises(PairingFailed):
            getattr(side, name)(both.messages[number])
        assert ended(side)


def test_a_reflected_message_is_refused_even_with_its_type_changed() -> None:
    device = JoinPairing(CODE, os.urandom)
    for change in (
        lambda own: own,
        lambda own: own[:1] + b"\x02" + own[2:],
        lambda own: b"\x01\x02" + bytes(16) + own[18:],
    ):
        home = HomePairing(CODE, os.urandom)
        with pytest.raises(PairingFailed):
            home.take_hello(change(home.hello()))
    # With the side byte of SPAKE2 changed as well, the library's own check or the confirmation stops it.
    home = HomePairing(CODE, os.urandom)
    own = home.hello()
    with pytest.raises(PairingFailed):
        home.take_hello(own[:1] + b"\x02" + os.urandom(16) + b"B" + own[19:])
    # A device whose own confirmation is read back to it by home's name.
    home = HomePairing(CODE, os.urandom)
    confirm = home.take_hello(device.take_hello(home.hello()))
    own_confirm = device.take_confirm(confirm)
    with pytest.raises(PairingFailed):
        home.take_confirm(confirm[:1] + b"\x04" + confirm[2:])
    with pytest.raises(PairingFailed):
        device.take_bundle(b"\x01\x05" + own_confirm[2:])


@pytest.mark.parametrize(
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
    ids=["zero", "order 2", "order 4", "order 8", "no point", "too large", "not canonical"],
)
def test_points_that_would_give_the_key_away_are_refused(half: bytes) -> None:
    for other_half in (half, half[:-1] + bytes([half[-1] ^ 0x80])):
        home, device = HomePairing(CODE, os.urandom), JoinPairing(CODE, os.urandom)
        home.hello()
        for take, start in (
            (home.take_hello, b"\x01\x02" + bytes(16) + b"B"),
            (device.take_hello, b"\x01\x01" + bytes(16) + b"A"),
        ):
            with pytest.raises(PairingFailed) as caught:
                take(start + other_half)
            assert caught.value.code == "malformed"


def test_the_size_of_a_message_is_capped() -> None:
    for start in (b"\x01\x02", b"\x01\x01", b"\x01\x05"):
        home, device = HomePairing(CODE, os.urandom), JoinPairing(CODE, os.urandom)
        home.hello()
        for take in (home.take_hello, device.take_hello):
            with pytest.raises(PairingFailed, match="bytes long"):
                take(start + bytes(MAX_MESSAGE))
    largest = bundle(ca="x" * 15_600)
    assert len(encode_bundle(largest)) <= 16_000
    both = Both()
    steps = both.steps()
    for _ in range(4):
        next(steps)
    message = both.home.give_bundle(largest)
    assert len(message) <= MAX_MESSAGE
    assert both.device.take_bundle(message) == largest


def test_another_version_is_named() -> None:
    both = Both()
    with pytest.raises(PairingFailed, match="version 2") as caught:
        both.run(lambda _, message: b"\x02" + message[1:])
    assert caught.value.code == "version"
    assert "upgrade" in (caught.value.hint or "")


@given(st.binary(max_size=80))
def test_no_bytes_do_more_than_end_the_pairing(data: bytes) -> None:
    home, device = HomePairing(CODE, os.urandom), JoinPairing(CODE, os.urandom)
    home.hello()
    for side in (home, device):
        with pytest.raises(PairingFailed):
            side.take_hello(data)
        assert side.has_ended


def test_giving_up_ends_both() -> None:
    for steps_before in range(1, 6):
        both = Both()
        steps = both.steps()
        for _ in range(steps_before):
            next(steps)
        message = both.device.give_up()
        assert ended(both.device)
        names = {1: "take_hello", 2: "take_confirm", 3: "take_confirm", 5: "take_answer"}
        if steps_before in names:
            with pytest.raises(PairingFailed) as caught:
                getattr(both.home, names[steps_before])(message)
            assert caught.value.code == "gave-up"
            assert ended(both.home)


def test_a_pairing_is_not_shown_copied_or_pickled() -> None:
    both = Both()
    both.run()
    for thing in (both.home._exchange, both.got):
        assert "stone" not in repr(thing)
        for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError):
                attempt(thing)
    assert repr(SECRET)[2:20] not in repr(both.got)
    assert "AAAA" not in repr(both.got)
    assert "stone" not in f"{CODE!r} {CODE}"
    assert both.home._exchange._secret == b""


# ------------------------------------------------------------------------------------------------------------ the code


@given(st.integers(1, 2**31 - 1), st.binary(min_size=5, max_size=5))
def test_a_code_is_read_as_it_is_shown(nameplate: int, random: bytes) -> None:
    code = new_code(nameplate, lambda count: random[:count])
    assert code.text.split("-")[0] == str(nameplate)
    assert parse_code(code.text) == code
    assert parse_code(code.text.upper()) == code


def test_the_words_of_a_code_are_uniform() -> None:
    """Each of the 33 bits makes a difference, and nothing but them."""
    seen = {new_code(1, lambda count, bit=bit: (1 << bit).to_bytes(count, "big")).words for bit in range(40)}
    assert len(seen) == 34
    everything = new_code(1, lambda count: b"\xff" * count)
    assert everything.words == ("zoo", "zoo", "zoo")


@pytest.mark.parametrize(
    "text",
    [
        "7-apple-river-stone",
        "7 apple river stone",
        " 7-APPLE-River-stone \n",
        "7 - apple - river - stone",
        "7–apple—river‑stone",
        "7.appl.rive.ston",
        "７-apple-river-stone",
        "07-apple-river-stone",
    ],
)
def test_a_code_is_read_as_people_type_it(text: str) -> None:
    assert parse_code(text) == CODE


@pytest.mark.parametrize(
    ("text", "problem", "hint"),
    [
        ("", "is empty", "7-apple-river-stone"),
        ("apple-river-stone", "number of a mailbox", ""),
        ("7-apple-river", "2 words", ""),
        ("7", "0 words", ""),
        ("7-apple-river-stone-zoo", "4 words", ""),
        ("7-aple-river-stone", "word 1, 'aple'", "apple"),
        ("7-apple-rivr-stone", "word 2, 'rivr'", "river"),
        ("0-apple-river-stone", "number of a mailbox", ""),
        ("99999999999-apple-river-stone", "number of a mailbox", ""),
        ("2147483648-apple-river-stone", "number of a mailbox", ""),
        ("-7-apple-river", "2 words", ""),
        ("x" * 300, "300 characters", ""),
        ("7-apple-river-" + "s" * 50, "word 3 is 50 characters", ""),
    ],
)
def test_what_is_no_code_is_refused_with_its_reason(text: str, problem: str, hint: str) -> None:
    with pytest.raises(UsageProblem, match=problem) as caught:
        parse_code(text)
    assert hint in (caught.value.hint or "")


@pytest.mark.parametrize("nameplate", [0, -1, 2**31])
def test_a_mailbox_without_a_number_gives_no_code(nameplate: int) -> None:
    with pytest.raises(ValueError, match="nameplate"):
        new_code(nameplate, os.urandom)


@given(st.text(max_size=60))
def test_no_text_does_more_than_be_refused(text: str) -> None:
    with pytest.raises(UsageProblem):
        parse_code(text)


# ---------------------------------------------------------------------------------------------------------- the bundle

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


@given(BUNDLES)
def test_a_bundle_comes_back_from_its_bytes(one: Bundle) -> None:
    assert decode_bundle(encode_bundle(one)) == one


@given(BUNDLES, st.data())
def test_a_bundle_that_is_cut_or_longer_is_refused(one: Bundle, data: st.DataObject) -> None:
    whole = encode_bundle(one)
    for changed in (whole[: data.draw(st.integers(0, len(whole) - 1))], whole + b"\0"):
        with pytest.raises(UsageProblem):
            decode_bundle(changed)


@given(BUNDLES, st.data())
def test_a_bundle_has_one_form_only(one: Bundle, data: st.DataObject) -> None:
    whole = bytearray(encode_bundle(one))
    whole[data.draw(st.integers(0, len(whole) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        back = decode_bundle(bytes(whole))
    except UsageProblem:
        return
    assert encode_bundle(back) == whole


@pytest.mark.parametrize(
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
    with pytest.raises(UsageProblem) as caught:
        bundle(**field)
    assert "crt_" not in caught.value.message


def test_a_bundle_with_a_certificate_that_is_too_long_is_refused() -> None:
    for size in (16_000, 70_000):
        with pytest.raises(UsageProblem, match="bytes long"):
            encode_bundle(bundle(ca="x" * size))


def test_an_answer_comes_back_from_its_bytes_and_is_read_strictly() -> None:
    answer = Answer("Mini's läptop", "cc-laptop", bytes(range(32)))
    data = encode_answer(answer)
    assert decode_answer(data) == answer
    for changed in (
        *(data[:size] for size in range(len(data))),
        data + b"x",
        b"\x02" + data[1:],
        data[:34] + b"\x1b" + data[35:],
    ):
        with pytest.raises(UsageProblem):
            decode_answer(changed)


def test_a_device_that_stored_another_bundle_is_not_believed() -> None:
    both = Both()
    steps = both.steps()
    for _ in range(5):
        next(steps)
    both.device._taken = bundle(generation=2)
    with pytest.raises(PairingFailed, match="another bundle"):
        next(steps)
    assert ended(both.home)
