"""How soon what was said on one machine is found on another, against one machine alone, in one run.

Three machines in temporary homes, each set up with the commands that people type, and a real relay on loopback: a home
with ``crystal relay poll --watch``, a device of it with ``crystal relay sync --watch``, and a machine that keeps to
itself. A turn is said on each in turn, with the real hook; measured is the time from the hook's exit until the word is
found by keyword: on the machine itself, at home, and for what was said at home in the device's mirror. So is the hook.

Run: python benchmarks/relay_latency.py [--runs 20] [--folder DIR]
Exits 1 when home finds it later than after 3 s at the median, or the hook of a device is slower than that of one
machine by more than a quarter.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import apsw
from capture import Talk, ms, quantile
from machine import Machine, run

from crystal.store import texts

HOME_SECONDS, HOOK_RATIO = 3.0, 1.25
CRYSTAL = [sys.executable, "-m", "crystal"]
PLACES = {
    "alone": "said and found on one machine",
    "home": "said on the device, found at home",
    "mirror": "said at home, found on the device",
}


class Relay:
    """``crystal-relay serve`` on a free port."""

    def __init__(self, folder: Path):
        folder.mkdir(parents=True)
        self.env = {
            **{name: value for name, value in os.environ.items() if not name.startswith("CRYSTAL_")},
            "HOME": str(folder),
            "CRYSTAL_RELAY_DATA_DIR": str(folder / "relay"),
            "CRYSTAL_RELAY_LISTEN": "127.0.0.1:0",
            "CRYSTAL_RELAY_METRICS_LISTEN": "off",
        }
        log = folder / "log"
        with log.open("wb") as file:
            command = [sys.executable, "-m", "relay_worker", "serve"]
            self.process = subprocess.Popen(command, env=self.env, stdout=file, stderr=file)
        self.url = ""
        while not self.url:
            if self.process.poll() is not None:
                raise RuntimeError(log.read_text())
            for line in log.read_text().splitlines():
                if '"serving"' in line:
                    self.url = json.loads(line)["address"]
            time.sleep(0.02)

    def token(self) -> str:
        command = ["token", "make", "--label", "home", "--scope", "home"]
        return run([sys.executable, "-m", "relay_worker", *command], self.env).output.split()[0]


class Watching:
    """A command that goes on until it is ended."""

    def __init__(self, machine: Machine, *words: str):
        self.process = subprocess.Popen(
            [*CRYSTAL, *words, "--watch", "--quiet"], env=machine.env, stdout=subprocess.DEVNULL, stderr=sys.stderr
        )

    def end(self) -> None:
        self.process.terminate()  # not SIGINT: a shell that starts something in the background has it ignored
        self.process.wait(timeout=30)


def set_up(folder: Path, name: str, *words: str, stdin: str = "") -> Machine:
    machine = Machine(folder / name)
    machine.env["CRYSTAL_DEVICE"] = name
    command = [*CRYSTAL, "init", "--yes", "--no-import", "--agent-id", f"cc-{name}", *words]
    run(command, machine.env, stdin.encode())
    return machine


def find(path: Path, word: str, seconds: float = 60.0) -> None:
    """Wait until a word is in a database."""
    deadline = time.monotonic() + seconds
    while True:
        with contextlib.suppress(apsw.Error):  # the mirror is not there yet, or takes another's place
            db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
            try:
                db.set_busy_timeout(1000)
                texts.register(db)
                while time.monotonic() < deadline:
                    if list(db.execute("SELECT 1 FROM chunks WHERE instr(text, ?) LIMIT 1", (word,))):
                        return
                    time.sleep(0.005)
            finally:
                db.close()
        if time.monotonic() > deadline:
            raise TimeoutError(f"{word} was not found in {path.name} within {seconds:.0f} seconds")
        time.sleep(0.05)


def measure(folder: Path, runs: int) -> bool:
    relay = Relay(folder / "site")
    watching = []
    try:
        alone = set_up(folder, "alone")
        home = set_up(
            folder, "home", "--role", "home", "--relay", relay.url, "--token-stdin", stdin=relay.token() + "\n"
        )
        device = set_up(folder, "device")
        offer = run([*CRYSTAL, "relay", "pair", "--offline", "--name", "device"], home.env).output
        run(
            [*CRYSTAL, "relay", "join"],
            device.env,
            next(w for w in offer.split() if w.startswith("crystal1:")).encode(),
        )
        watching = [Watching(home, "relay", "poll"), Watching(device, "relay", "sync")]
        talks = {"alone": Talk(alone, 3), "home": Talk(device, 4), "mirror": Talk(home, 5)}
        found = {"alone": alone.db, "home": home.db, "mirror": device.db.parent / "mirror.db"}
        times, hooks = {name: [] for name in talks}, {name: [] for name in talks}
        for number in range(runs + 1):  # the first makes the mirror and is not counted
            for name, talk in talks.items():
                hook, seconds = say_and_find(talk, f"zq{name}x{number}", found[name])
                if number:
                    hooks[name].append(hook)
                    times[name].append(seconds)
                talk.machine.settle()
    finally:
        for one in watching:
            one.end()
        relay.process.terminate()
        relay.process.wait(timeout=30)
    return report(times, hooks)


def say_and_find(talk: Talk, word: str, where: Path) -> tuple[float, float]:
    """Seconds of the hook, and seconds from its exit until the word is found."""
    asked = talk.session.linked({"type": "user", "message": {"role": "user", "content": f"what of {word}"}})
    text = f"{talk.session.writer.prose(800)} {word}"
    message = {"role": "assistant", "model": "claude-opus-5-5", "content": [{"type": "text", "text": text}]}
    talk.append(asked, talk.session.linked({"type": "assistant", "message": message}))
    hook = talk.machine.hook(talk.path, said=text).wall
    start = time.perf_counter()
    find(where, word)
    return hook, time.perf_counter() - start


def report(times: dict[str, list[float]], hooks: dict[str, list[float]]) -> bool:
    medians = {name: statistics.median(spent) for name, spent in times.items()}
    for name, words in PLACES.items():
        against = "" if name == "alone" else f", {medians[name] / medians['alone']:.1f} x one machine"
        print(f"latency: {words}: median {ms(medians[name])}, 95 % {ms(quantile(times[name], 0.95))}{against}")
    is_soon = medians["home"] < HOME_SECONDS
    print(f"target: at home within {HOME_SECONDS:.0f} s, {'kept' if is_soon else 'MISSED'}")
    hook = {name: statistics.median(spent) for name, spent in hooks.items()}
    ratio = hook["home"] / hook["alone"]
    is_fast = ratio <= HOOK_RATIO
    print(f"hook: on one machine {ms(hook['alone'])}, on a device {ms(hook['home'])}, ratio {ratio:.2f}")
    print(f"target: about 1, {'kept' if is_fast else 'MISSED'}")
    return is_soon and is_fast


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--runs", type=int, default=20, help="how often each way is measured")
    parser.add_argument("--folder", type=Path, help="work here and leave everything there")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="crystal-benchmark-", ignore_cleanup_errors=True) as temporary:
        return 0 if measure(given.folder or Path(temporary), given.runs) else 1


if __name__ == "__main__":
    sys.exit(main())
