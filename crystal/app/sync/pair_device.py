"""Joining as the device sees it: read what home shows, take the bundle, keep it, tell home.

A pairing over which home was never heard does not count as one: joining again takes its place.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from crystal.app.context import Machine
from crystal.app.relay_links import key_places
from crystal.app.sync.install_keys import is_leftover, keep, take_back
from crystal.app.sync.names import clean_name
from crystal.app.sync.pair_home import JOIN_PREFIX, shared_ids, words_of_bundle
from crystal.app.sync.pair_mailbox import PairingMailbox
from crystal.errors import CrystalError, UsageError
from crystal.install.setup_plan import proposed_agent
from crystal.store.sync.relay_peers import all_peers
from crystal.sync.address import is_loopback, parse_address
from crystal.sync.client import RelayClient
from crystal.sync.keys.bundle import (
    OFFLINE_PREFIX,
    Bundle,
    BundleReceipt,
    decode_bundle,
    digest_of,
    encode_answer,
    parse_offline,
)
from crystal.sync.keys.derive import Random, device_secret
from crystal.sync.keys.forms import RelayKey
from crystal.sync.keys.pairing import PairingError
from crystal.sync.keys.places import KeyMissingError, KeyPlaces, RelayToken, check_writable, read_key, read_token
from crystal.sync.keys.word_codes import PairingCode, parse_code, words_of_bits

DONE_SECONDS = 30.0
"""How long a device waits to hear that home has its answer."""


@dataclass(frozen=True, slots=True)
class Invited:
    """What the user gave: a code with or without the relay's address, or a whole bundle."""

    code: PairingCode | None = None
    url: str | None = None
    bundle: Bundle | None = None


@dataclass(frozen=True, slots=True)
class Joined:
    """What became of it.

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


def read_invitation(text: str) -> Invited:
    """Read what home showed: the code, the string of its QR code, or that of an offline pairing.

    The relay's address may stand in a line of its own after the code.

    Raises:
        UsageError: It is none of them.
    """
    first, _, rest = text.strip().partition("\n")
    if "://" in rest and ":" not in first:
        return Invited(parse_code(first), rest.strip())
    word = "".join(text.split())
    if word.lower().startswith(OFFLINE_PREFIX):
        return Invited(bundle=parse_offline(word))
    if word.lower().startswith(JOIN_PREFIX):
        word = word if any(letter.islower() for letter in word) else word.lower()
        code, colon, url = word[len(JOIN_PREFIX) :].partition(":")
        if not colon or not url:
            raise UsageError("the string of the QR code is cut off", hint="copy it again, whole")
        return Invited(parse_code(code), url)
    return Invited(parse_code(text))


# ---------------------------------------------------------------------------------------------------------- joining


def join(
    machine: Machine,
    client: RelayClient,
    code: PairingCode,
    *,
    url: str,
    tell: Callable[[str], None],
    over: bool = False,
    random: Random = os.urandom,
) -> Joined:
    """Join over the relay's mailbox; ``client`` has a claim of its own, at ``url``. One attempt.

    Raises:
        PairingError: Wrong code, a message that was changed, a home that gave up. What was captured here is kept.
        MailboxTakenError: Somebody else was first with this number.
        NotAtRelayError: There is no pairing with this number.
        UsageError, NotConfiguredError: This machine cannot join; see ``check_free``.
    """
    check_free(machine, over=over)
    client.claim_mailbox(code.nameplate)
    mailbox = PairingMailbox(client, code, "b", random)
    role = machine.config.role
    try:
        for _ in ("hello", "confirm"):
            mailbox.take()
            mailbox.send()
        tell("the code is right")
        given = decode_bundle(mailbox.take())
        bundle = _as_seen_from_here(machine, given, url)
        kept = keep(machine, bundle, over=over, key=bundle.key, token=RelayToken(bundle.token))
        name = bundle.device_name or clean_name(machine.config.device) or "device"
        mailbox.send(encode_answer(BundleReceipt(name, proposed_agent(machine.config), digest_of(given))))
    except BaseException:
        mailbox.give_up()
        take_back(machine, role)
        raise
    confirmed = _wait_for_home(machine, mailbox, role)
    return Joined(kept.home, bundle.url, mailbox.pairing.words, confirmed, kept.past, kept.notes)


def join_offline(machine: Machine, bundle: Bundle, *, over: bool = False) -> Joined:
    """Join with a bundle that was carried by hand. Doing it twice changes nothing.

    Raises:
        UsageError, NotConfiguredError: This machine cannot join; see ``check_free``.
    """
    check_free(machine, over=over, same=bundle.key)
    bundle = _as_seen_from_here(machine, bundle, bundle.url)
    kept = keep(machine, bundle, over=over, key=bundle.key, token=RelayToken(bundle.token))
    return Joined(kept.home, bundle.url, words_of_bundle(bundle), None, kept.past, kept.notes)


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
    found = key or read_key(places).key
    if found.kind != "root":
        raise UsageError("the key here is one device's, not a root", hint="give home's root on standard input")
    _refuse_home(machine)
    if key is not None:
        check_free(machine, over=over, same=key)
    device_id, up, down = shared_ids(found.secret, name)
    secret = device_secret(found.secret, device_id, 1)
    bundle = Bundle(url, (token or read_token(places)).reveal(), device_id, 1, secret, up, down, "home", name)
    kept = keep(machine, bundle, over=over, key=key, token=token)
    return Joined(kept.home, url, words_of_bits(up, 4), None, kept.past, kept.notes)


def check_free(machine: Machine, *, over: bool, same: RelayKey | None = None) -> None:
    """Refuse before anything is asked or spent what would fail at the end.

    Raises:
        UsageError: This machine is the home of others, or has a key that is in use and ``over`` is not given.
        NotConfiguredError: The key is read from a place that crystal does not write.
    """
    _refuse_home(machine)
    places = key_places(machine)
    check_writable(places, "unset it and join again, or share one root on all machines: crystal relay join --shared")
    try:
        key = read_key(places).key
    except KeyMissingError:
        _refuse_token(places, over=over)
        return
    if over or key == same or is_leftover(machine.store, key):
        return
    what = "a root key" if key.kind == "root" else "the key of a pairing that is in use"
    raise UsageError(f"this machine has {what} already", hint="to replace it: --replace (a backup is kept)")


def _refuse_token(places: KeyPlaces, *, over: bool) -> None:
    """Refuse where a token is kept that belongs to no key: the user put it there."""
    with contextlib.suppress(KeyMissingError):
        source = read_token(places).source
        if not over:
            hint = "to replace it: --replace (a backup is kept)"
            raise UsageError(f"this machine has a relay token already: {source}", hint=hint)


def _refuse_home(machine: Machine) -> None:
    devices = [peer for peer in all_peers(machine.store, "device") if peer.revoked_at is None]
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
        take_back(machine, role)
        hint = "see what home says, then start over with a new code: crystal relay pair"
        raise PairingError("gone", "home ended the pairing", hint=hint) from error
    except CrystalError:
        return False
    mailbox.close()
    return True
