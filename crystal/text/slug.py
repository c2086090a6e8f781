"""Convert words to a part of a file name."""

from __future__ import annotations

import re
import unicodedata


def slug(text: str) -> str:
    """Return a text as lower-case ASCII letters and digits with single hyphens, as every file system takes it."""
    plain = unicodedata.normalize("NFKD", text[:400]).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")
