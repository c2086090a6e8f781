"""Check the unencrypted part of a CRB1 envelope. See docs/spec/envelope.md.

The check reports client bugs early, and only sealed blobs are stored. Only the reader can verify that a blob is
genuine.
"""

from __future__ import annotations

import struct

from relay_worker.errors import RequestRefusedError

HEADER_BYTES = 116
TAG_BYTES = 32
MIN_BLOB = HEADER_BYTES + TAG_BYTES
MAX_BLOB = 8_388_608 + MIN_BLOB

_OUTSIDE = struct.Struct(">4sB19x16sQ64xI")


def check_envelope(body: bytes, *, stream: bytes, seq: int) -> None:
    """Refuse a body that cannot be blob ``seq`` of ``stream``.

    Args:
        body: The whole body.
        stream: The value in the URL.
        seq: The value in the URL.

    Raises:
        RequestRefusedError: ``bad-envelope``.
    """
    size = len(body)
    if size < MIN_BLOB:
        raise RequestRefusedError("bad-envelope", f"a sealed blob has at least {MIN_BLOB} bytes, this has {size}")
    magic, version, in_stream, in_seq, ct_len = _OUTSIDE.unpack_from(body)
    if magic != b"CRB1":
        raise RequestRefusedError("bad-envelope", "the body does not begin with CRB1")
    if version != 1:
        raise RequestRefusedError("bad-envelope", f"envelope version {version} is not known here")
    if ct_len + MIN_BLOB != size:
        raise RequestRefusedError(
            "bad-envelope", f"the header announces {ct_len + MIN_BLOB} bytes, the body has {size}"
        )
    if in_stream != stream:
        raise RequestRefusedError("bad-envelope", "the header names another stream than the URL")
    if in_seq != seq:
        raise RequestRefusedError("bad-envelope", f"the header has seq {in_seq}, the URL {seq}")
