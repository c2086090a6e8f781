"""Ways to damage the bytes of a database file."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

from crystal.store import upgrade

PAGE = upgrade.PAGE_SIZE


def flip(data: bytearray, dice: random.Random) -> None:
    for _ in range(40):
        data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)


def overwrite_header(data: bytearray, dice: random.Random) -> None:
    data[: dice.choice((16, 100, 512))] = dice.randbytes(100)


def zero_page(data: bytearray, dice: random.Random) -> None:
    at = PAGE * dice.randrange(len(data) // PAGE)
    data[at : at + PAGE] = bytes(PAGE)


def cut(data: bytearray, dice: random.Random) -> None:
    del data[dice.randrange(len(data)) :]


def garble_texts(data: bytearray, dice: random.Random) -> None:
    """Make texts undecodable where no page check can see it."""
    at = 0
    while (at := data.find(b" says ", at + 1)) >= 0:
        if dice.random() < 0.5:
            data[at + 1] = 0xFF


def garble_definition(data: bytearray, dice: random.Random) -> None:
    """Damage the definition of the table of vectors, which SQLite hands to its extension."""
    at = data.index(b"distance_metric") + dice.randrange(15)
    data[at] = 0xFF


HARMS: dict[str, Callable[[bytearray, random.Random], None]] = {
    "flip": flip,
    "header": overwrite_header,
    "page": zero_page,
    "cut": cut,
    "texts": garble_texts,
    "definition": garble_definition,
}


def harm_record(record: Path, dice: random.Random) -> None:
    """Delete, cut or garble a record of memories too, in half of the cases."""
    data = record.read_bytes()
    found = dice.choice(["", "", "", "deleted", b"", data[: dice.randrange(len(data))], dice.randbytes(len(data))])
    if found == "deleted":
        record.unlink()
    elif isinstance(found, bytes):
        record.write_bytes(found)
