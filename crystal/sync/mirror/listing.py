"""List of the mirror's objects: the manifest as home writes it and a device reads it. Pure.

A manifest is a JSON object that home seals for one device (crystal/sync/documents.py).

Source: docs/spec/mirror.md, section 2.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from typing import Any

from crystal.errors import DamagedError
from crystal.store.sync.mirror_content import VectorSpace
from crystal.sync.envelope.link import LinkKeys, keys_of_link

FORMAT = 2
MAX_OBJECTS = 1_000_000


class MirrorManifestError(DamagedError):
    """A manifest is authentic but malformed or unknown to this version."""


@dataclass(frozen=True, slots=True)
class MirrorObject:
    """One object: the positions after the previous entry, up to ``last``.

    ``mark`` identifies the history that position ``last`` belongs to; ``number`` is the seq that the object is sealed
    with.
    """

    last: int
    mark: bytes
    number: int
    sha256: bytes
    size: int

    @property
    def object_id(self) -> bytes:
        """Id of the object at the relay."""
        return self.sha256[:16]

    def as_json(self) -> list[Any]:
        """Return the entry as it is written in a list."""
        return [self.last, _short(self.mark), self.number, _short(self.sha256), self.size]


@dataclass(frozen=True, slots=True)
class MirrorManifest:
    """State that home has published.

    Attributes:
        epoch: Changes when home is restored from a backup; versions compare within one epoch.
        version: Rises with every publication.
        published_at: Time at which home had nothing left to publish, by its clock.
        stream: The stream id used to seal the objects.
        links: The keys that open them; never shown.
        entries: The list.
        serving: The model whose vectors are used for search, None if there is none.
    """

    epoch: bytes
    version: int
    published_at: int
    stream: bytes
    links: tuple[bytes, ...]
    entries: tuple[MirrorObject, ...]
    serving: VectorSpace | None

    def __repr__(self) -> str:
        return f"Manifest(version {self.version}, {len(self.entries)} objects)"

    @property
    def head(self) -> int:
        """Newest position."""
        return self.entries[-1].last if self.entries else 0

    def keys(self) -> dict[bytes, LinkKeys]:
        """Return the keys by key id."""
        return {keys.key_id: keys for keys in map(keys_of_link, self.links)}

    def as_json(self) -> dict[str, Any]:
        """Return the body of the document."""
        return {
            "format": FORMAT,
            "epoch": self.epoch.hex(),
            "version": self.version,
            "published_at": self.published_at,
            "stream": self.stream.hex(),
            "keys": [_short(link) for link in self.links],
            "objects": [one.as_json() for one in self.entries],
            "serving": None if self.serving is None else list(astuple(self.serving)),
        }


def parse_manifest(body: Mapping[str, Any]) -> MirrorManifest:
    """Parse a manifest.

    Raises:
        MirrorManifestError: It is malformed, or from a newer version.
    """
    try:
        if body.get("format") != FORMAT:
            raise MirrorManifestError(
                f"the mirror's manifest has format {body.get('format')!r}, this crystal knows {FORMAT}",
                hint="upgrade crystal on this machine",
            )
        space = body["serving"]
        return MirrorManifest(
            _bytes_of(body["epoch"], 16),
            _number(body["version"]),
            _number(body["published_at"]),
            _bytes_of(body["stream"], 16),
            tuple(_long(link, 32) for link in body["keys"]),
            _entries(body["objects"]),
            None if space is None else VectorSpace(_number(space[0]), str(space[1]), str(space[2]), _number(space[3])),
        )
    except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
        raise MirrorManifestError(f"the mirror's manifest cannot be understood ({type(error).__name__})") from error


def _entries(rows: Any) -> tuple[MirrorObject, ...]:
    if not isinstance(rows, list) or len(rows) > MAX_OBJECTS:
        raise TypeError("list")
    entries: list[MirrorObject] = []
    after = 0
    for row in rows:
        entries.append(_entry(row, after))
        after = entries[-1].last
    return tuple(entries)


def _entry(row: Any, after: int) -> MirrorObject:
    last, mark, number, sha256, size = row
    if _number(last) <= after or _number(number) < 1 or _number(size) < 1:
        raise ValueError("order")
    return MirrorObject(last, _long(mark, 8), number, _long(sha256, 32), size)


def _number(value: object) -> int:
    if type(value) is not int or not 0 <= value < 1 << 62:
        raise TypeError("number")
    return value


def _bytes_of(text: object, length: int) -> bytes:
    if not isinstance(text, str) or len(text) != 2 * length:
        raise TypeError("hexadecimal")
    return bytes.fromhex(text)


def _short(data: bytes) -> str:
    return base64.b64encode(data).decode().rstrip("=")


def _long(text: object, length: int) -> bytes:
    if not isinstance(text, str):
        raise TypeError("base64")
    data = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    if len(data) != length:
        raise ValueError("length")
    return data
