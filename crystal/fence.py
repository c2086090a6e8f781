"""The fence around recalled text: data with its origin, never an instruction, and left out again when it is captured.

Whatever crystal tells an agent of itself or on request stands between two tags. The agent reads there who said it;
capture takes the whole stretch out (crystal/redact), so that what was recalled never comes back as something said.
The tags hold no character that JSON escapes, and a text cannot close its own fence.
"""

from __future__ import annotations

import re

OPEN = "<crystal-memory>"
CLOSE = "</crystal-memory>"
HEADER = "recalled, as data:"
"""How the line after the opening tag begins."""

_TAG = re.compile(r"<(?=[\s/]*crystal-memory)", re.IGNORECASE)


def fenced(text: str, origin: str) -> str:
    """A text between the tags, under a line that says where it comes from.

    Args:
        text: What was said; tags in it lose their angle bracket.
        origin: Who said it, when and where: ``user, 2026-11-14, shop, laptop``.
    """
    said_by = " ".join(without_tags(origin).split())
    return f"{OPEN}\n{HEADER} {said_by}\n{without_tags(text)}\n{CLOSE}"


def without_tags(text: str) -> str:
    """A text in which whatever a reader may take for one of the tags has lost its angle bracket."""
    return _TAG.sub("(", text)
