"""Implement ``crystal devices``: list, rename, revoke and rotate the machines of this home."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from crystal.app.context import open_kept_machine, open_reader
from crystal.app.sync import devices as wired
from crystal.app.sync.relay_state import DeviceStatus, find_device, list_devices
from crystal.cli.confirm import confirm
from crystal.cli.json_output import answer, json_row
from crystal.cli.options import AsJson, Yes, argument
from crystal.cli.relay_status import successor_words
from crystal.cli.render import cells, note, one_line, padded, say, warn
from crystal.timewords.parse import ago

Name = Annotated[str, argument("A device, by name.", "NAME", show_default=False)]

commands = typer.Typer(help="The machines that send to this home.", invoke_without_command=True)


@commands.callback()
def devices(context: typer.Context, *, as_json: AsJson = False) -> None:
    """List the devices of this home, with the state of each."""
    if context.invoked_subcommand is not None:
        return
    with open_reader() as machine:
        found = list_devices(machine)
        now, role = machine.now(), machine.config.role
    none = "no devices yet; add one: crystal relay pair" if role == "home" else "this machine has no devices"
    width = max((cells(one_line(one.peer.name)) for one in found), default=0)
    lines = [f"{padded(one_line(one.peer.name), width)}  {', '.join(_remarks(one, now))}" for one in found]
    answer({"role": role, "devices": [_json(one) for one in found]}, lines or [none], as_json=as_json)


def _remarks(one: DeviceStatus, now: int) -> Iterator[str]:
    peer = one.peer
    yield "never heard" if peer.heard_at is None else f"heard {ago(peer.heard_at, now)}"
    yield from ["home of this machine"] if peer.side == "home" else [f"agent {peer.agent}"] * bool(peer.agent)
    if peer.revoked_at is not None:
        yield "REVOKED" + (", but the relay still lets it in: crystal relay poll" if peer.token_id else "")
    elif one.state != "ok":
        yield f"{one.state}: see crystal relay status"
    if peer.revoked_at is None and peer.generation > peer.accepted_from:
        yield "new keys are on their way"
    if peer.forked_at is not None:
        yield "two copies of it are sending"
    if one.missing and peer.revoked_at is None:
        yield f"{one.missing:,} missing"
    if one.successor is not None:
        yield successor_words(peer.name, one.successor)


def _json(one: DeviceStatus) -> dict[str, Any]:
    peer = one.peer
    return {
        **json_row(peer, "name", "side", "agent", "generation", id="device_id", paired="paired_at"),
        **json_row(peer, last_heard="heard_at", revoked="revoked_at", forked="forked_at"),
        **json_row(one, "state", "missing", "waiting", "successor"),
        "rotating": peer.generation > peer.accepted_from,
        "token_waits": peer.revoked_at is not None and peer.token_id is not None,
    }


@commands.command("rename")
def rename(
    old: Annotated[str, argument("A device, by name.", "OLD", show_default=False)],
    new: Annotated[str, argument("Its new name.", "NEW", show_default=False)],
) -> None:
    """Rename a device, also in everything captured on it."""
    with open_kept_machine() as machine:
        peer = wired.rename(machine, old, new)
    say(f"{one_line(old)} is {one_line(peer.name)} now")


@commands.command("revoke", short_help="Accept nothing more from a lost or stolen device.")
def revoke(name: Name, *, yes: Yes = False) -> None:
    """Accept nothing more from a device that was lost, stolen or given away. Other devices are not affected."""
    with open_kept_machine() as machine:
        shown = one_line(find_device(machine, name).name)
        consequence = f"home accepts nothing more from {shown}, and sends it nothing, until it is paired again"
        confirm(f"revoke {shown}?", yes=yes, consequence=consequence)
        peer, problem = wired.revoke(machine, name)
    say(f"{shown} is revoked: home refuses what it sends from now on")
    if peer.vouches:
        warn(f"{one_line(peer.name)} was home before and may still have the root")
        note("anyone with the root key can act as any of your machines: docs/reference/keys.md")
    if problem is not None:
        warn(f"the relay does not know yet: {problem}")
        note("until then the relay still lets it in; every poll tries again: crystal relay poll")


@commands.command("rotate", short_help="Give a device new keys.")
def rotate(name: Name) -> None:
    """Give a device new keys; it gets them at its next sync, and the old ones end then."""
    with open_kept_machine() as machine:
        peer = wired.rotate(machine, name)
    say(f"{one_line(peer.name)} gets keys of generation {peer.generation} with the next poll and its next sync")
