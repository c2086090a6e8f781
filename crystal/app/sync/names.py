"""What machines are called: names that a terminal can show, and that no other machine has."""

from __future__ import annotations

from collections.abc import Sequence

from crystal.errors import UsageError
from crystal.store import Store
from crystal.store.sync.relay_peers import all_peers

UNFINISHED = "unfinished-"
"""How the name of a device begins whose pairing has not ended."""
MAX_NAME_BYTES = 64


def clean_name(name: str) -> str:
    """Return a name reduced to what is allowed: printable, at most 64 bytes."""
    kept = "".join(letter for letter in name if letter.isprintable()).strip()
    return kept.encode("utf-8", "replace")[:MAX_NAME_BYTES].decode("utf-8", "ignore").strip()


def checked_name(name: str) -> str:
    """Return a machine's name that a person chose, checked.

    Raises:
        UsageError: It cannot be one.
    """
    if not name or clean_name(name) != name or name.startswith(("-", UNFINISHED)):
        hint = f"a name is one printable line of at most {MAX_NAME_BYTES} bytes that does not begin with -"
        raise UsageError(f"the name {name!r} cannot be used", hint=hint)
    return name


def free_name(store: Store, wanted: str, own: str) -> str:
    """Return the name, with the first number appended that makes it unique if another machine has it."""
    taken = {own, *(peer.name for peer in all_peers(store))}
    name, number = wanted, 2
    while name in taken:
        end = f"-{number}"
        name = wanted.encode()[: MAX_NAME_BYTES - len(end)].decode("utf-8", "ignore").rstrip() + end
        number += 1
    return name


def short_ids(streams: Sequence[bytes]) -> dict[bytes, str]:
    """Return unique prefixes of the streams' own part, 8 digits or more.

    All streams of a device begin with the same 16 digits; what comes after is random.
    """
    own = {stream: stream.hex()[16:] for stream in streams}
    for digits in range(8, 16):
        if len({name[:digits] for name in own.values()}) == len(own):
            return {stream: name[:digits] for stream, name in own.items()}
    return {stream: stream.hex() for stream in streams}
