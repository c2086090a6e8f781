"""What machines are called: names that a terminal can show, and that no other machine has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crystal.errors import UsageProblem

if TYPE_CHECKING:
    from crystal.store import Store

UNFINISHED = "unfinished-"
"""How the name of a device begins whose pairing has not ended."""
MAX_NAME_BYTES = 64


def clean_name(name: str) -> str:
    """A name as far as it can be one: printable, at most 64 bytes."""
    kept = "".join(letter for letter in name if letter.isprintable()).strip()
    return kept.encode("utf-8", "replace")[:MAX_NAME_BYTES].decode("utf-8", "ignore").strip()


def checked_name(name: str) -> str:
    """A machine's name that somebody chose.

    Raises:
        UsageProblem: It cannot be one.
    """
    if not name or clean_name(name) != name or name.startswith(("-", UNFINISHED)):
        hint = f"a name is one printable line of at most {MAX_NAME_BYTES} bytes that does not begin with -"
        raise UsageProblem(f"the name {name!r} cannot be used", hint=hint)
    return name


def free_name(store: Store, wanted: str, own: str) -> str:
    """The name, or with the first number behind it that makes it one which no other machine has."""
    from crystal.store.relay_peers import all_peers

    return _free(wanted, {own, *(peer.name for peer in all_peers(store))}, MAX_NAME_BYTES)


def free_agent(store: Store, wanted: str, own: str) -> str:
    """The same for an agent id."""
    from crystal.store.relay_peers import all_peers

    return _free(wanted, {own, *(peer.agent for peer in all_peers(store) if peer.agent)}, MAX_NAME_BYTES)


def _free(wanted: str, taken: set[str], room: int) -> str:
    name, number = wanted, 2
    while name in taken:
        end = f"-{number}"
        name = wanted.encode()[: room - len(end)].decode("utf-8", "ignore").rstrip() + end
        number += 1
    return name
