"""Join a home, on the device: read the code, receive the bundle, store it, confirm it to home.

A pairing over which home was never heard does not count as one: joining again takes its place.

No crash leaves half of what a home gave. What may be written twice is written first: certificate, key, token, settings.
The row of the home machine comes last, in one transaction with the decision to send the past; until it is there this
machine captures as before.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from crystal.app.context import Machine, now_ms
from crystal.app.mirror import device_mirror
from crystal.app.relay_links import key_places, relay_keys
from crystal.app.sync.devices import clean_name, free_name
from crystal.app.sync.pair_home import JOIN_PREFIX, shared_ids, words_of_bundle
from crystal.app.sync.pair_mailbox import PairingMailbox
from crystal.app.sync.roles import take_own_outbox
from crystal.config.edit import set_value, unset_value
from crystal.config.paths import make_private_dir, write_private
from crystal.errors import CrystalError, UsageError
from crystal.install.setup_plan import proposed_agent
from crystal.store import Store
from crystal.store.memories import memories
from crystal.store.sync import outbox, past, relay_peers
from crystal.store.sync.relay_peers import NewLink, Peer, all_peers, devices_in_use
from crystal.sync.address import is_loopback, parse_address
from crystal.sync.client import RelayClient
from crystal.sync.keys.bundle import OFFLINE_PREFIX, Bundle, BundleReceipt, decode_bundle, parse_offline
from crystal.sync.keys.derive import device_secret
from crystal.sync.keys.forms import RelayKey
from crystal.sync.keys.pairing import PairingError
from crystal.sync.keys.places import KeyMissingError, KeyPlaces, RelayToken
from crystal.sync.keys.word_codes import PairingCode, parse_code, words_of_bits

AUTHORITY_FILE = "relay-ca.pem"
REPLACE = "to replace it (a backup is kept): crystal relay join --replace"
DONE_SECONDS = 30.0
"""Time for which a device waits to hear that home has its answer."""


@dataclass(frozen=True, slots=True)
class Invitation:
    """Input of the user: a code with or without the relay's address, or a whole bundle."""

    code: PairingCode | None = None
    url: str | None = None
    bundle: Bundle | None = None


@dataclass(frozen=True, slots=True)
class Joined:
    """Result of joining.

    Attributes:
        home: The home machine as this one calls it.
        url: The relay.
        words: What both sides show.
        confirmed: Whether home said that it has taken the answer; None where nobody is asked.
        past: How many stretches of what is remembered here will be sent.
        notes: What the user should know.
    """

    home: str
    url: str
    words: tuple[str, ...]
    confirmed: bool | None
    past: int
    notes: tuple[str, ...]


# ---------------------------------------------------------------------------------------------------------- reading


def read_invitation(text: str) -> Invitation:
    """Parse what home showed: the code, the string of its QR code, or that of an offline pairing.

    The relay's address may be on a line of its own after the code.

    Raises:
        UsageError: It is none of them.
    """
    first, _, rest = text.strip().partition("\n")
    if "://" in rest and ":" not in first:
        return Invitation(parse_code(first), rest.strip())
    word = "".join(text.split())
    if word.lower().startswith(OFFLINE_PREFIX):
        return Invitation(bundle=parse_offline(word))
    if word.lower().startswith(JOIN_PREFIX):
        word = word if any(letter.islower() for letter in word) else word.lower()
        code, colon, url = word[len(JOIN_PREFIX) :].partition(":")
        if not colon or not url:
            raise UsageError("the string of the QR code is cut off", hint="copy it again, whole")
        return Invitation(parse_code(code), url)
    return Invitation(parse_code(text))


# ---------------------------------------------------------------------------------------------------------- joining


def join(
    machine: Machine,
    client: RelayClient,
    code: PairingCode,
    *,
    url: str,
    tell: Callable[[str], None],
    over: bool = False,
) -> Joined:
    """Join over the relay's mailbox; ``client`` reaches ``url`` with a claim of its own. One attempt.

    Raises:
        PairingError: Wrong code, a message that was changed, a home that gave up. What was captured here is kept.
        MailboxTakenError: Somebody else was first with this number.
        NotAtRelayError: There is no pairing with this number.
        UsageError, NotConfiguredError: This machine cannot join; see ``check_free``.
    """
    check_free(machine, over=over)
    client.claim_mailbox(code.nameplate)
    mailbox = PairingMailbox(client, code, "b")
    role = machine.config.role
    try:
        for _ in ("hello", "confirm"):
            mailbox.take()
            mailbox.send()
        tell("the code is right")
        given = decode_bundle(mailbox.take())
        bundle = _as_seen_from_here(machine, given, url)
        joined = keep(machine, bundle, over=over, key=bundle.key, token=RelayToken(bundle.token))
        name = bundle.device_name or clean_name(machine.config.device) or "device"
        mailbox.send(BundleReceipt(name, proposed_agent(machine.config), given.digest).encode())
    except BaseException:
        mailbox.give_up()
        undo_join(machine, role)
        raise
    confirmed = _wait_for_home(machine, mailbox, role)
    return replace(joined, words=mailbox.pairing.words, confirmed=confirmed)


