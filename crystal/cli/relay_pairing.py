"""Implement ``crystal relay pair`` and ``join``. Secrets are read from standard input, never from arguments."""

from __future__ import annotations

import contextlib
import functools
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from crystal.app.context import Machine, open_kept_machine, open_machine
from crystal.app.relay_links import key_places, relay_address, relay_client
from crystal.cli.options import flag, option
from crystal.cli.render import note, one_line, say
from crystal.errors import UsageError
from crystal.sync.address import is_loopback, parse_address
from crystal.sync.errors import NotAtRelayError
from crystal.sync.keys.bundle import OFFLINE_PREFIX
from crystal.sync.keys.forms import parse_key
from crystal.sync.keys.places import KeyMissingError, RelayToken

if TYPE_CHECKING:  # imports SPAKE2, which only pairing needs
    from crystal.app.sync.pair_device import Invitation, Joined
    from crystal.app.sync.pair_home import Paired

MAX_TYPED = 65_536


def pair(
    name: Annotated[str | None, option("The device's name; by default it chooses one.", "NAME")] = None,
    offline: Annotated[bool, flag("Print one string for the device; do not wait for it.", "--offline")] = False,
    again: Annotated[str | None, option("Give a known device a new token, in one string.", "NAME")] = None,
    shared: Annotated[str | None, option("Add a device that has the root key; print its token.", "NAME")] = None,
) -> None:
    """Let another machine join this home: show a code, valid for ten minutes and one attempt."""
    from crystal.app.sync import pair_home

    if shared is not None and (offline or name is not None):
        raise UsageError("--shared goes alone", hint="crystal relay pair --shared NAME")
    if again is not None and (offline or name is not None or shared is not None):
        raise UsageError("--again goes alone", hint="crystal relay pair --again NAME")
    with open_kept_machine() as machine:
        pair_home.prepare(machine)
        _note_loopback(machine)
        with relay_client(machine) as client:
            if shared is not None:
                _say_shared(pair_home.pair_shared(machine, client, shared), machine)
            elif again is not None:
                _say_offline(pair_home.pair_again(machine, client, again))
            elif offline:
                _say_offline(pair_home.pair_offline(machine, client, name=name))
            else:
                show = functools.partial(_show, relay_address(machine))
                _say_paired(pair_home.pair(machine, client, name=name, show=show, tell=note))


def _note_loopback(machine: Machine) -> None:
    url = machine.config.relay_url
    if url is not None and is_loopback(parse_address(url, allow_insecure=True).host):
        note(f"{url} reaches only this machine; other devices need a tunnel to it, or a relay with a public name")


def _show(url: str, code: str, joined: str) -> None:
    say(f"code: {code}", "")
    _draw(joined)
    say(f"on the device run: crystal relay join --relay {url}", stream=sys.stderr)
    say("waiting for it, at most ten minutes; Ctrl-C cancels", stream=sys.stderr)
    sys.stdout.flush()


def _draw(text: str) -> None:
    """Print a QR code if standard output is a terminal that can show it."""
    from crystal.cli.qr import qr_ansi, qr_text

    if not sys.stdout.isatty() or not (sys.stdout.encoding or "").lower().startswith("utf"):
        return
    plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    say(qr_text(text) if plain else qr_ansi(text), "")


def _say_paired(paired: Paired) -> None:
    name = one_line(paired.peer.name)
    say(f"paired: {name}, agent {paired.peer.agent}")
    say(f"words:  {' '.join(paired.words)}")
    say(f"the device shows the same four words; if not: crystal devices revoke {shlex.quote(name)}", stream=sys.stderr)
    note(*paired.notes)


def _say_offline(paired: Paired) -> None:
    secret = str(paired.secret)
    say(secret)
    _draw(secret.upper())
    _say_how(paired, f"anyone with it can join as {one_line(paired.peer.name)}; give it to: crystal relay join")


def _say_shared(paired: Paired, machine: Machine) -> None:
    name, relay = one_line(paired.peer.name), str(machine.config.relay_url)
    command = shlex.join(["crystal", "relay", "join", "--shared", "--name", name, "--relay", relay])
    where = "the root in CRYSTAL_RELAY_KEY and this token in CRYSTAL_RELAY_TOKEN, or both on standard input"
    say(str(paired.secret))
    _say_how(paired, f"on {name}, with {where}:", f"  {command}")


def _say_how(paired: Paired, *lines: str) -> None:
    """Print to standard error how to transfer a secret by hand, and the words to compare."""
    sys.stdout.flush()
    say(*lines, f"words:  {' '.join(paired.words)}", stream=sys.stderr)
    note(*paired.notes)


# ---------------------------------------------------------------------------------------------------------- the device


