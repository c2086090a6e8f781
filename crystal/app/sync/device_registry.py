"""Home's own list of devices, sealed and stored at the relay so that a lost home can be replaced.

With the paper key a new home reads it and continues with the same devices. It names them and their keys' generations;
it holds no key.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from crystal.app.context import Machine, now_ms
from crystal.store import Store
from crystal.store.json_columns import read_json_note
from crystal.store.notes import write_note
from crystal.store.sync.relay_peers import Peer, digest_of
from crystal.sync.client import RelayClient
from crystal.sync.documents import Document, newest_documents, read_document
from crystal.sync.envelope.blob import Channel, open_blob, seal
from crystal.sync.envelope.link import LinkKeys, link_keys
from crystal.sync.envelope.packing import PayloadKind
from crystal.sync.envelope.refusals import EnvelopeError
from crystal.sync.handover import KnownDevice, known_devices
from crystal.sync.keys.derive import device_secret, shared_prefix

_KEY = "relay_registry"
_IGNORED = "relay_ignored"
HOME_ITSELF = bytes(16)
"""The device id under which home seals what is for home."""


def _keys(root: bytes) -> LinkKeys:
    return link_keys(device_secret(root, HOME_ITSELF, 1), "up")


def own_prefix(root: bytes) -> bytes:
    """Return the first 8 bytes of the streams that home writes for itself."""
    return shared_prefix(root, HOME_ITSELF, "up")


def ignore_streams(store: Store, peer: Peer) -> None:
    """Remember which streams this machine and its old home wrote: a new home need not read them. In a transaction."""
    known = read_json_note(store, _IGNORED) or []
    write_note(store, _IGNORED, json.dumps([*known, peer.up_prefix.hex(), peer.down_prefix.hex()]))


def ignored_prefixes(store: Store, root: bytes) -> frozenset[bytes]:
    """Return the first 8 bytes of streams that home does not read: those it writes, and those noted as ignored."""
    once = [bytes.fromhex(one) for one in read_json_note(store, _IGNORED) or ()]
    return frozenset([own_prefix(root), *once])


def save_registry(machine: Machine, client: RelayClient, root: bytes, heads: Mapping[bytes, int] | None = None) -> None:
    """Upload the list if it has changed, or the relay has lost it.

    Each list is the only blob of a stream of its own, so that no count can be lost by a crash or a backup.

    Args:
        machine: The home machine.
        client: The relay.
        root: The root key.
        heads: The newest number that the relay lists of each stream; None if it was not asked.
    """
    store = machine.store
    devices = [replace(one, streams=()) for one in known_devices(store, but=HOME_ITSELF)]
    body = {"devices": msgspec.to_builtins(devices)}
    state: dict[str, Any] = read_json_note(store, _KEY) or {}
    before = bytes.fromhex(state.get("stream", ""))
    is_lost = heads is not None and not heads.get(before)
    if state.get("digest") == digest_of(body) and not is_lost:
        return
    now = now_ms()
    serial, stream = max(now, int(state.get("serial", 0)) + 1), own_prefix(root) + os.urandom(8)
    document = json.dumps({"serial": serial, "as_of": now, "body": body}).encode()
    client.put(stream, 1, _sealed(root, document, stream, now))
    with store.transaction():
        write_note(store, _KEY, json.dumps({"stream": stream.hex(), "serial": serial, "digest": digest_of(body)}))
    if before:
        client.ack(before, 1)


def _sealed(root: bytes, document: bytes, stream: bytes, now: int) -> bytes:
    channel, kind, start, salt = Channel.HEARTBEAT, PayloadKind.CONTROL, bytes(32), os.urandom(32)
    keys = _keys(root)
    return seal(keys, document, channel=channel, kind=kind, stream=stream, seq=1, prev=start, salt=salt, created_at=now)


def read_registry(client: RelayClient, root: bytes) -> tuple[KnownDevice, ...]:
    """Return the devices of the home that has this root; empty if the relay has no list."""
    found = list(read_documents(client, own_prefix(root), _keys(root)))
    newest = max(found, key=lambda document: document.serial, default=None)
    return msgspec.convert([] if newest is None else newest.body["devices"], tuple[KnownDevice, ...])


def read_documents(
    client: RelayClient, prefix: bytes, keys: LinkKeys | Callable[[bytes], LinkKeys | None]
) -> Iterator[Document]:
    """Yield the documents in the streams of a prefix that open with one of the keys."""
    for info in client.streams().streams:
        for blob in newest_documents(client, info) if info.stream[:8] == prefix else ():
            try:
                opened = open_blob(blob.data, keys, channel=blob.channel, stream=info.stream, seq=blob.seq, prev=None)
            except EnvelopeError:
                continue
            yield read_document(opened)
