"""Pair without a relay between the machines: the whole bundle as one word with a checksum.

Anyone who reads this word can act as the device. It is passed from screen to camera or through standard input, never on
a command line.
"""

from __future__ import annotations

from crystal.sync.keys.armor import armor, unarmor
from crystal.sync.keys.bundle import MAX_BUNDLE_BYTES, Bundle, decode_bundle, encode_bundle

OFFLINE_PREFIX = "crystal1:"
MAX_OFFLINE_CHARS = len(OFFLINE_PREFIX) + (MAX_BUNDLE_BYTES + 4) * 8 // 5 + 8


def format_offline(bundle: Bundle) -> str:
    """Encode a bundle as one word in lower case, about 290 characters; upper case makes a smaller QR code."""
    return armor(OFFLINE_PREFIX, encode_bundle(bundle))


def parse_offline(text: str) -> Bundle:
    """Decode the word, in any case, with line breaks and spaces anywhere.

    Raises:
        UsageProblem: It is damaged. One wrong character and two swapped neighbours are always detected.
    """
    return decode_bundle(unarmor(OFFLINE_PREFIX, text, name="the pairing string", max_chars=MAX_OFFLINE_CHARS))