def join_offline(machine: Machine, bundle: Bundle, *, over: bool = False) -> Joined:
    """Join with a bundle that was carried by hand. Doing it twice changes nothing.

    Raises:
        UsageError, NotConfiguredError: This machine cannot join; see ``check_free``.
    """
    check_free(machine, over=over, same=bundle.key)
    bundle = _as_seen_from_here(machine, bundle, bundle.url)
    token = RelayToken(bundle.token)
    return keep(machine, bundle, words_of_bundle(bundle), over=over, key=bundle.key, token=token)


def join_shared(
    machine: Machine, url: str, name: str, *, key: RelayKey | None, token: RelayToken | None, over: bool = False
) -> Joined:
    """Join with the root that all machines share.

    Args:
        machine: This machine.
        url: The relay's address.
        name: What home calls this machine: ``crystal relay pair --shared NAME``.
        key: The root; None takes the one that is kept here.
        token: The token that home showed; None takes the one that is kept here.
        over: Put them in the place of others; those stay beside them.

    Raises:
        UsageError, NotConfiguredError: This machine cannot join, or one of the two is missing.
    """
    parse_address(url, allow_insecure=machine.config.relay_insecure_http)
    places = key_places(machine)
    found = key or places.read_key().key
    if found.kind != "root":
        raise UsageError("the key here is one device's, not a root", hint="give home's root on standard input")
    _refuse_home(machine)
    if key is not None:
        check_free(machine, over=over, same=key)
    device_id, up, down = shared_ids(found.secret, name)
    secret = device_secret(found.secret, device_id, 1)
    bundle = Bundle(url, (token or places.read_token()).reveal(), device_id, 1, secret, up, down, "home", name)
    return keep(machine, bundle, words_of_bits(up, 4), over=over, key=key, token=token)


def check_free(machine: Machine, *, over: bool, same: RelayKey | None = None) -> None:
    """Check that this machine can join, before a request is made or a code is used up.

    Raises:
        UsageError: This machine is the home of others, or has a key that is in use and ``over`` is not given.
        NotConfiguredError: The key is read from a place that crystal does not write.
    """
    _refuse_home(machine)
    places = key_places(machine)
    places.check_writable("unset it and join again, or share one root on all machines: crystal relay join --shared")
    try:
        key = places.read_key().key
    except KeyMissingError:
        _refuse_token(places, over=over)
        return
    if over or key == same or is_leftover(machine.store, key):
        return
    what = "a root key" if key.kind == "root" else "the key of a pairing that is in use"
    raise UsageError(f"this machine has {what} already", hint=REPLACE)


def _refuse_token(places: KeyPlaces, *, over: bool) -> None:
    """Refuse to replace a token without a key, which the user stored here, unless ``over`` is given."""
    with contextlib.suppress(KeyMissingError):
        source = places.read_token().source
        if not over:
            raise UsageError(f"this machine has a relay token already: {source}", hint=REPLACE)


def _refuse_home(machine: Machine) -> None:
    devices = devices_in_use(machine.store)
    if machine.config.role == "home" and devices:
        names = ", ".join(peer.name for peer in devices[:5])
        hint = f"hand them over first: crystal demote --to NAME (its devices: {names})"
        raise UsageError("this machine is the home of others", hint=hint)


def _as_seen_from_here(machine: Machine, bundle: Bundle, url: str) -> Bundle:
    """Return the bundle with an address that this machine can use: home's, unless that means home itself.

    Home's address overrides the one typed here: it came sealed, and the token goes to this address.

    Raises:
        UsageError: The address is one that a token must not be sent to.
    """
    theirs = parse_address(bundle.url, allow_insecure=machine.config.relay_insecure_http)
    ours = parse_address(url, allow_insecure=machine.config.relay_insecure_http)
    return replace(bundle, url=ours.base) if is_loopback(theirs.host) and not is_loopback(ours.host) else bundle


def joining_client(machine: Machine, url: str, ca_file: Path | None = None) -> RelayClient:
    """Return a relay client without a token, with a claim made for this one pairing. The caller closes it."""
    known = machine.config.relay_ca_file
    ca = ca_file or (Path(known) if known else None)
    insecure = machine.config.relay_insecure_http
    return RelayClient(url, None, claim=os.urandom(32), ca_file=ca, allow_insecure=insecure)


