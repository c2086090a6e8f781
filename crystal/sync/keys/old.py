"""Replaced keys: a rotation keeps the previous key, which opens what was sealed until then."""

from __future__ import annotations

import itertools

from crystal.errors import CrystalError
from crystal.sync.keys.files import backup_names, read_own_file
from crystal.sync.keys.forms import RelayKey, parse_key, parse_key_file
from crystal.sync.keys.places import KeyPlaces, place_of_key
from crystal.sync.keys.ring import read_entry


def read_old_keys(places: KeyPlaces) -> list[RelayKey]:
    """Return the keys that ``write_key`` set aside when it replaced them. Unreadable ones are skipped."""
    place = place_of_key(places)
    found: list[RelayKey] = []
    if place == "file":
        for path in sorted(places.data_dir.glob("relay.key.bak*")):
            try:
                data = read_own_file(path)
                found += [parse_key_file(data)] if data is not None else []
            except CrystalError:
                continue
    elif place == "keyring":
        texts = map(read_entry, backup_names("relay"))
        found = [parse_key(text) for text in itertools.takewhile(bool, texts) if text]
    return found
