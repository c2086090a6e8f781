"""Pairing without a relay between the machines: the whole bundle as one word with a checksum.

Whoever reads this word is the device. It goes from screen to camera, or through standard input, never through a
command line.
"""

from __future__ import annotations

from crystal.sync.keys.armor import armor, unarmor
from crystal.sync.keys.bundle import MAX_BUNDLE_BYTES, Bundle, decode_bundle, encode_bundle

OFFLINE_PREFIX = "crystal1:"
MAX_OFFLINE_CHARS = len(OFFLINE_PREFIX) + (MAX_BUNDLE_BYTES + 4) * 8 // 5 + 8


def format_offline(bundle: Bundle) -> str:
    """Write a bundle as one word in lower case, about 290 characters; in upper case it makes a smaller QR code."""
    return armor(OFFLINE_PREFIX, encode_bundle(bundle))


def parse_offline(text: str) -> Bundle:
    """Read the word back, in any case, with line breaks and spaces anywhere.

    Raises:
        UsageProblem: It is not whole. A wrong character and two swapped neighbours are always found.
    """
    return decode_bundle(unarmor(OFFLINE_PREFIX, text, name="the pairing string", max_chars=MAX_OFFLINE_CHARS))