def _wait_for_home(machine: Machine, mailbox: PairingMailbox, role: str) -> bool:
    """Wait until home says that it has the answer; False when it is not heard, which may be the relay's fault.

    Raises:
        PairingError: Home ended the pairing after all; this machine is as it was before.
    """
    try:
        mailbox.receive("done", DONE_SECONDS)
    except PairingError as error:
        if error.code != "gone":
            return False
        undo_join(machine, role)
        hint = "see what home says, then start over with a new code: crystal relay pair"
        raise PairingError("gone", "home ended the pairing", hint=hint) from error
    except CrystalError:
        return False
    mailbox.close()
    return True


# ---------------------------------------------------------------------------------------------------------- keeping


def is_leftover(store: Store, key: RelayKey) -> bool:
    """Return True if a key is left from a pairing that was never completed: home was not heard over it."""
    own = [peer for peer in all_peers(store, "home") if peer.device_id == key.device_id]
    return key.kind == "device" and all(peer.heard_at is None for peer in own)


def keep(
    machine: Machine,
    bundle: Bundle,
    words: tuple[str, ...] = (),
    *,
    over: bool,
    key: RelayKey | None,
    token: RelayToken | None,
) -> Joined:
    """Store a bundle. It can be done again after a crash at any point, with this bundle or another one.

    Args:
        machine: The device.
        bundle: What home gave.
        words: What both sides show.
        over: Put key and token in the place of others; those stay beside them.
        key: The key to store: the bundle's or a shared root; None where it is kept already.
        token: The same for the token.
    """
    places, file = key_places(machine), machine.places.config_file
    notes = _keep_authority(machine, bundle)
    with contextlib.suppress(KeyMissingError):
        over = over or is_leftover(machine.store, places.read_key().key)
    written = [places.write_key(key, replace=over)] if key is not None else []
    written += [places.write_token(token, replace=over)] if token is not None else []
    notes += [f"the former key is kept in {one.backup}" for one in written if one.backup]
    set_value(file, "relay.url", bundle.url)
    set_value(file, "role", "device")
    # The last manifest of another home does not apply to this one: its serial numbers start over.
    device_mirror(machine.places).memo.unlink(missing_ok=True)
    home, past = _write_home(machine, bundle, key)
    return Joined(home, bundle.url, words, None, past, tuple(notes))


def _keep_authority(machine: Machine, bundle: Bundle) -> list[str]:
    path, file = machine.places.data_dir / AUTHORITY_FILE, machine.places.config_file
    if bundle.ca is not None:
        make_private_dir(path.parent)
        write_private(path, bundle.ca.encode("ascii"))
        set_value(file, "relay.ca_file", str(path))
        return [f"connections to the relay trust its own certificate authority: {path}"]
    if machine.config.relay_ca_file is not None and Path(machine.config.relay_ca_file) == path:
        unset_value(file, "relay.ca_file")
    return []


def _write_home(machine: Machine, bundle: Bundle, key: RelayKey | None) -> tuple[str, int]:
    """Record home and queue the past in one transaction; return home's name here and the amount of the past."""
    store = machine.store
    homes = all_peers(store, "home")
    known = next((peer for peer in homes if peer.device_id == bundle.device_id), None)
    former = [(peer, _take_in(machine, peer)) for peer in homes if peer != known]
    with store.transaction():
        for peer, is_taken in former:
            if is_taken:
                relay_peers.remove_peer(store, peer.id)
            else:
                relay_peers.set_revoked(store, peer.id, now_ms())
        if known is None:
            name = _add_home(machine, bundle)
        else:
            name = known.name
            relay_peers.set_fields(store, known.id, revoked_at=None)
            if key is not None and key.kind == "device":  # a root gives the keys of all generations
                relay_peers.set_generation(store, known.id, bundle.generation, bundle.generation)
            if known.heard_at is not None:
                return name, 0
        rows = past.begin(store)
        if not rows and not memories.count_memories(store):
            past.forget_place(store)
    return name, rows


def _add_home(machine: Machine, bundle: Bundle) -> str:
    name = free_name(machine.store, clean_name(bundle.home_name) or "home", machine.config.device)
    up, down = bundle.up_prefix, bundle.down_prefix
    link = NewLink(bundle.device_id, "home", name, None, bundle.generation, up, down)
    relay_peers.add_peer(machine.store, link, now_ms())
    return name


def _take_in(machine: Machine, former: Peer) -> bool:
    """Take what waits for a former home into this machine's own memory; False when a key of it is gone."""
    link = relay_keys(machine).link_to_home(former)
    for stream in outbox.streams(machine.store, former.id):
        if link.keys_of(stream.generation) is None and outbox.kept_from(machine.store, stream.id, 1):
            return False
    take_own_outbox(machine, former)
    return True


def undo_join(machine: Machine, role: str) -> None:
    """Restore the state before a failed pairing. Nothing that was captured meanwhile is lost."""
    home = relay_peers.home_peer(machine.store)
    if home is None or home.heard_at is not None or role == "device":
        return
    _take_in(machine, home)
    with machine.store.transaction():
        relay_peers.set_revoked(machine.store, home.id, now_ms())
    set_value(machine.places.config_file, "role", role)
