"""Keys and tokens that tell what they are by their form, as their vendors publish it: the rows of ``formats.tsv``."""

from __future__ import annotations

from pathlib import Path

APART_RAW = rb"(?:^|[^A-Za-z0-9+/]|\\[nrtbf/]|u[0-9a-fA-F]{4})"
"""Nothing of a picture in base64 before it, in text whose escapes are not yet undone."""

DIGITS = rb"(?:[MNO][DTjz][AEIMQUYcgk][w-z0-5])"
"""Three decimal digits in base64, as the user id with which a Discord token begins."""

_NAMED_PATTERNS = {
    b"<free>": rb"(?<![A-Za-z0-9])",  # no part of a longer word: for prefixes so short that they could end one
    b"<apart>": rb"(?<![A-Za-z0-9+/])",  # the same for what pictures in base64 would often hold
    b"<digits>": DIGITS,
}


def _read_table(path: Path) -> tuple[tuple[str, bytes, bytes], ...]:
    """Return the rows: kind, literals (divided by spaces, empty for none) and pattern."""
    rows = path.read_bytes()
    for name, pattern in _NAMED_PATTERNS.items():
        rows = rows.replace(b"\t" + name, b"\t" + pattern)
    table = (row.split(b"\t") for row in rows.splitlines() if not row.startswith(b"#"))
    return tuple((kind.decode(), b"" if literals == b"-" else literals, pattern) for kind, literals, pattern in table)


TABLE = _read_table(Path(__file__).with_name("formats.tsv"))
