"""The envelope: what one device seals for another, so that whoever carries it learns nothing and changes nothing.

Pure functions on bytes. The room knows keys, bytes and the order of checks; it refuses to know files, clocks,
randomness, streams' histories and the relay: time, salts and expectations come in as arguments.

The format is CRB1. Its specification is docs/spec/envelope.md, and this room follows it, not the other way round.
"""

from __future__ import annotations

from crystal.sync.envelope.blob import Opened, open_blob, seal, seal_parts, tag_of
from crystal.sync.envelope.content import MAX_RAW, PART_BYTES, Kind, padded_length
from crystal.sync.envelope.header import (
    HEADER_BYTES,
    MAX_BLOB,
    MAX_CIPHERTEXT,
    MAX_SEQ,
    TAG_BYTES,
    ZERO_TAG,
    Channel,
    Header,
    read_header,
)
from crystal.sync.envelope.link import LinkKeys, keys_of_link, link_keys
from crystal.sync.envelope.refusals import Forked, Malformed, Misplaced, Refused, Tampered, UnknownVersion, WrongKey

__all__ = [
    "HEADER_BYTES",
    "MAX_BLOB",
    "MAX_CIPHERTEXT",
    "MAX_RAW",
    "MAX_SEQ",
    "PART_BYTES",
    "TAG_BYTES",
    "ZERO_TAG",
    "Channel",
    "Forked",
    "Header",
    "Kind",
    "LinkKeys",
    "Malformed",
    "Misplaced",
    "Opened",
    "Refused",
    "Tampered",
    "UnknownVersion",
    "WrongKey",
    "keys_of_link",
    "link_keys",
    "open_blob",
    "padded_length",
    "read_header",
    "seal",
    "seal_parts",
    "tag_of",
]
