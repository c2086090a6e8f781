r"""Find private keys: PEM, OpenSSH and PGP blocks, also cut off, with literal ``\n``, or between line numbers."""

from __future__ import annotations

import binascii
import re
from collections.abc import Iterator

from crystal.redact.regex_engines import Lazy
from crystal.redact.spans import BLOCK, STRING_END, Span
from crystal.redact.work_limit import FINDING, RedactionWork

BLOCK_HINTS = (rb"PRIVATE KEY", rb"OpenVPN Static key", rb"SSH2 ENCRYPTED", rb"PuTTY-User-Key-File", rb"LS0tLS1CRUdJTi")

_KEY = rb"(?:PRIVATE KEY(?: BLOCK)?|SSH2 ENCRYPTED PRIVATE KEY|OpenVPN Static key V1)"
_BEGIN = Lazy(rb"-{4,5} ?BEGIN (?:[A-Z0-9]+ ){0,3}?" + _KEY + rb" ?-{4,5}")
_END = Lazy(rb"-{4,5} ?END (?:[A-Z0-9]+ ){0,3}?" + _KEY + rb" ?-{4,5}")
_MAX_LENGTH = 64 * 1024
_BETWEEN = rb"(?:[\s\"'`+,>|\\*#.:]|\\[nrt]|\d{1,5}(?:\t|\xe2\x86\x92|[:|])|\xe2\x80\xa6)"
_BODY = Lazy(
    rb"(?:" + _BETWEEN + rb"*(?:[A-Za-z0-9+/=_\-]{16,}|(?:Proc-Type|DEK-Info|Version|Comment|Hash|Charset):[^\n\\]*))+"
    rb"(?:" + _BETWEEN + rb"{1,12}[A-Za-z0-9+/=]{1,64}(?=\s*(?:$|-----|[\"'\\])))?"
)
_PUTTY = Lazy(rb"Private-Lines: *\d+\s+((?:[A-Za-z0-9+/=]+\s*)+)")
_PUTTY_HEAD, _PUTTY_BYTES = b"PuTTY-User-Key-File-", 8192
_ENCODED = Lazy(
    rb"LS0tLS1CRUdJTi[A-Za-z0-9+/=]{16,}(?:\s+[A-Za-z0-9+/=]{16,})*(?:\s+[A-Za-z0-9+/]{1,64}={0,2}(?=\s*(?:$|[\"'\\])))?"
)


def block_spans(text: bytes, work: RedactionWork) -> Iterator[Span]:
    """Yield the private keys in plain text, but no public keys or certificates."""
    at = 0
    while (begin := _BEGIN.search(text, at)) is not None:
        work.spend(2 * FINDING)
        at = begin.end()
        end = _block_end(text, at)
        if end:
            yield Span(begin.start(), end, "private-key", BLOCK)
            at = end
    for found in work.each(_PUTTY.finditer(text) if _PUTTY_HEAD in text else ()):
        if text.rfind(_PUTTY_HEAD, max(0, found.start() - _PUTTY_BYTES), found.start()) >= 0:
            yield Span(*found.span(1), "private-key", BLOCK)
    for found in work.each(_ENCODED.finditer(text) if b"LS0tLS1CRUdJTi" in text else ()):
        head = found.group()[:64].translate(None, b"= \t\r\n")
        if b"PRIVATE KEY" in binascii.a2b_base64(head[: len(head) // 4 * 4]):
            yield Span(*found.span(), "private-key", BLOCK)


def _block_end(text: bytes, body: int) -> int:
    """Return where the block ends whose first line ends at ``body``; 0 if nothing of a key follows."""
    limit = text.find(STRING_END, body, body + _MAX_LENGTH)
    limit = limit if limit >= 0 else body + _MAX_LENGTH
    following = _BEGIN.search(text, body, limit)
    end = _END.search(text, body, following.start() if following else limit)
    if end is not None and len(re.findall(rb"[A-Za-z0-9+/=]", text[body : end.start()])) >= 16:
        return end.end()
    cut_off = _BODY.match(text, body) if end is None else None
    return cut_off.end() if cut_off else 0
