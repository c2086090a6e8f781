"""Faults on the way, counted: what is lost and what is doubled when everything goes wrong, by kind of fault.

    python benchmarks/relay_faults.py [--seeds 5] [--messages 40] [--rate 0.1] [--folder DIR]

Two devices, a relay and a home machine, all real, in one process; each request goes wrong with the given probability.
Beside it stands a model of a relay client that deletes what it cannot open and acknowledges before it is safe, under
the same faults: how many of its messages are lost and doubled. Exits 1 when anything of ours is lost or doubled.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from crystal.errors import CrystalError
from crystal.store.sync import outbox
from tests.support.capture_machine import line
from tests.support.relay_fate import Crash, reopen
from tests.support.relay_weather import FAULTS, Storm
from tests.support.relay_world import Device, Home, World, said

OURS = ("crash", "relay wiped")
DAMAGE = ("cut", "flip", "swap", "replay")


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--seeds", type=int, default=5)
    asked.add_argument("--messages", type=int, default=40)
    asked.add_argument("--rate", type=float, default=0.1)
    asked.add_argument("--folder", type=Path)
    given = asked.parse_args()
    print(f"{given.seeds} runs each, 2 devices x {given.messages} messages, faults per request {given.rate:.0%}")
    print(f"{'fault':<14} {'lost':>6} {'doubled':>8} {'model lost':>11} {'model doubled':>14} {'seconds':>8}")
    bad = 0
    for fault in (*FAULTS, *OURS, "all together"):
        began, total = time.perf_counter(), Counter[str]()
        kinds = (*FAULTS, *OURS) if fault == "all together" else (fault,)
        for seed in range(given.seeds):
            with tempfile.TemporaryDirectory(dir=given.folder) as folder:
                total += ours(Path(folder), kinds, random.Random(seed), given.messages, given.rate)
            total += model(kinds, random.Random(seed), given.messages, given.rate)
        seconds = time.perf_counter() - began
        print(
            f"{fault:<14} {total['lost']:>6} {total['doubled']:>8} {total['model lost']:>11}"
            f" {total['model doubled']:>14} {seconds:>8.1f}",
            flush=True,
        )
        bad += total["lost"] + total["doubled"]
    return 1 if bad else 0


def ours(folder: Path, kinds: tuple[str, ...], dice: random.Random, messages: int, rate: float) -> Counter[str]:
    world = World(folder)
    devices = [world.device("laptop"), world.device("tower")]
    storms = [Storm(world.home.weather), *(Storm(device.weather) for device in devices)]
    on_the_way = [kind for kind in kinds if kind in FAULTS]
    for number in range(messages):
        for storm in storms:
            storm.clear() if dice.random() < 0.1 else storm.arrive_late()
            storm.expect(*(dice.choice(on_the_way) if on_the_way and dice.random() < rate else "" for _ in range(12)))
        for who, device in enumerate(devices):
            device.say(f"s{number % 3}", line(f"{number} of {who}"))
            attempt(device, "crash" in kinds and dice.random() < rate, dice)
        attempt(world.home, "crash" in kinds and dice.random() < rate, dice)
        if "relay wiped" in kinds and dice.random() < rate / 4:
            world.relay.wipe()
        world.pass_time(60_000)
    for storm in storms:
        storm.clear()
    world.settle(8)
    rows = said(world.home.store)
    captured = {row for device in devices for row in said(device.store)}
    waiting = sum(outbox.backlog(device.store).blobs for device in devices)
    assert waiting == 0, f"{waiting} blobs still wait"
    assert world.home.missing() == {}
    world.home.machine.assert_sound()
    world.close()
    return Counter(lost=len(captured - set(rows)), doubled=len(rows) - len(set(rows)) + len(set(rows) - captured))


def attempt(machine: Home | Device, crashes: bool, dice: random.Random) -> None:
    left = dice.randint(1, 60)

    def die(*_: object) -> bool:
        nonlocal left
        left -= 1
        if left == 0:
            raise Crash
        return True

    if crashes:
        machine.machine.store.db.exec_trace = die
    with contextlib.suppress(Crash, CrystalError):
        machine.poll() if isinstance(machine, Home) else machine.deliver()
    if crashes:
        machine.machine.store.db.exec_trace = None
        reopen(machine)


def model(kinds: tuple[str, ...], dice: random.Random, messages: int, rate: float) -> Counter[str]:
    """Blobs with random names, sent until an answer comes, deleted when picked up, whether they opened or not."""
    relay: list[int] = []
    home: Counter[int] = Counter()
    opened: list[int] = []

    def fault() -> str:
        return dice.choice(kinds) if dice.random() < rate else ""

    for number in range(2 * messages):
        while True:
            what = fault()
            if what not in ("lost before", "server error", "too many"):
                relay += [number] * (2 if what == "twice" else 1)
            if what not in ("lost before", "lost after", "late", "server error", "too many"):
                break
        if fault() == "relay wiped" and dice.random() < 0.25:
            relay.clear()
        for blob in list(relay):
            what = fault()
            if what in ("lost before", "lost after", "server error", "too many", "withhold"):
                continue
            if what in ("replay", "swap") and opened:
                home[opened[0] if what == "replay" else opened[-1]] += 1
            elif what not in DAMAGE:
                home[blob] += 1
                opened.append(blob)
            if what != "crash":
                relay.remove(blob)
    lost = sum(1 for number in range(2 * messages) if not home[number] and number not in relay)
    return Counter({"model lost": lost, "model doubled": sum(count - 1 for count in home.values() if count > 1)})


if __name__ == "__main__":
    sys.exit(main())
