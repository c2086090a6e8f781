"""Find copies that iCloud, Finder and Google Drive name with a number, and OneDrive with the name of a computer.

``Note 2.md``, ``Note (1).md``, ``Note-LAPTOP-K2.md``. A name alone proves nothing: ``Chapter 2.md`` is a chapter. A
copy has its original beside it, with nearly equal text.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path

from crystal.sources.file_content import read_content, text_of

_NUMBERED = re.compile(
    r"(?P<stem>.+?)(?: [2-9]| \([1-9]\)|-[A-Z][A-Z0-9-]{2,14}|-[\w-]*(?:MacBook|iMac|Mac-)[\w-]*)(?P<suffix>\.\w+)"
)
_MIN_SHARED = 0.9
"""Minimum share of the longer text whose words are in the other text too."""


def numbered_copies(root: Path, files: Collection[str], now_ns: int) -> Iterator[tuple[str, str]]:
    """Yield the files of a folder that are such copies, each with its original. Reads only these files."""
    for path in files:
        found = _NUMBERED.fullmatch(path)
        if found is None or f"{found['stem']} 1{found['suffix']}" in files:  # a numbered series begins with 1
            continue
        original = found["stem"] + found["suffix"]
        if original in files and _shared(_text(root, path, now_ns), _text(root, original, now_ns)) >= _MIN_SHARED:
            yield path, original


def _text(root: Path, path: str, now_ns: int) -> str:
    with contextlib.suppress(OSError):
        content = read_content(root, path, now_ns)
        return "" if content is None else text_of(content)[0]
    return ""


def _shared(one: str, other: str) -> float:
    """Return the share of the longer text that consists of words of both, from 0 to 1."""
    words, others = Counter(one.split()), Counter(other.split())
    longer = max(_length(words), _length(others))
    return _length(words & others) / longer if longer else 0.0


def _length(words: Counter[str]) -> int:
    return sum(len(word) * count for word, count in words.items())
