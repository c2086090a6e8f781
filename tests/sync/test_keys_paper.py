"""The paper key: out and in again, against the vectors of BIP39."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mnemonic import Mnemonic

from crystal.errors import UsageError
from crystal.sync.keys.word_codes import paper_words, parse_paper, word_list
from tests.support.table import each_row

# The English vectors of 256 bits that the standard names: github.com/trezor/python-mnemonic, vectors.json.
VECTORS = {
    "00" * 32: "abandon " * 23 + "art",
    "7f"
    * 32: "legal winner thank year wave sausage worth useful legal winner thank year wave sausage worth useful legal winner thank year wave sausage worth title",
    "80"
    * 32: "letter advice cage absurd amount doctor acoustic avoid letter advice cage absurd amount doctor acoustic avoid letter advice cage absurd amount doctor acoustic bless",
    "ff" * 32: "zoo " * 23 + "vote",
    "00ac97c48106f0aeb8ba061e0250a559b3251dc35854e694780ba51d53a50120": "absent gorilla van acoustic humor firm title dolphin bulk barely citizen recall crane moment aspect appear track phrase actual enforce steel spoon afraid benefit",
    "3edc83b60740d77af3afa2fcb82c2f1bc541ee4e2518ddef4996d32453f54a3c": "disagree tomato unique attend aspect runway solid violin witness scrap armed daring favorite warm decade perfect target kid grant play early wide cigar night",
    "89bb4bc5555992cdaf3444c5e7ca5a6e9f27efab894f1990bae41be8b2a26ea4": "meadow surge vanish primary odor grocery rubber mass shine dinner notable tag venue water purchase clarify book magic ribbon daughter menu eye ritual orchard",
    "911fec0fbd88029f6fa99164896c18d898c9232af18bdcca3e42d53b86493104": "much youth advance kitchen lens exile salt cram goose enter alert raise milk muscle profit cousin system faint mouse price reveal cause series long",
}
ROOT = bytes.fromhex("911fec0fbd88029f6fa99164896c18d898c9232af18bdcca3e42d53b86493104")
WORDS = VECTORS[ROOT.hex()].split()


@each_row("root", VECTORS)
def test_the_vectors_of_bip39(root: str) -> None:
    assert list(paper_words(bytes.fromhex(root))) == VECTORS[root].split()
    assert parse_paper(VECTORS[root]).hex() == root


@pytest.mark.slow
@given(st.binary(min_size=32, max_size=32))
def test_a_root_comes_back_from_its_words(root: bytes) -> None:
    words = paper_words(root)
    assert len(words) == 24
    assert parse_paper(" ".join(words)) == root
    assert Mnemonic("english").check(" ".join(words))


@each_row(
    "text",
    [
        " ".join(WORDS).upper(),
        "\n".join(WORDS) + "\n",
        "  ".join(word.title() for word in WORDS),
        ", ".join(WORDS) + ".",
        "\n".join(f"{number:2}. {word}" for number, word in enumerate(WORDS, 1)),
        "\t".join(f"{number}) {word}" for number, word in enumerate(WORDS, 1)),
        "-".join(WORDS),
        " ".join(word[:4] for word in WORDS),
        " ".join(word[:5] for word in WORDS),
        "\u3000".join(WORDS),
        "\u00a0".join(WORDS),
        " ".join(WORDS).translate({ord(letter): ord(letter) + 0xFEE0 for letter in "abcdefghijklmnopqrstuvwxyz"}),
        "\ufeff" + "\u200b ".join(WORDS),
    ],
)
def test_words_are_read_as_people_type_them(text: str) -> None:
    assert parse_paper(text) == ROOT


@each_row(
    ("word", "near"),
    [
        ("yoth", "youth"),
        ("youht", "youth"),
        ("advanse", "advance"),
        ("kitchn", "kitchen"),
        ("lea", "learn"),
        ("mouze", "mouse"),
    ],
)
def test_a_misspelt_word_is_named_with_what_is_near(word: str, near: str) -> None:
    with pytest.raises(UsageError, match=f"word 2, '{word}', is not in the list") as caught:
        parse_paper(" ".join([WORDS[0], word, *WORDS[2:]]))
    assert near in (caught.value.hint or "")


@pytest.mark.slow
def test_a_wrong_word_of_the_list_is_found_most_of_the_time() -> None:
    found = 0
    tried = [word for word in word_list() if word != WORDS[5]][::4]
    for word in tried:
        try:
            parse_paper(" ".join([*WORDS[:5], word, *WORDS[6:]]))
        except UsageError as error:
            found += "checksum of the paper key" in error.message
    assert found / len(tried) > 0.97  # 8 bits of checksum: 255 of 256


@each_row("count", [1, 12, 23, 25, 48])
def test_another_number_of_words_is_refused(count: int) -> None:
    with pytest.raises(UsageError, match=f"has 24 words, these are {count}"):
        parse_paper(" ".join((WORDS * 2)[:count]))


@each_row("text", ["", "  \n", "1. 2. 3."])
def test_no_words_at_all_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is empty"):
        parse_paper(text)


def test_a_secret_typed_in_the_wrong_place_is_not_shown() -> None:
    for secret in (ROOT.hex(), "crystal-key1-" + "abcdefgh" * 8, "hunter2hunter2hunter2"):
        with pytest.raises(UsageError) as caught:
            parse_paper(secret)
        shown = caught.value.message + str(caught.value.hint)
        assert secret[14:30] not in shown


def test_too_much_text_is_refused_before_it_is_read() -> None:
    with pytest.raises(UsageError, match="characters long"):
        parse_paper("abandon " * 100_000)


@each_row("length", [0, 16, 31, 33])
def test_only_a_root_becomes_24_words(length: int) -> None:
    with pytest.raises(ValueError, match="not 32"):
        paper_words(bytes(length))


@pytest.mark.slow
@given(st.text(max_size=200))
def test_no_text_does_more_than_be_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_paper(text)
