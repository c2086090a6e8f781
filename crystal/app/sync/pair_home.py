"""Pairing as the home machine sees it: a code through the relay's mailbox, one string without it, or one shared root.

Home writes a device down before it hands the bundle over, under a name that says so, and gives it its own name with
the answer. So a crash in between leaves a device that can be seen and revoked, never a token that nobody knows of.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from crystal.app.context import Machine, now_ms
from crystal.app.relay_links import key_places, relay_address, relay_keys
from crystal.app.sync.devices import retry_revocations
from crystal.app.sync.handover import device_scopes
from crystal.app.sync.names import UNFINISHED, agent_for, checked_name, clean_name, free_name
from crystal.app.sync.pair_mailbox import Mailbox
from crystal.errors import CrystalError, NotConfigured, UsageProblem
from crystal.store.sync import relay_peers
from crystal.store.sync.relay_peers import NewLink, Peer, all_peers
from crystal.sync.client import RelayClient
from crystal.sync.keys.bundle import Answer, Bundle, digest_of
from crystal.sync.keys.codes import new_code
from crystal.sync.keys.derive import Random, device_secret, new_root, shared_device_id, shared_prefix
from crystal.sync.keys.forms import RelayKey
from crystal.sync.keys.offline import format_offline
from crystal.sync.keys.pairing import HomePairing
from crystal.sync.keys.places import KeyMissing, write_key
from crystal.sync.keys.words import words_of_bits

JOIN_PREFIX = "crystal-join:"
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----")


@dataclass(frozen=True, slots=True)
class Invitation:
    """What is carried to the device: the code, and code and relay in one string for the QR code."""

    code: str
    joined: str


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
    secret: str | None = None

    def __repr__(self) -> str:
        return f"Paired({self.peer.name!r})"


@dataclass(frozen=True, slots=True)
class Offer:
    """The data that every device of this home gets, and the root."""

    root: bytes
    url: str
    ca: str | None
    home_name: str

    def __repr__(self) -> str:
        return f"Offer({self.url!r})"


# --------------------------------------------------------------------------------------------------- through the relay


def pair(
    machine: Machine,
    client: RelayClient,
    *,
    show: Callable[[Invitation], None],
    tell: Callable[[str], None],
    name: str | None = None,
    random: Random = os.urandom,
) -> Paired:
    """Pair a device over the relay's mailbox: one code, one attempt.

    Args:
        machine: The home machine.
        client: The relay, with home's token.
        show: Given the code as soon as the mailbox is open.
        tell: Called with each step, in words.
        name: What the device is to be called; it names itself when not given.
        random: Fresh random bytes.

    Raises:
        PairingFailed: Wrong code, a message that was changed, a device that gave up. Nothing is left behind.
        RelayUnavailable, RelayDenied: The relay cannot be asked.
        UsageProblem, NotConfigured: This machine is no home, or something of it cannot be used.
    """
    offer = prepare(machine)
    if name is not None:
        checked_name(name)
    nameplate = client.open_mailbox()
    mailbox = Mailbox(client, nameplate, "a")
    ended = False
    try:
        code = new_code(nameplate, random)
        pairing = HomePairing(code, random)
        mailbox.send("hello", pairing.hello())
        show(Invitation(code.text, joined_string(code.text, offer.url)))
        confirm = pairing.take_hello(mailbox.receive("hello"))
        tell("a device has answered")
        mailbox.send("confirm", confirm)
        pairing.take_confirm(mailbox.receive("confirm"))
        tell("it has the right code")
        paired = _hand_over(machine, mailbox, pairing, offer, name, random)
        with contextlib.suppress(CrystalError):
            mailbox.send("done", b"done")
            ended = True  # the device closes the mailbox when it has read this
        return paired
    finally:
        if not ended:
            with contextlib.suppress(CrystalError):
                client.close_mailbox(nameplate)


def _hand_over(
    machine: Machine, mailbox: Mailbox, pairing: HomePairing, offer: Offer, name: str | None, random: Random
) -> Paired:
    device_id = random(16)
    bundle, peer = _admit(machine, mailbox.client, offer, device_id, f"{UNFINISHED}{device_id.hex()[:8]}", random, name)
    try:
        mailbox.send("bundle", pairing.give_bundle(bundle))
        answer = pairing.take_answer(mailbox.receive("answer"))
        named, notes = _settle(machine, peer, answer, name)
    except BaseException:
        withdraw(machine, mailbox.client, peer)
        raise
    return Paired(named, pairing.words, notes)


def _settle(machine: Machine, peer: Peer, answer: Answer, wanted: str | None) -> tuple[Peer, tuple[str, ...]]:
    """Give the device its name and its agent, neither of which another one has."""
    store = machine.store
    asked = wanted or answer.device_name
    with store.transaction():
        name = free_name(store, asked, machine.config.device)
        agent = agent_for(store, peer, answer.agent_id, name, machine.config.agent_id)
        relay_peers.settle_peer(store, peer.id, name, agent)
    notes = []
    if name != asked:
        notes.append(f"another machine is called {asked}: this device is {name} here")
    if agent != answer.agent_id:
        notes.append(f"agent id {answer.agent_id} is another machine's: what this device says is kept under {agent}")
    return relay_peers.peer_by_id(store, peer.id), tuple(notes)


# ---------------------------------------------------------------------------------------------------------- by hand


def pair_offline(machine: Machine, client: RelayClient, *, name: str | None, random: Random = os.urandom) -> Paired:
    """Make a device and the string that makes another machine this device. Whoever has the string is the device.

    Raises:
        RelayUnavailable, RelayDenied: The relay cannot be asked: it makes the device's token.
        UsageProblem, NotConfigured: This machine is no home, or the name cannot be used.
    """
    offer = prepare(machine)
    asked = checked_name(name) if name is not None else "device"
    given = free_name(machine.store, asked, machine.config.device)
    bundle, peer = _admit(machine, client, offer, random(16), given, random, given)
    notes = (f"another machine is called {asked}: this device is {given}",) if name and given != asked else ()
    return Paired(peer, words_of_bundle(bundle), notes, format_offline(bundle))


def pair_again(machine: Machine, client: RelayClient, name: str) -> Paired:
    """Give a device a new token, where the relay has lost the old one: the same keys and streams, in one string.

    Raises:
        RelayUnavailable, RelayDenied: The relay cannot be asked: it makes the device's token.
        UsageProblem, NotConfigured: This machine is no home, or has no such device, or it was revoked.
    """
    offer = prepare(machine)
    peer = relay_peers.find_peer(machine.store, name)
    if peer.revoked_at is not None:
        raise UsageProblem(f"{peer.name} was revoked", hint="let it join as a new device: crystal relay pair")
    made = client.make_token(_label(peer.up_prefix), device_scopes(peer.up_prefix, peer.down_prefix))
    if peer.token_id is not None:
        with contextlib.suppress(CrystalError):
            client.revoke_token(peer.token_id)
    with machine.store.transaction():
        relay_peers.set_token(machine.store, peer.id, made.id)
    bundle = Bundle(
        url=offer.url,
        token=made.token,
        device_id=peer.device_id,
        generation=peer.accepted_from,
        device_secret=device_secret(offer.root, peer.device_id, peer.accepted_from),
        up_prefix=peer.up_prefix,
        down_prefix=peer.down_prefix,
        home_name=offer.home_name,
        device_name=peer.name,
        ca=offer.ca,
    )
    notes = ("its former token is worthless now; there: crystal relay join --replace",)
    return Paired(peer, words_of_bundle(bundle), notes, format_offline(bundle))


def pair_shared(machine: Machine, client: RelayClient, name: str) -> Paired:
    """Admit a device that holds the root itself; return the token that it also needs. Each call makes another token.

    Raises:
        RelayUnavailable, RelayDenied: The relay cannot be asked: it makes the device's token.
        UsageProblem, NotConfigured: This machine is no home, or the name cannot be used.
    """
    offer = prepare(machine)
    device_id = shared_device_id(offer.root, checked_name(name))
    known = [peer for peer in relay_peers.all_peers(machine.store, "device") if peer.device_id == device_id]
    if known and known[0].revoked_at is not None:
        raise UsageProblem(f"{known[0].name} was revoked", hint="give the device another name, on both machines")
    if known:
        made = client.make_token(_label(known[0].up_prefix), device_scopes(known[0].up_prefix, known[0].down_prefix))
        before = known[0].token_id
        with machine.store.transaction():
            relay_peers.set_token(machine.store, known[0].id, made.id)
        if before is not None:
            with contextlib.suppress(CrystalError):
                client.revoke_token(before)
        return Paired(known[0], shared_words(offer.root, name), ("its former token is worthless now",), made.token)
    if free_name(machine.store, name, machine.config.device) != name:
        raise UsageProblem(f"another machine is called {name}", hint="choose another name, the same on both machines")
    bundle, peer = _admit(machine, client, offer, device_id, name, os.urandom, name, is_shared=True)
    return Paired(peer, shared_words(offer.root, name), (), bundle.token)


# ---------------------------------------------------------------------------------------------------------- the parts


def prepare(machine: Machine) -> Offer:
    """Return what pairing needs before any request is made; create the root if this home has none yet.

    Raises:
        NotConfigured: This machine is no home, or has no relay.
        UsageProblem: The certificate file cannot be sent.
    """
    role = machine.config.role
    if role != "home":
        hint = "run this on the home machine" if role == "device" else "first: crystal init --role home --relay URL"
        raise NotConfigured(f"this machine is {_article(role)}, not the home of others", hint=hint)
    home_name = clean_name(machine.config.device) or "home"
    return Offer(_root(machine), relay_address(machine), _authority(machine), home_name)


def _article(role: str) -> str:
    return "a device" if role == "device" else role


def _root(machine: Machine) -> bytes:
    try:
        return relay_keys(machine).root
    except KeyMissing as error:
        if all_peers(machine.store):
            hint = "put it back from the paper: crystal relay key --restore"
            raise NotConfigured("this home has devices, but its root key is gone", hint=hint) from error
    root = new_root(os.urandom)
    write_key(key_places(machine), RelayKey("root", root))
    return root


def _authority(machine: Machine) -> str | None:
    path = machine.config.relay_ca_file
    if path is None:
        return None
    try:
        text = Path(path).read_text("utf-8", "replace")
    except OSError as error:
        raise NotConfigured(f"{path}: {(error.strerror or str(error)).lower()}", hint="see relay.ca_file") from error
    found = _CERTIFICATE.findall(text)
    if not found:
        raise UsageProblem(f"{path} holds no certificate in PEM", hint="see relay.ca_file")
    authority = "\n".join(found) + "\n"
    if len(authority) > MAX_AUTHORITY:
        hint = "name a file with the authority's own certificate, nothing else"
        raise UsageProblem(f"{path} is too large to be handed to a device", hint=hint)
    return authority


MAX_AUTHORITY = 12_000


def _admit(
    machine: Machine,
    client: RelayClient,
    offer: Offer,
    device_id: bytes,
    name: str,
    random: Random,
    proposed: str | None,
    *,
    is_shared: bool = False,
) -> tuple[Bundle, Peer]:
    """Make the device's token and write the device down; from then on what it seals is taken."""
    up = shared_prefix(offer.root, device_id, "up") if is_shared else random(8)
    down = shared_prefix(offer.root, device_id, "down") if is_shared else random(8)
    made = client.make_token(_label(up), device_scopes(up, down))
    try:
        bundle = Bundle(
            url=offer.url,
            token=made.token,
            device_id=device_id,
            generation=1,
            device_secret=device_secret(offer.root, device_id, 1),
            up_prefix=up,
            down_prefix=down,
            home_name=offer.home_name,
            device_name=proposed or "",
            ca=offer.ca,
        )
        link = NewLink(device_id, "device", name, None, 1, up, down, made.id)
        with machine.store.transaction():
            ident = relay_peers.add_peer(machine.store, link, now_ms())
    except BaseException:
        with contextlib.suppress(CrystalError):
            client.revoke_token(made.id)
        raise
    return bundle, relay_peers.peer_by_id(machine.store, ident)


