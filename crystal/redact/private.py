r"""``<private>...</private>``: what the user marked as never to be remembered.

Tags are seen in any case, with attributes and white space, and with ``<`` and ``>`` written ``\u003c`` and ``\u003e``
as JSON inside of JSON often has them. A span that is never closed hides everything up to the end of its string.
"""

from __future__ import annotations

import re

from crystal.redact.engine import Lazy, scanner
from crystal.redact.work import CALL, Work

PRIVATE_HINT = rb"(?i:(?:<|u003c)[\s\\nrt/]{0,16}private)"
"""What a raw line must hold for a tag to be in any of its strings (RE2 and ``re`` syntax)."""

_RUN_START = rb"(?<!\\\\)"
_LT = rb"[<\\](?:(?<=<)|(?<=\\)" + _RUN_START + rb"\\*u003[cC])"
_GT = rb"[>\\](?:(?<=>)|(?<=\\)" + _RUN_START + rb"\\*u003[eE])"
_INSIDE = rb"(?:(?!" + _GT + rb"|" + _LT + rb")[^<])*"
_TAG = Lazy(
    _LT
    + rb"(?:(?P<close>\s{0,64}\\{0,8}/\s{0,64}private\s{0,64})"
    + rb"|(?P<open>\s{0,64}private\s{0,64}/?\s{0,64}|private(?=[\s/\\])"
    + _INSIDE
    + rb"|\s{1,64}private(?=\s[^<>]{0,256}=)"
    + _INSIDE
    + rb"))"
    + _GT,
    re.IGNORECASE,
)
"""A tag; with white space before its name, attributes count only if there is one (``a < private and b > c``)."""


def private_spans(text: bytes, work: Work) -> list[tuple[int, int]]:
    """Return the stretches to hide, tags included, in order and without overlap.

    A closing tag without an opening one hides nothing. ``<private/>`` opens a span only if one is closed later:
    it is then taken for a slip of the pen, and otherwise for the empty element that it is.
    """
    if scanner((PRIVATE_HINT,))(text, 0) is None:
        return []
    tags = list(_TAG.finditer(text))
    work.spend(CALL * len(tags))
    last_closing = max((tag.start() for tag in tags if tag["close"] is not None), default=-1)
    spans: list[tuple[int, int]] = []
    depth = 0
    for tag in tags:
        if tag["close"] is not None:
            depth -= depth > 0
            if depth == 0 and spans and spans[-1][1] < 0:
                spans[-1] = (spans[-1][0], tag.end())
            continue
        if tag["open"].rstrip(b" \t\r\n\\").endswith(b"/"):
            if depth == 0 and last_closing < tag.start():
                spans.append(tag.span())
                continue
            if depth:
                continue
        if depth == 0:
            spans.append((tag.start(), -1))
        depth += 1
    if depth:
        spans[-1] = (spans[-1][0], len(text))
    return spans
