"""A trial of two machines: a laptop whose transcripts grow, its home, and a relay; each of them suffers."""

from __future__ import annotations

import shutil
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from tests.support.trial import Trial, try_seeds
from tests.sync.test_relay_processes import Relay

HARMS = ("flip", "cut", "delete", "lose log")
ARCHIVE_HARMS = ("flip archive", "cut archive", "lose archive")
MISFORTUNES = {"exchange": 5, "relay away": 1, "relay of yesterday": 1, "home harmed": 2, "laptop harmed": 1, "kill": 3,
               "poll killed": 2, "sync killed": 1, "": 5}  # fmt: skip
"""Events of a step besides growth, each with its weight."""


class TwoMachines(Trial):
    """The laptop, with its home and the relay between them."""

    def _begin(self) -> None:
        self.name = "laptop"
        self.desktop = Trial(self.home.with_name("desktop"), self.seed, name="desktop", failures=self.failures)
        (self.home.parent / "site").mkdir()
        self.relay = Relay(self.home.parent / "site" / "relay")
        self.relay.start()
        token = self.relay.operate("token", "make", "--label", "home", "--scope", "home")
        self.desktop.command("init", "--yes", "--role", "home", "--relay", self.relay.url, "--token-stdin", stdin=token)
        super()._begin()
        self._pair()

    def _pair(self) -> None:
        """Pair both, again if one has lost the connection. The laptop gets another name if home knows it still."""
        bundle = self.desktop.command("relay", "pair", "--offline", "--name", "laptop")
        done = self.command("relay", "join", stdin=bundle.stdout)
        if "--replace" in done.stderr:
            done = self.command("relay", "join", "--replace", stdin=bundle.stdout)
        if done.returncode:
            self.failures.append(f"join: {bundle.stderr[-300:]}{done.stderr[-300:]}")

    def _exchange(self) -> None:
        for machine, words in ((self, ("relay", "sync")), (self.desktop, ("relay", "poll")), (self, ("relay", "sync"))):
            machine.command(*words)

    def _suffer(self, misfortune: str) -> None:
        (happens,) = self.dice.choices([*MISFORTUNES], [*MISFORTUNES.values()])
        self.happened[happens] += 1
        if happens == "exchange":
            self._exchange()
        elif happens.startswith("relay"):
            self._harm_relay(happens)
        elif happens == "kill":
            time.sleep(self.dice.random() * 0.6)
            self.dice.choice([self, self.desktop]).end_processes()
        elif happens.endswith("killed"):
            machine, word = (self.desktop, "poll") if happens == "poll killed" else (self, "sync")
            with suppress(subprocess.TimeoutExpired):
                machine.command("relay", word, seconds=self.dice.random() * 1.5)
        elif happens == "home harmed":  # the laptop's archive there is the only one that no transcript mends
            self._harm(self.desktop, self.dice.choice(HARMS))
        elif happens == "laptop harmed":
            self._harm(self, self.dice.choice([*HARMS, *ARCHIVE_HARMS]))

    def _harm_relay(self, how: str) -> None:
        backup = self.relay.folder.with_name("backup")
        self.relay.kill()
        if how == "relay away":
            self._exchange()
        elif backup.exists():
            shutil.rmtree(self.relay.folder)
            backup.rename(self.relay.folder)
        else:
            shutil.copytree(self.relay.folder, backup)
        self.relay.start()

    def _harm(self, machine: Trial, how: str) -> None:
        if machine.database.exists():
            machine.end_processes()
            machine.damage(how)
            told = machine.repair(how)
            if "relay pair" in told or "relay join" in told:
                self._pair()

    def differences(self, home: Path) -> dict[str, int]:
        """Compare both machines with a clean import."""
        for _ in range(4):
            self._exchange()
        found = super().differences(home)
        if self.desktop.command("verify").returncode:
            self.failures.append("verify at home does not say that all is there")
        expected, reached = self.clean_import(home.with_name("clean at home")), self.desktop.archived()
        self.desktop.end_processes()
        self.relay.kill()
        missing, more = (expected - reached).total(), (reached - expected).total()
        return {**found, "lost at home": missing, "too many at home": more}


if __name__ == "__main__":
    try_seeds(TwoMachines)
