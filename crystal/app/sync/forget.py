"""Send tombstones: from a device to home, from home to every device; apply them to outbox and mirror."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

from crystal.app.context import Machine, now_ms
from crystal.app.forget_rest import finish_forgetting
from crystal.errors import CrystalError, NotConfiguredError, StoreDamagedError, WatermarkMovedError
from crystal.store import Store
from crystal.store.problems import clear_problem, record_problem
from crystal.store.sync.relay_forgotten import behind, count_unconfirmed
from crystal.store.sync.relay_peers import Peer, all_peers, home_peer
from crystal.sync.forgotten import put_again, put_forgotten, read_tombstone_batch, take_from_home
from crystal.sync.sending import Link
from crystal.sync.wire import InvalidRecordError

PART = "forgetting"
"""Key (``part``) of the problem: home's list of deletions cannot be parsed."""
FINISHING = "forgetting files"
"""Key (``part``) of the problem: forgotten data could not be deleted completely yet."""


# -------------------------------------------------------------------------------------------------------- on a device


def send_forgotten(machine: Machine, link: Link) -> None:
    """Seal the waiting tombstones for home. Without the key they keep waiting."""
    store = machine.store
    with contextlib.suppress(NotConfiguredError, WatermarkMovedError), store.transaction():
        put_again(store, link, now_ms())
        put_forgotten(store, link, now_ms())


def take_forgotten(machine: Machine, peer: Peer, body: Mapping[str, Any], as_of: int) -> None:
    """Apply what home's state document says of forgetting; name what cannot be understood."""
    try:
        told = read_tombstone_batch(body.get("forgotten"))
    except InvalidRecordError as error:
        record_problem(machine.store, PART, error.message, now_ms())
        return
    if told is not None:
        with machine.store.transaction():
            take_from_home(machine.store, peer, told, now=now_ms(), as_of=as_of)
        clear_problem(machine.store, PART)


def finish_soon(machine: Machine) -> list[str]:
    """Finish pending deletions before anything is published or sent; return what went wrong, in words."""
    try:
        finish_forgetting(machine)
    except StoreDamagedError:
        raise
    except CrystalError as error:  # the next run does the rest
        record_problem(machine.store, FINISHING, error.message, now_ms())
        return [f"forgotten data is not deleted everywhere yet: {error.message}"]
    clear_problem(machine.store, FINISHING)
    return []


# ---------------------------------------------------------------------------------------------------------- standing


def unconfirmed(store: Store) -> dict[str, Any]:
    """Return which deletions other machines have not confirmed: on a device its home, at home its ``devices``.

    Each has how many (``count``) and when the oldest was made (``since``, ms), as the JSON output shows them.
    """
    count, since = count_unconfirmed(store) if home_peer(store) is not None else (0, None)
    devices = [
        {"name": peer.name, **dict(zip(("count", "since"), found, strict=True))}
        for peer in all_peers(store, "device")
        if peer.revoked_at is None and (found := behind(store, peer.told)) is not None
    ]
    return {"count": count, "since": since, "devices": devices}


def unconfirmed_words(found: Mapping[str, Any], ago: Callable[[int | None], str]) -> str | None:
    """Return what ``unconfirmed`` found as one line of text, or None if everything is confirmed."""
    words = [f"{one['name']} has not confirmed {_deletions(one, ago)}" for one in found["devices"]]
    if found["count"]:
        words.append(f"{_deletions(found, ago)} not confirmed by home yet")
    return "; ".join(words) or None


def _deletions(found: Mapping[str, Any], ago: Callable[[int | None], str]) -> str:
    count, since = found["count"], ago(found["since"])
    return f"{count:,} deletion{'' if count == 1 else 's'} ({'the oldest of ' if count > 1 else ''}{since})"