def withdraw(machine: Machine, client: RelayClient, peer: Peer) -> None:
    """Take back a device whose pairing failed; while the relay cannot be asked it stays, revoked."""
    with machine.store.transaction():
        relay_peers.set_revoked(machine.store, peer.id, now_ms())
    retry_revocations(machine, client)


def _label(up: bytes) -> str:
    """Return the label that the relay's operator sees: nothing that they do not see anyway."""
    return f"device {up.hex()[:8]}"


# ---------------------------------------------------------------------------------------------------------- strings


def joined_string(code: str, url: str) -> str:
    """Join code and address into one string; in capitals (a smaller QR code) where case does not matter."""
    text = f"{JOIN_PREFIX}{code}:{url}"
    has_path = "/" in url.partition("://")[2].rstrip("/")
    return text if has_path else text.rstrip("/").upper()


def words_of_bundle(bundle: Bundle) -> tuple[str, ...]:
    """Return four words for a bundle that was carried by hand."""
    return words_of_bits(digest_of(bundle), 4)


def shared_words(root: bytes, name: str) -> tuple[str, ...]:
    """Return four words that are equal where root and name are equal; made from ids that are not secret."""
    device_id = shared_device_id(root, name)
    return words_of_bits(shared_prefix(root, device_id, "up"), 4)
