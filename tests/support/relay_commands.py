"""Commands on two machines whose way to the relay lies in this process."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crystal.app import relay_links
from crystal.app.context import Machine
from crystal.app.sync import pair_device, pair_home, pair_mailbox
from crystal.app.sync.device import deliver_relay
from crystal.app.sync.home import poll_relay
from crystal.store.sync import inbox, outbox
from crystal.sync.client import RelayClient
from crystal.sync.envelope.blob import Channel
from crystal.sync.envelope.packing import PayloadKind
from crystal.sync.sending import put_message
from tests.project.test_docs_reference import documented, keys_of, pattern_of
from tests.support.command import Done, crystal
from tests.support.over_httpx import OverHttpx
from tests.support.pairing_boxes import URL, Box, Pairs, two_machines
from tests.support.relay_world import RelaySite, site

__all__ = ["site"]


@pytest.fixture
def pairs(tmp_path: Path, site: RelaySite, monkeypatch: pytest.MonkeyPatch) -> Pairs:
    """Two machines, whose commands reach the relay in this process."""
    pairs = two_machines(tmp_path, site)

    def client_at(_: Machine, url: str, token: str | None, **__: Any) -> RelayClient:
        return RelayClient(url, token, transport=OverHttpx(pairs.home_way))

    monkeypatch.setattr(relay_links, "client_at", client_at)
    monkeypatch.setattr(
        pair_device,
        "joining_client",
        lambda _, url, __: RelayClient(url, None, claim=b"c" * 32, transport=OverHttpx(pairs.device_way)),
    )
    monkeypatch.setattr(pair_mailbox, "PATIENCE_SECONDS", 0.1)
    monkeypatch.setattr(pair_mailbox, "PAUSE_SECONDS", 0.02)
    return pairs


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Done]:
    """Run a command on one of the machines, with something on standard input."""

    def run(box: Box, *words: str, typed: str = "", terminal: bool = False) -> Done:
        for name, value in box.env.items():
            monkeypatch.setenv(name, value)
        return crystal(*words, typed=typed, terminal=terminal)

    return run


On = Callable[..., Done]


def joined(pairs: Pairs, name: str = "laptop") -> None:
    """Pair the two machines by hand."""
    with pairs.home.open() as machine, pairs.client() as client:
        secret = str(pair_home.pair_offline(machine, client, name=name).secret)
    bundle = pair_device.read_invitation(secret).bundle
    assert bundle is not None
    with pairs.device.open() as machine:
        pair_device.join_offline(machine, bundle)


def say(pairs: Pairs, *texts: str) -> None:
    """Let the device seal notes, each a blob of its own: they are taken and change nothing."""
    with pairs.device.open() as machine:
        link = relay_links.device_link(machine)
        assert link is not None
        for text in texts:
            with machine.store.transaction():
                payload = json.dumps({"v": 1, "kind": text}).encode()
                put_message(machine.store, link, payload, kind=PayloadKind.CONTROL, lane="live", now=5)


def deliver(pairs: Pairs) -> None:
    with pairs.device.open() as machine:
        token = relay_links.key_places(machine).read_token().reveal()
        with RelayClient(URL, token, transport=OverHttpx(pairs.device_way)) as client:
            report = deliver_relay(machine, client, skip_delay=True)
            assert report.problem is None


def poll(pairs: Pairs) -> None:
    with pairs.home.open() as machine, pairs.client() as client:
        poll_relay(machine, client)


def in_stream(pairs: Pairs) -> inbox.InStream:
    with pairs.home.open() as machine:
        (known,) = [one for one in inbox.all_streams(machine.store) if one.channel == Channel.CONVERSATIONS]
        return known


def waiting(pairs: Pairs) -> int:
    with pairs.device.open() as machine:
        return outbox.backlog(machine.store).blobs


def check_json(section: str, done: Done) -> dict[str, Any]:
    """Every key is documented."""
    value: dict[str, Any] = json.loads(done.out)
    patterns = documented(section)
    for key in keys_of(value):
        assert any(re.fullmatch(pattern_of(each), key) for each in patterns), f"{section}: {key} is not documented"
    return value
