"""A trial by everyday misfortune: transcripts grow while hooks run, processes die, the disk fills, files are damaged.

Run as a program it tries seeds until it is stopped, in a folder that may be a small disk:

    python -m tests.support.trial FOLDER [FIRST_SEED] [--steps 80]
    python -m tests.support.trial_of_two FOLDER [FIRST_SEED] [--steps 80]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from crystal.hook import main as hook_main
from tests.support import damage

TRANSCRIPTS = Path(__file__).parents[1] / "data" / "transcripts"
EVENTS = ("Stop", "Stop", "SubagentStop", "UserPromptSubmit", "SessionEnd", "PreCompact")
PIECES = (1, 7, 300, 5000, 40_000)
"""Bytes by which a transcript grows at a step."""
REPAIR_EXIT_CODES = (0, 1)
MISFORTUNES = {
    "": 12, "kill": 6, "fill": 1, "lose index": 1, "search": 2, "sync": 1, "flip": 1, "cut": 1, "delete": 1,
    "lose log": 1, "flip archive": 1, "cut archive": 1, "lose archive": 1, "rewrite": 1, "move": 1, "forget": 1
}  # fmt: skip
"""Events of a step besides growth, each with its number in the deck."""


@dataclass
class Trial:
    """One machine with its transcripts. ``seed`` decides everything but the moment at which a signal arrives."""

    home: Path
    seed: int
    can_fill: bool = True
    name: str = "vm"
    failures: list[str] = field(default_factory=list)
    happened: Counter[str] = field(default_factory=Counter)
    forgotten: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)
        self.transcripts = self.home / ".claude" / "projects" / "-home-dev-shop"
        self.transcripts.mkdir(parents=True)
        self.database = self.home / ".ldm" / "memory" / "crystal.db"
        samples = self.dice.sample(sorted(TRANSCRIPTS.glob("*[a-z0-9].jsonl")), 5)
        self.whole = {path.name: path.read_bytes() for path in samples}
        self.sessions = {name: _session_of(content) for name, content in self.whole.items()}
        self.grown = dict.fromkeys(self.whole, 0)
        self.hooks: list[subprocess.Popen[bytes]] = []

    def run(self, steps: int) -> None:
        """Install crystal, let the transcripts grow with misfortunes, and then in peace; bring back what is left."""
        self._begin()
        deck = [name for name, often in MISFORTUNES.items() for _ in range(often)]
        self.dice.shuffle(deck)
        for step in range(steps):
            self._grow()
            self._suffer(deck[step % len(deck)])
        for name in self.whole:
            self._append(name, len(self.whole[name]))
            self._hook(name)
        for hook in self.hooks:
            hook.wait()
        self.end_processes()
        for words in (["sync"], ["sync"], ["backfill"]):
            self.command(*words)
        if self.command("verify").returncode != 0:
            self.failures.append("verify does not say that all is there")

    def _begin(self) -> None:
        self.command("init", "--yes")

    def command(self, *words: str, seconds: float = 300, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run a command of crystal, at most so long; no command ends with a traceback."""
        done = subprocess.run(
            [sys.executable, "-m", "crystal", *words], env=self._env(), capture_output=True, text=True, timeout=seconds,
            input=stdin, check=False,
        )  # fmt: skip
        if "Traceback" in done.stderr + done.stdout:
            self.failures.append(f"{' '.join(words)}: {done.stderr[-600:]}")
        return done

    def archived(self) -> Counter[str]:
        """Return what an export has: each line of a session, with the roles and texts of its turns."""
        folder = self.home / "exported"
        shutil.rmtree(folder, ignore_errors=True)
        self.command("export", "--all", "--to", str(folder), "--as", "jsonl")
        records = map(json.loads, (folder / "export.jsonl").read_bytes().splitlines())
        lines = (record for record in records if record["type"] == "line")
        return Counter(
            json.dumps([line["session"], line["raw"], [[turn["role"], turn["text"]] for turn in line["turns"]]])
            for line in lines
        )

    def clean_import(self, home: Path) -> Counter[str]:
        """Return what an export has after the whole transcripts were imported at once in another home."""
        shutil.copytree(self.home / ".claude" / "projects", home / ".claude" / "projects")
        other = Trial.__new__(Trial)
        other.home, other.failures, other.name = home, self.failures, self.name
        other.command("init", "--yes", "--import")
        other.command("sync")
        return other.archived()

    def differences(self, home: Path) -> dict[str, int]:
        """Return how many lines this memory lacks and has too many, compared with a clean import in another home."""
        expected, reached = self._comparable(self.clean_import(home)), self._comparable(self.archived())
        self.end_processes()
        return {"lost": (expected - reached).total(), "too many": (reached - expected).total()}

    def _comparable(self, lines: Counter[str]) -> Counter[str]:
        """Return lines without what was forgotten, in any session; then also without lines that say nothing.

        Lines that say nothing may be left out.
        """
        if not self.forgotten:
            return lines
        said = {line: count for line, count in lines.items() if not line.endswith(", []]")}
        return Counter({line: count for line, count in said.items() if _id_of(line) not in self.forgotten})

    def end_processes(self) -> None:
        """Kill every process that lives in this home."""
        ours = f"HOME={self.home}".encode()
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if ours in (folder / "environ").read_bytes().split(b"\0"):
                    os.kill(int(folder.name), signal.SIGKILL)
            except OSError:  # it ended by itself
                continue

    def _env(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
        return {**kept, "HOME": str(self.home), "COLUMNS": "80", "LANG": "C.UTF-8", "CRYSTAL_DEVICE": self.name}

    def _grow(self) -> None:
        growing = [name for name in self.whole if self.grown[name] < len(self.whole[name])]
        for name in self.dice.sample(growing, min(len(growing), self.dice.randint(1, 3))):
            self._append(name, self.dice.choice(PIECES))
            hooks = [self._hook(name) for _ in range(self.dice.choice((1, 1, 1, 4)))]
            if self.dice.random() < 0.1:
                for hook in hooks:
                    hook.kill()

    def _append(self, name: str, size: int) -> None:
        start = self.grown[name]
        with (self.transcripts / name).open("ab") as file:
            file.write(self.whole[name][start : start + size])
        self.grown[name] = min(start + size, len(self.whole[name]))

    def _hook(self, name: str) -> subprocess.Popen[bytes]:
        """Start the hook as the client does."""
        event = {
            "hook_event_name": self.dice.choice(EVENTS), "session_id": self.sessions[name], "cwd": "/home/dev/shop",
            "transcript_path": str(self.transcripts / name),
        }  # fmt: skip
        hook = subprocess.Popen(
            [sys.executable, "-I", "-S", str(hook_main.__file__)], env=self._env(), stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        assert hook.stdin is not None
        with hook.stdin as stdin:
            stdin.write(json.dumps(event).encode())
        self.hooks.append(hook)
        return hook

    def _suffer(self, misfortune: str) -> None:
        self.happened[misfortune] += 1
        if misfortune == "kill":
            time.sleep(self.dice.random() * 0.6)
            self.end_processes()
        elif misfortune == "fill" and self.can_fill:
            self._fill_disk()
        elif misfortune == "lose index":
            shutil.rmtree(self.database.with_name("index"), ignore_errors=True)
        elif misfortune in ("search", "sync"):
            self.command(*(("search", "commit") if misfortune == "search" else ("sync",)))
        elif misfortune == "rewrite":
            self._rewrite(self.dice.choice(sorted(self.whole)))
        elif misfortune == "forget":
            self._forget()
        elif misfortune == "move":
            self.transcripts = self.transcripts.rename(self.transcripts.with_name(f"-home-dev-{self.dice.random()}"))
        elif misfortune not in ("", "fill") and self.database.exists():
            self.end_processes()
            self.damage(misfortune)
            for words in (["search", "commit"], ["verify"]):
                self.command(*words)
            self.repair(misfortune)

    def repair(self, misfortune: str) -> str:
        """Repair, in half of the cases after a repair that is killed. Return what was printed."""
        told = ""
        if self.dice.random() < 0.5:
            try:
                told = self.command("verify", "--repair", seconds=self.dice.random()).stdout
            except subprocess.TimeoutExpired as killed:  # perhaps after it had told everything
                told = (killed.stdout or b"").decode()
        done = self.command("verify", "--repair")
        if done.returncode not in REPAIR_EXIT_CODES:
            self.failures.append(
                f"repair after {misfortune}: {done.returncode}, {done.stdout[-300:]}{done.stderr[-300:]}"
            )
        return told + done.stdout + done.stderr

    def _fill_disk(self) -> None:
        """Fill the disk, run the hook and what a person would ask then, and make room again."""
        filler = self.home / "filler"
        try:
            with filler.open("wb", buffering=0) as file:
                while file.write(bytes(65536)):
                    pass
        except OSError:
            pass
        self._hook(self.dice.choice(sorted(self.whole))).wait()
        for words in (["status"], ["search", "commit"], ["doctor"]):
            self.command(*words)
        filler.unlink()

    def _forget(self) -> None:
        """Forget what has some word."""
        self.command("sync")
        before = self.archived()
        words = sorted(
            set(re.findall(r"[A-Za-z]{6,}", " ".join(line for line in before if not line.endswith(", []]"))))
        )
        if words:
            self.command("forget", "--query", self.dice.choice(words), "--yes")
            after = self.archived()
            self.forgotten |= {_id_of(line) for line in before - after}

    def _rewrite(self, name: str) -> None:
        """Replace a transcript by a copy, as a synchronised folder does."""
        path = self.transcripts / name
        if path.exists():
            copy = shutil.copyfile(path, path.with_suffix(".copy"))
            copy.replace(path)

    def damage(self, kind: str) -> None:
        """Damage the database or an archive."""
        if kind.endswith(" archive"):
            archives = sorted(path for path in (self.home / ".ldm" / "agents").rglob("*.zst") if path.stat().st_size)
            if not archives:
                return
            path = self.dice.choice(archives)
            data = bytearray(path.read_bytes())
            if kind == "lose archive":
                path.unlink()
            elif kind == "flip archive":
                data[self.dice.randrange(len(data))] ^= 1 << self.dice.randrange(8)
                path.write_bytes(data)
            else:
                path.write_bytes(data[: self.dice.randrange(len(data))])
        elif kind == "delete":
            self.database.unlink()
        elif kind == "lose log":
            self.database.with_name("crystal.db-wal").unlink(missing_ok=True)
        else:
            data = bytearray(self.database.read_bytes())
            damage.HARMS[kind](data, self.dice)
            self.database.write_bytes(data)


def _id_of(line: str) -> str:
    """Return the id of an exported line, which its copies in other sessions have too; itself if it has none."""
    uuid = json.loads(json.loads(line)[1]).get("uuid")
    return str(uuid) if uuid else line


def _session_of(transcript: bytes) -> str:
    found = re.search(rb'"sessionId":"([^"]+)"', transcript)
    assert found is not None
    return found[1].decode()


def try_seeds(kind: Callable[[Path, int, bool], Trial]) -> None:
    """Try one seed after the other, and keep the homes of those that fail."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the homes are made; what fails is kept there")
    parser.add_argument("first_seed", type=int, nargs="?", default=1)
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--full-disk", action="store_true", help="fill the disk too: the folder must be a small one")
    given = parser.parse_args()
    for seed in range(given.first_seed, sys.maxsize):
        folder = given.folder / str(seed)
        trial = kind(folder / "home", seed, given.full_disk)
        trial.run(given.steps)
        found = trial.differences(folder / "clean")
        print(f"seed {seed}: {found} {trial.failures}", flush=True)
        if not (any(found.values()) or trial.failures):
            shutil.rmtree(folder)


if __name__ == "__main__":
    try_seeds(Trial)
