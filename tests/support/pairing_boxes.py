"""Two machines with a home folder each, and their ways to one real relay in this process."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crystal.app import relay_links
from crystal.app.context import Machine
from crystal.app.sync import pair_device, pair_home
from crystal.config.edit import set_value
from crystal.config.load import load_config
from crystal.store import Store
from crystal.sync.client import RelayClient
from crystal.sync.errors import RelayUnavailableError
from crystal.sync.keys.forms import RelayKey
from crystal.sync.keys.places import RelayToken
from crystal.sync.keys.word_codes import parse_code
from tests.support.over_httpx import OverHttpx
from tests.support.relay_weather import Weather
from tests.support.relay_world import RelaySite

URL = "http://127.0.0.1:8600"
ROOT = bytes(range(7, 39))


class Box:
    """A machine with a home folder of its own."""

    def __init__(self, folder: Path, name: str, agent: str) -> None:
        self.home = folder / name
        self.home.mkdir(parents=True)
        self.env = {
            "HOME": str(self.home),
            "LDM_HOME": str(self.home / ".ldm"),
            "CRYSTAL_CONFIG": str(self.home / "config.toml"),
            "CLAUDE_CONFIG_DIR": str(self.home / ".claude"),
        }
        self.set("device", name)
        self.set("agent_id", agent)

    def set(self, key: str, value: object) -> None:
        set_value(self.home / "config.toml", key, value)

    @contextlib.contextmanager
    def open(self) -> Iterator[Machine]:
        config = load_config(self.env, self.home)
        config.places.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        with Store.open(config.places.db) as store:
            yield Machine(config, store)


@dataclass
class Pairs:
    """Home and device, each with its own way to the relay."""

    home: Box
    device: Box
    site: RelaySite
    token: str
    home_way: Weather
    device_way: Weather
    told: list[str] = field(default_factory=list)

    def client(self, token: str | None = None) -> RelayClient:
        return RelayClient(URL, token or self.token, transport=OverHttpx(self.home_way))

    def joining(self, claim: bytes = b"c" * 32) -> RelayClient:
        return RelayClient(URL, None, claim=claim, transport=OverHttpx(self.device_way))

    def run(
        self,
        *,
        type_code: Callable[[str], str] = lambda code: code,
        name: str | None = None,
        over: bool = False,
        claim: bytes = b"c" * 32,
        afterwards: Callable[[str], None] = lambda code: None,
    ) -> tuple[Any, Any]:
        """Pair and join at the same time; gives what each side got, or what it raised.

        ``afterwards`` is called when the device has come to its end, whatever home does by then.
        """
        shown, code = threading.Event(), []
        found: dict[str, Any] = {}

        def show(made: str, joined: str) -> None:
            code.append(made)
            shown.set()

        def at_home() -> None:
            try:
                with self.home.open() as machine, self.client() as client:
                    found["home"] = pair_home.pair(machine, client, show=show, tell=self.told.append, name=name)
            except BaseException as error:  # noqa: BLE001 - the claim is about what it raises
                found["home"] = error
            finally:
                shown.set()

        thread = threading.Thread(target=at_home, daemon=True)
        thread.start()
        assert shown.wait(20)
        if code:
            try:
                with self.device.open() as machine, self.joining(claim) as client:
                    found["device"] = pair_device.join(
                        machine, client, parse_code(type_code(code[0])), url=URL, tell=self.told.append, over=over
                    )
            except BaseException as error:  # noqa: BLE001 - the claim is about what it raises
                found["device"] = error
            afterwards(code[0])
        thread.join(20)
        assert not thread.is_alive()
        return found["home"], found.get("device")

    def valid_tokens(self) -> list[tuple[str, ...]]:
        """The scopes of every token that is valid at the relay, home's own left out."""
        with self.client() as client:
            return [one.scopes for one in client.tokens() if one.revoked_at is None and "home" not in one.scopes]

    def open_mailboxes(self) -> int:
        with self.client() as client:
            numbers = []
            for _ in range(8):
                with contextlib.suppress(RelayUnavailableError):
                    numbers.append(client.open_mailbox())
            for number in numbers:
                client.close_mailbox(number)
        return 8 - len(numbers)


def two_machines(folder: Path, site: RelaySite) -> Pairs:
    """A home that is ready to pair, and a machine that keeps to itself."""
    home, device = Box(folder, "mini", "cc-mini"), Box(folder, "laptop", "cc-laptop")
    token = site.token("home", "home")
    home.set("role", "home")
    home.set("relay.url", URL)
    with home.open() as machine:
        relay_links.key_places(machine).write_key(RelayKey("root", ROOT))
        relay_links.key_places(machine).write_token(RelayToken(token))
    return Pairs(home, device, site, token, Weather(site.transport), Weather(site.transport))
