"""Replace characters that move the cursor, change the reading direction, or hide text."""

from __future__ import annotations

import re

# C0 (but tab and newline), DEL, C1; line and paragraph separators; marks of direction; soft hyphen and other invisible
# characters that hide or join text; lone surrogates.
_HARMFUL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)


def harmless(text: str) -> str:
    """Make stored text safe to show, character by character: control characters become visible symbols."""
    return _HARMFUL.sub(_sign, text)


def _sign(match: re.Match[str]) -> str:
    code = ord(match[0])
    return chr(0x2400 + code) if code < 0x20 else "\u2421" if code == 0x7F else "\ufffd"
