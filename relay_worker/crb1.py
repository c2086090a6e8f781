"""The outside of a CRB1 envelope, as far as it can be checked without a key. See docs/spec/envelope.md.

The relay checks this much so that a client with a bug hears of it at once, and so that nothing but sealed blobs is
stored; whether a blob is genuine only its reader can tell.
"""

from __future__ import annotations

import struct

from relay_worker.errors import Refusal

HEADER_BYTES = 116
TAG_BYTES = 32
GCM_TAG_BYTES = 16
MIN_BLOB = HEADER_BYTES + TAG_BYTES
MAX_BLOB = 8_388_608 + MIN_BLOB

_OUTSIDE = struct.Struct(">4sB19x16sQ64xI")


def check_envelope(head: bytes, size: int, *, stream: bytes, seq: int) -> None:
    """Refuse what cannot be the blob ``seq`` of ``stream``.

    Args:
        head: At least the first 116 bytes, if there are so many.
        size: Length of the whole body.
        stream: From the URL.
        seq: From the URL.

    Raises:
        Refusal: ``bad-envelope``.
    """
    if size < MIN_BLOB or len(head) < HEADER_BYTES:
        raise Refusal("bad-envelope", f"a sealed blob has at least {MIN_BLOB} bytes, this has {size}")
    magic, version, in_stream, in_seq, ct_len = _OUTSIDE.unpack_from(head)
    if magic != b"CRB1":
        raise Refusal("bad-envelope", "the body does not begin with CRB1")
    if version != 1:
        raise Refusal("bad-envelope", f"envelope version {version} is not known here")
    if ct_len + MIN_BLOB != size:
        raise Refusal("bad-envelope", f"the header announces {ct_len + MIN_BLOB} bytes, the body has {size}")
    if in_stream != stream:
        raise Refusal("bad-envelope", "the header names another stream than the URL")
    if in_seq != seq:
        raise Refusal("bad-envelope", f"the header has seq {in_seq}, the URL {seq}")