def join(
    relay: Annotated[str | None, option("The relay's address, if you type only the code.", "URL")] = None,
    ca_file: Annotated[
        Path | None, option("PEM file of the authority that signed the relay's certificate.", "FILE")
    ] = None,
    replace: Annotated[bool, flag("Replace an existing key; crystal keeps a backup of it.", "--replace")] = False,
    shared: Annotated[bool, flag("This machine has the root key; see relay pair --shared.", "--shared")] = False,
    name: Annotated[str | None, option("With --shared: what home calls this machine.", "NAME")] = None,
) -> None:
    """Join a home; the code, or the string that home shows, comes from standard input."""
    if name is not None and not shared:
        raise UsageError("--name goes with --shared", hint="home gives the name otherwise: crystal relay pair --name")
    with open_machine() as machine:
        if shared:
            joined = _join_shared(machine, relay, name, over=replace)
        else:
            joined = _join(machine, relay, ca_file, over=replace)
        _say_joined(machine, joined)


def _join(machine: Machine, relay: str | None, ca_file: Path | None, *, over: bool) -> Joined:
    from crystal.app.sync import pair_device

    pair_device.check_free(machine, over=over)
    invited = _read_invited()
    if invited.bundle is not None:
        return pair_device.join_offline(machine, invited.bundle, over=over)
    assert invited.code is not None
    url = relay or invited.url or machine.config.relay_url
    if not url and sys.stdin.isatty():
        url = _typed("address of the relay: ")
    if not url:
        raise UsageError("the code alone does not have the relay's address", hint="crystal relay join --relay URL")
    with pair_device.joining_client(machine, url, ca_file) as client:
        try:
            return pair_device.join(machine, client, invited.code, url=url, tell=note, over=over)
        except NotAtRelayError as error:
            number = invited.code.nameplate
            hint = "check the number, or make a new code on the home machine: crystal relay pair"
            raise UsageError(f"no pairing with number {number} is open at {client.shown}", hint=hint) from error


def _read_invited() -> Invitation:
    """Read an invitation, typed or piped."""
    from crystal.app.sync.pair_device import read_invitation

    if not sys.stdin.isatty():
        return read_invitation(sys.stdin.read(MAX_TYPED))
    text = _typed("code, or the string that home shows: ")
    while True:
        try:
            return read_invitation(text)
        except UsageError:
            # Text copied from a terminal may have a line break at the edge of the window.
            more = _typed("") if text.lower().startswith(OFFLINE_PREFIX) and len(text) < MAX_TYPED else ""
            if not more:
                raise
            text += more


def _typed(prompt: str) -> str:
    """Read a line; print the prompt to standard error, separate from results."""
    sys.stderr.write(prompt)
    sys.stderr.flush()
    return sys.stdin.readline(MAX_TYPED).strip()


def read_all(prompt: str) -> str:
    """Read standard input: all of it, or on a terminal the lines up to an empty one."""
    if not sys.stdin.isatty():
        return sys.stdin.read(MAX_TYPED)
    lines = [_typed(prompt)]
    while lines[-1]:
        lines.append(_typed(""))
    return "\n".join(lines)


def _join_shared(machine: Machine, relay: str | None, name: str | None, *, over: bool) -> Joined:
    from crystal.app.sync.pair_device import join_shared

    url = relay or machine.config.relay_url
    if not url:
        raise UsageError("the relay's address is missing", hint="crystal relay join --shared --relay URL")
    places = key_places(machine)
    key, token, is_complete = None, None, False
    with contextlib.suppress(KeyMissingError):
        places.read_key()
        places.read_token()
        is_complete = True
    if not is_complete or over:
        words = read_all("root key and token, a line each, then an empty line: ").split()
        tokens = [word for word in words if word.startswith("crt_")]
        keys = [word for word in words if word not in tokens]
        if len(tokens) > 1 or len(keys) > 1:
            raise UsageError("standard input holds more than one key and one token", hint="one a line, nothing else")
        token = RelayToken(tokens[0]) if tokens else None
        key = parse_key(keys[0], name="the key on standard input") if keys else None
    return join_shared(machine, url, name or machine.config.device, key=key, token=token, over=over)


def _say_joined(machine: Machine, joined: Joined) -> None:
    say(f"joined: {one_line(joined.home)}, over {one_line(joined.url)}")
    say(f"words:  {' '.join(joined.words)}")
    say("home shows the same four words; if not, leave it: crystal demote", stream=sys.stderr)
    if joined.past:
        say("past:   everything captured here goes to home too; to send it now: crystal relay sync")
    if joined.confirmed is False:
        note("home did not answer in time; check there whether this device is paired")
    note(*joined.notes)
    if machine.config.origin("agent_id") == "default":
        note("crystal is not set up on this machine yet; run: crystal init")
