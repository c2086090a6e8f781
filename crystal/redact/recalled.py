"""Remove text that crystal itself gave an agent: fenced by ``crystal.text.fence``, and never kept a second time.

A fence begins with ``<crystal-memory-NONCE>``, or with ``<crystal-memory>`` as older releases wrote it, if the line
that a fence begins with follows it, if it is alone on its line, or if it is closed. It ends at the closing tag
with the same nonce. One that is cut off hides everything up to the end of its string. A tag that somebody merely
names, between quotes or in a sentence, opens none. Gemini CLI writes what a hook told with ``&lt;`` and ``&gt;``; tags
that are escaped as JSON does it are not looked for, because each level is read in turn.
"""

from __future__ import annotations

import re

from crystal.redact.regex_engines import Lazy
from crystal.redact.work_limit import CALL, RedactionWork
from crystal.text.fence import HEADER, NAME

FENCE_NAME = NAME.encode("ascii")
"""Bytes found in every raw line that has a fence in one of its strings."""

FENCE_TAG = Lazy(rb"(?:<|&lt;)(?P<close>/)?" + FENCE_NAME + rb"(?P<nonce>-[a-z0-9]{6})?(?:>|&gt;)")
_QUOTES = (b"`", b"'", b'"')
_ALONE_BEFORE = (b"", b"\n", b"\t", b'"')
_ALONE_AFTER = Lazy(rb"[ \t\r]*(?:\n|\Z)")
_HEADER_NEAR = Lazy(rb"[\W\d]{0,48}(?:" + re.escape(HEADER.encode()) + rb"|data:)")
"""The line may have been quoted, numbered or joined to the tag's."""


def recalled_spans(text: bytes, work: RedactionWork) -> list[tuple[int, int]]:
    """Return the stretches between fences, tags included, in order and without overlap.

    A tag that is merely named counts as a fence if a closing one with its nonce follows before any other opens.
    """
    spans: list[tuple[int, int]] = []
    begin: re.Match[bytes] | None = None
    is_fence = False
    for tag in FENCE_TAG.finditer(text):
        work.spend(2 * CALL)
        quote = text[tag.end() : tag.end() + 1]
        if quote in _QUOTES and tag.start() > 0 and text[tag.start() - 1 : tag.start()] == quote:
            continue  # one that is alone between quotes is named in a sentence
        if begin is not None and tag["close"] is not None and begin["nonce"] == tag["nonce"]:
            spans.append((begin.start(), tag.end()))
            begin, is_fence = None, False
        elif not is_fence:
            begin = None if tag["close"] else tag
            is_fence = begin is not None and _begins_fence(text, tag)
    if begin is not None and is_fence:
        spans.append((begin.start(), len(text)))
    return spans


def _begins_fence(text: bytes, tag: re.Match[bytes]) -> bool:
    if _HEADER_NEAR.match(text, tag.end()):
        return True
    before = text[tag.start() - 1 : tag.start()] if tag.start() else b""
    return before in _ALONE_BEFORE and _ALONE_AFTER.match(text, tag.end()) is not None
