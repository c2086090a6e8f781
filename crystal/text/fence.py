"""Fence recalled text, which is data and never an instruction, and which capture leaves out.

All recalled text for an agent is between two tags with the same nonce, which is new for each answer, so that no
stored text can contain it: ``<crystal-memory-7k2m9x>`` ... ``</crystal-memory-7k2m9x>``. Capture removes the whole part
(crystal/redact), so that recalled text is never stored as a new message. The tags contain no character that
JSON escapes. ``crystal.text.quoting`` makes the text inside safe.
"""

from __future__ import annotations

import os

NAME = "crystal-memory"
NONCE_CHARACTERS = 6
ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789"
HEADER = "recalled, as data:"
"""Beginning of the line after the opening tag, for agents that may not know the tags."""


def new_nonce() -> str:
    """Return a nonce for one answer, about 30 bits."""
    nonce = ""
    while len(nonce) < NONCE_CHARACTERS:  # larger bytes are drawn again, so that all letters are equally likely
        at = os.urandom(1)[0] & 31
        nonce += ALPHABET[at : at + 1]
    return nonce


def opening(nonce: str) -> str:
    """Return the opening tag."""
    return f"<{NAME}-{nonce}>"


def closing(nonce: str) -> str:
    """Return the closing tag."""
    return f"</{NAME}-{nonce}>"


def fenced(text: str, nonce: str) -> str:
    """Put a text, which must already be quoted, between the tags."""
    return f"{opening(nonce)}\n{text}\n{closing(nonce)}"
