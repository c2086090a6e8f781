"""The joints of names such as ``get_user`` and ``src/main.py``, as words of the index.

A joint is a sign between two letters. With the letters beside it it is one of 1,024 words: a text that has a name as
it is written has those of all its joints; a text of code has some thirty, and most others none.
"""

from __future__ import annotations

import re
import zlib
from functools import lru_cache

# With three characters before it and two after, and a letter on either side; written so that few places are looked at.
_JOINT = re.compile("[-._/:](?<=[a-z].)(?=[a-z].(?<=(.{6})))", re.DOTALL)
_FAR = re.compile("^.*[^0-9a-z](?=.{4})|[^0-9a-z]$", re.DOTALL)
"""Characters beside a joint that belong to another word. Letters farther away may be of another form of a word."""


def joint_words(text: str) -> list[str]:
    """Return the words for the joints in a text, each once: two control characters, which no other word has."""
    return list(set(map(_word, set(_JOINT.findall(f"  {text.lower()} ")))))


@lru_cache(1 << 15)
def _word(joint: str) -> str:
    high, low = divmod(zlib.crc32(_FAR.sub("", joint).encode("utf-8", "replace")) % 1024, 32)
    return chr(high) + chr(low)
