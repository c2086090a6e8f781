"""Envelope: seal data of one device for another, so that a carrier can neither read nor change it.

Pure functions on bytes. The package knows keys, bytes and the order of checks. It uses no files, clock, randomness,
stream history or relay: time, salts and expected values are arguments.

The format is CRB1. docs/spec/envelope.md is normative.
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
