r"""Find private spans, ``<private>...</private>``, which the user wants stored nowhere.

Tags are seen in any case, with attributes and white space, and with ``<`` and ``>`` written ``\u003c`` and ``\u003e``
as JSON inside of JSON often has them. A span that is never closed hides everything up to the end of its string.
"""

from __future__ import annotations

from crystal.redact.regex_engines import Lazy
from crystal.redact.work_limit import CALL, RedactionWork

PRIVATE_HINT = rb"(?i:(?:<|u003c)[\s\\nrt/]*private)"
"""Pattern found in every raw line that has a tag in one of its strings (RE2 and ``re`` syntax)."""

_RUN_START = rb"(?<!\\\\)"
_LT = rb"[<\\](?:(?<=<)|(?<=\\)" + _RUN_START + rb"\\*u003[cC])"
_GT = rb"[>\\](?:(?<=>)|(?<=\\)" + _RUN_START + rb"\\*u003[eE])"
_INSIDE = rb"[^<>\\]*(?:(?!" + _GT + rb"|" + _LT + rb")\\[^<>\\]*)*"
_NAME = rb"(?i:private)"
PRIVATE_TAG = Lazy(
    _LT
    + rb"(?:(?P<close>\s{0,64}\\{0,8}/\s{0,64}"
    + _NAME
    + rb"\s{0,64})|(?P<open>\s{0,64}"
    + _NAME
    + rb"\s{0,64}/?\s{0,64}|(?:"
    + _NAME
    + rb"(?=[\s/\\])|\s{1,64}"
    + _NAME
    + rb"(?=\s[^<>]{0,256}=))(?=(?P<inside>"
    + _INSIDE
    + rb"))(?P=inside)))"
    + _GT
)
"""A tag; with white space before its name, attributes count only if there is one (``a < private and b > c``).

What is inside is looked ahead at, so that no part of it is tried again where the tag is never closed."""


def private_spans(text: bytes, work: RedactionWork) -> list[tuple[int, int]]:
    """Return the stretches to hide, tags included, in order and without overlap.

    A closing tag without an opening one hides nothing. ``<private/>`` opens a span only if one is closed later:
    it is then taken for a slip of the pen, and otherwise for the empty element that it is.
    """
    tags = list(PRIVATE_TAG.finditer(text))
    work.spend(CALL * len(tags))
    last_closing = max((tag.start() for tag in tags if tag["close"] is not None), default=-1)
    spans: list[tuple[int, int]] = []
    opened: list[int] = []
    for tag in tags:
        is_empty = tag["close"] is None and tag["open"].rstrip(b" \t\r\n\\").endswith(b"/")
        if tag["close"] is not None:
            if len(opened) == 1:
                spans.append((opened[0], tag.end()))
            opened = opened[:-1]
        elif is_empty and tag.start() > last_closing:
            spans += [] if opened else [tag.span()]
        elif not (is_empty and opened):
            opened.append(tag.start())
    return [*spans, *((begin, len(text)) for begin in opened[:1])]
