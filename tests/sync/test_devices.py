"""The devices of a home: revoked, rotated, renamed."""

from __future__ import annotations

from pathlib import Path

import pytest

from crystal.app.sync import devices
from crystal.errors import UsageError
from crystal.store.sync.relay_peers import NewLink, add_peer
from crystal.sync.client import RelayClient
from crystal.sync.errors import RelayDeniedError
from tests.support.over_httpx import OverHttpx, down
from tests.support.pairing_boxes import URL, Box, Pairs
from tests.support.pairing_state import device_state, is_joined


def test_revoking_ends_one_device_and_no_other(pairs: Pairs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rolled: list[int] = []
    pairs.run()
    first, pairs.device = pairs.device, Box(tmp_path, "desk", "cc-desk")
    pairs.run(claim=b"d" * 32)
    with pairs.home.open() as machine, pairs.client() as client:
        monkeypatch.setattr(devices, "roll_key", lambda store, random, now: rolled.append(now))
        peer, problem = devices.revoke(machine, "laptop", client=client)
    assert (peer.revoked_at is not None, peer.token_id, problem, len(rolled)) == (True, None, None, 1)
    lost = device_state(first)["token"].reveal()
    with RelayClient(URL, lost, transport=OverHttpx(pairs.device_way)) as client, pytest.raises(RelayDeniedError):
        client.streams()
    assert is_joined(pairs)
    with pairs.home.open() as machine, pytest.raises(UsageError, match="revoked"):
        devices.rotate(machine, "laptop")


@pytest.mark.slow
def test_revoking_holds_here_while_the_relay_is_down(pairs: Pairs) -> None:
    pairs.run()

    pairs.home_way.before = down
    with pairs.home.open() as machine, pairs.client() as client:
        peer, problem = devices.revoke(machine, "laptop", client=client)
        assert peer.revoked_at is not None
        assert problem is not None
        assert devices.retry_revocations(machine, client) == []
        pairs.home_way.before = lambda request: None
        assert devices.retry_revocations(machine, client) == ["laptop"]
    assert pairs.valid_tokens() == []


@pytest.mark.slow
def test_a_rotation_is_not_begun_twice(pairs: Pairs) -> None:
    pairs.run()
    with pairs.home.open() as machine:
        assert devices.rotate(machine, "laptop").generation == 2
        with pytest.raises(UsageError, match="last rotation"):
            devices.rotate(machine, "laptop")


def test_a_device_of_a_home_cannot_be_named_like_home(pairs: Pairs) -> None:
    pairs.run()
    with pairs.home.open() as machine:
        for name in ("mini", "", "-x", "a\nb", "unfinished-1", "x" * 65):
            with pytest.raises(UsageError):
                devices.rename(machine, "laptop", name)
        assert devices.rename(machine, "laptop", "Küche 2").name == "Küche 2"


def test_the_home_of_a_device_is_no_device_of_it(pairs: Pairs) -> None:
    with pairs.device.open() as machine:
        with machine.store.transaction():
            add_peer(machine.store, NewLink(b"i" * 16, "home", "mini", None, 1, b"u" * 8, b"d" * 8), 1)
        with pytest.raises(UsageError, match="this machine's home"):
            devices.revoke(machine, "mini")
