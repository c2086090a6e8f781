"""Pair a device, on the home machine: a code through the relay's mailbox, one string without it, or one shared root.

Each way takes a device through the states of docs/spec/pairing.md. It is written down before it gets a token, under a
name that says so, and gets its own name with the answer. So a crash in between leaves a device that can be seen and
revoked, never a token that nobody knows of.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from crystal.app.context import Machine, now_ms
from crystal.app.relay_links import key_places, relay_address, relay_keys
from crystal.app.sync.devices import UNFINISHED, checked_name, clean_name, free_name, give_token, retry_revocations
from crystal.app.sync.pair_mailbox import opened_mailbox
from crystal.errors import NotConfiguredError, UsageError
from crystal.store.sync import relay_peers
from crystal.store.sync.relay_peers import NewLink, Peer, all_peers
from crystal.sync.client import RelayClient
from crystal.sync.keys.bundle import Bundle, BundleReceipt, decode_answer
from crystal.sync.keys.derive import device_secret, new_root, shared_device_id, shared_prefix
from crystal.sync.keys.forms import RelayKey
from crystal.sync.keys.pairing import PairingError
from crystal.sync.keys.places import KeyMissingError
from crystal.sync.keys.word_codes import words_of_bits

JOIN_PREFIX = "crystal-join:"
MAX_AUTHORITY = 12_000
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----")


@dataclass(frozen=True, slots=True)
class Paired:
    """A device that is paired now.

    Attributes:
        peer: The device.
        words: What both sides show.
        notes: What the user should know, such as a name that was taken.
        secret: What is carried to the device by hand: the offline string, or the token; None when nothing is.
    """

    peer: Peer
    words: tuple[str, ...]
    notes: tuple[str, ...] = ()
    secret: str | None = field(default=None, repr=False)


# --------------------------------------------------------------------------------------------------- through the relay


def pair(
    machine: Machine,
    client: RelayClient,
    *,
    show: Callable[[str, str], None],
    tell: Callable[[str], None],
    name: str | None = None,
) -> Paired:
    """Pair a device over the relay's mailbox: one code, one attempt.

    Args:
        machine: The home machine.
        client: The relay, with home's token.
        show: Given the code as soon as the mailbox is open, and code and relay in one string for the QR code.
        tell: Called with each step, in words.
        name: What the device is to be called; it names itself when not given.

    Raises:
        PairingError: Wrong code, a message that was changed, a device that gave up. Nothing is left behind.
        RelayUnavailableError, RelayDeniedError: The relay cannot be asked.
        UsageError, NotConfiguredError: This machine is no home, or something of it cannot be used.
    """
    prepare(machine)
    if name is not None:
        checked_name(name)
    with opened_mailbox(client) as mailbox:
        mailbox.send()
        show(mailbox.code.text, joined_string(mailbox.code.text, relay_address(machine)))
        mailbox.take()
        tell("a device has answered")
        mailbox.send()
        mailbox.take()
        tell("it has the right code")
        with _admitted(machine, client, os.urandom(16), os.urandom(8), os.urandom(8)) as peer:
            bundle = _make_bundle(machine, client, peer, name or "")
            mailbox.send(bundle.encode())
            answer = decode_answer(mailbox.take())
            if not hmac.compare_digest(answer.bundle_digest, bundle.digest):
                raise PairingError("tampered", "the device stored another bundle than it was given")
            paired = _take_answer(machine, peer, answer, name or answer.device_name)
    return replace(paired, words=mailbox.pairing.words)


def _take_answer(machine: Machine, peer: Peer, answer: BundleReceipt, asked: str) -> Paired:
    """Give the device its name and its agent id, changed if another device has one of them."""
    store, config = machine.store, machine.config
    with store.transaction():
        name = free_name(store, asked, config.device)
        agent = relay_peers.take_agent(store, replace(peer, name=name), answer.agent_id, config.agent_id)
        named = relay_peers.set_fields(store, peer.id, name=name, agent=agent)
    notes = []
    if name != asked:
        notes.append(f"the name {asked} is taken: this device is called {name} here")
    if agent != answer.agent_id:
        notes.append(f"agent id {answer.agent_id} belongs to another machine: this device is captured under {agent}")
    return Paired(named, (), tuple(notes))


# ---------------------------------------------------------------------------------------------------------- by hand


def pair_offline(machine: Machine, client: RelayClient, *, name: str | None) -> Paired:
    """Make a device and the string that makes another machine this device. Anyone who has the string is the device.

    Raises:
        RelayUnavailableError, RelayDeniedError: The relay cannot be asked: it makes the device's token.
        UsageError, NotConfiguredError: This machine is no home, or the name cannot be used.
    """
    prepare(machine)
    asked = checked_name(name) if name is not None else "device"
    given = free_name(machine.store, asked, machine.config.device)
    with _admitted(machine, client, os.urandom(16), os.urandom(8), os.urandom(8)) as admitted:
        bundle = _make_bundle(machine, client, admitted, given)
        peer = _settle(machine, admitted, given)
    notes = (f"the name {asked} is taken: this device is called {given}",) if name and given != asked else ()
    return Paired(peer, words_of_bundle(bundle), notes, bundle.format_offline())


def pair_again(machine: Machine, client: RelayClient, name: str) -> Paired:
    """Make a new token for a device whose token the relay has lost; return it with keys and streams as one string.

    Raises:
        RelayUnavailableError, RelayDeniedError: The relay cannot be asked: it makes the device's token.
        UsageError, NotConfiguredError: This machine is no home, or has no such device, or it was revoked.
    """
    prepare(machine)
    peer = relay_peers.find_peer(machine.store, name)
    if peer.revoked_at is not None:
        raise UsageError(f"{peer.name} was revoked", hint="let it join as a new device: crystal relay pair")
    bundle = _make_bundle(machine, client, peer, peer.name)
    notes = ("its former token no longer works; on the device run: crystal relay join --replace",)
    return Paired(peer, words_of_bundle(bundle), notes, bundle.format_offline())


def pair_shared(machine: Machine, client: RelayClient, name: str) -> Paired:
    """Admit a device that holds the root itself; return the token that it also needs. Each call makes another token.

    Raises:
        RelayUnavailableError, RelayDeniedError: The relay cannot be asked: it makes the device's token.
        UsageError, NotConfiguredError: This machine is no home, or the name cannot be used.
    """
    prepare(machine)
    device_id, up, down = shared_ids(relay_keys(machine).root, checked_name(name))
    words = words_of_bits(up, 4)
    known = next((peer for peer in all_peers(machine.store, "device") if peer.device_id == device_id), None)
    if known is None:
        if free_name(machine.store, name, machine.config.device) != name:
            hint = "choose another name, the same on both machines"
            raise UsageError(f"another machine is called {name}", hint=hint)
        with _admitted(machine, client, device_id, up, down) as peer:
            token = give_token(machine, client, peer)
            return Paired(_settle(machine, peer, name), words, (), token)
    if known.revoked_at is not None:
        raise UsageError(f"{known.name} was revoked", hint="give the device another name, on both machines")
    if known.name.startswith(UNFINISHED):  # an earlier run was cut off before it gave the name
        known = _settle(machine, known, free_name(machine.store, name, machine.config.device))
    token = give_token(machine, client, known)
    return Paired(known, words, ("its former token no longer works",), token)


def _settle(machine: Machine, peer: Peer, name: str) -> Peer:
    with machine.store.transaction():
        return relay_peers.set_fields(machine.store, peer.id, name=name, agent=None)


# ---------------------------------------------------------------------------------------------------------- the parts


def prepare(machine: Machine) -> None:
    """Check what pairing needs before any request is made; create the root if this home has none yet.

    Raises:
        NotConfiguredError: This machine is no home, or has no relay.
        UsageError: The certificate file cannot be sent.
    """
    role = machine.config.role
    if role != "home":
        hint = "run this on the home machine" if role == "device" else "first: crystal init --role home --relay URL"
        what = "a device" if role == "device" else role
        raise NotConfiguredError(f"this machine is {what}, not the home of others", hint=hint)
    relay_address(machine)
    _authority(machine)
    try:
        _ = relay_keys(machine).root
    except KeyMissingError as error:
        if all_peers(machine.store):
            hint = "restore it from the paper key: crystal relay key --restore"
            raise NotConfiguredError("this home has devices, but its root key is gone", hint=hint) from error
        key_places(machine).write_key(RelayKey("root", new_root(os.urandom)))


def _authority(machine: Machine) -> str | None:
    path = machine.config.relay_ca_file
    if path is None:
        return None
    try:
        text = Path(path).read_text("utf-8", "replace")
    except OSError as error:
        problem = f"{path}: {(error.strerror or str(error)).lower()}"
        raise NotConfiguredError(problem, hint="see relay.ca_file") from error
    found = _CERTIFICATE.findall(text)
    if not found:
        raise UsageError(f"{path} holds no certificate in PEM", hint="see relay.ca_file")
    authority = "\n".join(found) + "\n"
    if len(authority) > MAX_AUTHORITY:
        hint = "name a file with the authority's own certificate, nothing else"
        raise UsageError(f"{path} is too large to be handed to a device", hint=hint)
    return authority


@contextlib.contextmanager
def _admitted(machine: Machine, client: RelayClient, device_id: bytes, up: bytes, down: bytes) -> Iterator[Peer]:
    """Register a device, so that its blobs are accepted; remove it again if the rest of its pairing fails.

    While the relay cannot be asked, a device that has a token stays, revoked; every poll tries again.
    """
    store = machine.store
    link = NewLink(device_id, "device", f"{UNFINISHED}{device_id.hex()[:8]}", None, 1, up, down)
    with store.transaction():
        ident = relay_peers.add_peer(store, link, now_ms())
    try:
        yield relay_peers.peer_by_id(store, ident)
    except BaseException:
        with store.transaction():
            relay_peers.set_revoked(store, ident, now_ms())
        retry_revocations(machine, client)
        raise


def _make_bundle(machine: Machine, client: RelayClient, peer: Peer, proposed: str) -> Bundle:
    """Make a device's token, and return everything that the device needs."""
    return Bundle(
        url=relay_address(machine),
        token=give_token(machine, client, peer),
        device_id=peer.device_id,
        generation=peer.accepted_from,
        device_secret=device_secret(relay_keys(machine).root, peer.device_id, peer.accepted_from),
        up_prefix=peer.up_prefix,
        down_prefix=peer.down_prefix,
        home_name=clean_name(machine.config.device) or "home",
        device_name=proposed,
        ca=_authority(machine),
    )


# ---------------------------------------------------------------------------------------------------------- strings


def joined_string(code: str, url: str) -> str:
    """Join code and address into one string; in capitals (a smaller QR code) where case does not matter."""
    text = f"{JOIN_PREFIX}{code}:{url}"
    has_path = "/" in url.partition("://")[2].rstrip("/")
    return text if has_path else text.rstrip("/").upper()


def words_of_bundle(bundle: Bundle) -> tuple[str, ...]:
    """Return four words by which a person compares a bundle that was copied by hand."""
    return words_of_bits(bundle.digest, 4)


def shared_ids(root: bytes, name: str) -> tuple[bytes, bytes, bytes]:
    """Return what a machine that holds the root derives from its name: its id, and the first 8 bytes of its streams.

    None of them is secret; the words of such a pairing are made of the second.
    """
    device_id = shared_device_id(root, name)
    return device_id, shared_prefix(root, device_id, "up"), shared_prefix(root, device_id, "down")
