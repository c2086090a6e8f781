"""Encode and parse the manifest, the list of the mirror's objects: home writes it, a device reads it. Pure.

A manifest is a JSON object that home seals for one device (crystal/sync/documents.py).

Source: docs/spec/mirror.md, section 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, Struct

from crystal.errors import DamagedError
from crystal.store.sync.mirror_content import VectorSpace
from crystal.sync.envelope.link import LinkKeys, keys_of_link

FORMAT: Final = 3
MAX_OBJECTS = 1_000_000

Number = Annotated[int, Meta(ge=0, lt=1 << 62)]
Positive = Annotated[int, Meta(ge=1, lt=1 << 62)]
Bytes32 = Annotated[bytes, Meta(min_length=32, max_length=32)]


class MirrorObject(Struct, frozen=True, array_like=True):
    """One object: the positions after the previous entry, up to ``last``.

    ``mark`` identifies the history of position ``last``; ``number`` is the seq with which the object is sealed.
    """

    last: Positive
    mark: Annotated[bytes, Meta(min_length=8, max_length=8)]
    number: Positive
    sha256: Bytes32
    size: Positive

    @property
    def object_id(self) -> bytes:
        """Return the id of the object at the relay."""
        return self.sha256[:16]


class MirrorManifest(Struct, frozen=True, kw_only=True):
    """State that home has published.

    Attributes:
        format: Number of the format.
        published_at: Time at which home had nothing left to publish, by its clock.
        stream: The stream id used to seal the objects.
        links: The keys that open them; never shown.
        entries: The list.
        serving: The model whose vectors are used for search, or None.
    """

    format: Literal[3] = FORMAT
    published_at: Number
    stream: Annotated[bytes, Meta(min_length=16, max_length=16)]
    links: tuple[Bytes32, ...] = msgspec.field(name="keys")
    entries: Annotated[tuple[MirrorObject, ...], Meta(max_length=MAX_OBJECTS)] = msgspec.field(name="objects")
    serving: VectorSpace | None

    def __post_init__(self) -> None:
        if any(later.last <= earlier.last for earlier, later in pairwise(self.entries)):
            raise ValueError("the objects are not in order")

    def __repr__(self) -> str:
        return f"MirrorManifest(published_at={self.published_at}, {len(self.entries)} objects)"

    @property
    def head(self) -> tuple[int, bytes]:
        """Return the newest position and its mark."""
        return (self.entries[-1].last, self.entries[-1].mark) if self.entries else (0, b"")

    def keys(self) -> dict[bytes, LinkKeys]:
        """Return the keys by key id."""
        return {keys.key_id: keys for keys in map(keys_of_link, self.links)}

    def as_json(self) -> dict[str, Any]:
        """Return the body of the document."""
        body: dict[str, Any] = msgspec.to_builtins(self)
        return body


def parse_manifest(body: Mapping[str, Any]) -> MirrorManifest:
    """Parse a manifest.

    Raises:
        DamagedError: It is malformed, or from a newer version.
    """
    if body.get("format") != FORMAT:
        raise DamagedError(
            f"the mirror's manifest has format {body.get('format')!r}, this crystal knows {FORMAT}",
            hint="upgrade crystal on this machine",
        )
    try:
        return msgspec.convert(body, MirrorManifest)
    except ValueError as error:  # of msgspec, or text that is not UTF-8
        raise DamagedError(f"the mirror's manifest cannot be understood: {error}") from error
