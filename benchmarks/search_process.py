"""What a process of its own costs: the first question after its start, many after it, its memory. And the command.

Run as a script it is that process: it opens one way, answers questions from a file, and prints JSON.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from crystal.store.health.checks import sqlite_version

TYPER_AND_NUMPY = [sys.executable, "-c", "import typer, numpy"]
FACTOR, REST_MS = 3.0, 150.0
OURS = ("CRYSTAL_", "LDM_", "CLAUDE")


@dataclass(frozen=True)
class Memory:
    """Bytes of a process: what is its own (anonymous) and what the system may drop (pages of files)."""

    anonymous: int
    files: int

    @property
    def whole(self) -> int:
        return self.anonymous + self.files

    def __str__(self) -> str:
        if not self.whole:
            return "not known here"
        return f"{self.whole / 1e6:.0f} MB ({self.anonymous / 1e6:.0f} anonymous, {self.files / 1e6:.0f} of files)"


def own_memory() -> Memory:
    """The present memory of this process; zeros where there is no ``/proc``."""
    try:
        rows = dict(line.split(":", 1) for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:])
    except OSError:
        return Memory(0, 0)
    size = {name: int(value.split()[0]) * 1024 for name, value in rows.items()}
    return Memory(size["Anonymous"], size["Rss"] - size["Anonymous"])


def this_machine() -> str:
    """The machine that measures, in a line."""
    processor, info = platform.processor() or platform.machine(), Path("/proc/cpuinfo")
    if info.exists():
        rows = [line.split(":", 1) for line in info.read_text().splitlines() if line.startswith("model name")]
        processor = rows[0][1].strip() if rows else processor
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    system, python = f"{platform.system()} {platform.release()}", platform.python_version()
    libraries = f"SQLite {sqlite_version()}, NumPy {version('numpy')}"
    return f"machine: {system}, {os.cpu_count()} cores of {processor}{load}; Python {python}, {libraries}"


# ------------------------------------------------------------------------------------------------- one way, asked


def asked_alone(way: str, top: Path, chunks: int, dimension: int, lines: Sequence[str]) -> dict[str, Any]:
    """Start a process that answers questions one way: ms of its whole life, of each answer, its memory."""
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        file.write("\n".join(lines))
        file.flush()
        command = [sys.executable, __file__, way, str(top), str(chunks), str(dimension), file.name]
        start = time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=_env())
        wall = (time.perf_counter() - start) * 1000
    return {**json.loads(done.stdout), "wall": wall}


def main() -> None:
    way, top, chunks, dimension, file = sys.argv[1:]
    from search_questions import Question
    from search_stores import Place
    from search_ways import Crystal, Plain

    questions = [Question.from_json(line) for line in Path(file).read_text().splitlines()]
    start = time.perf_counter()
    opened = {"crystal": Crystal, "plain": Plain}[way](Place(Path(top), int(chunks), int(dimension)))
    taken = []
    for question in questions:
        opened.answer(question)
        taken.append((time.perf_counter() - start) * 1000)
        start = time.perf_counter()
    memory = own_memory()
    print(json.dumps({"ms": taken, "anonymous": memory.anonymous, "files": memory.files}))
    opened.close()


def _env() -> dict[str, str]:
    here = str(Path(__file__).parents[1])
    kept = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    return {**kept, "PYTHONPATH": here, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


# ------------------------------------------------------------------------------------------------------ the command


def measure_command(data: Path, texts: Sequence[str], runs: int) -> bool:
    """``crystal search`` in a new process against an interpreter that imports typer and NumPy, in turn."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        env = {**_env(), "HOME": home, "PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring"}
        subprocess.run([sys.executable, "-m", "crystal", "init"], env=env, capture_output=True, check=True, cwd=home)
        env["CRYSTAL_DATA_DIR"] = str(data)
        ours: list[float] = []
        bare: list[float] = []
        for at in range(runs + 1):
            command = [sys.executable, "-m", "crystal", "search", "--all", "--json", texts[at % len(texts)]]
            ours.append(_wall(command, env))
            bare.append(_wall(TYPER_AND_NUMPY, env))
        found = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
        answer = json.loads(found.stdout)
    ours, bare = ours[1:], bare[1:]  # the first of each fills caches
    middle, yardstick = statistics.median(ours), statistics.median(bare)
    bound = FACTOR * yardstick + REST_MS
    most = sorted(ours)[int(0.95 * (len(ours) - 1))]
    print(f"command: crystal search --json in a new process: median {middle:.0f} ms, p95 {most:.0f} ms, mode"
          f" {answer['mode']}, {len(answer['hits'])} hits; import typer, numpy: {yardstick:.0f} ms;"
          f" ratio {middle / yardstick:.2f}, bound {bound:.0f} ms")  # fmt: skip
    return middle < bound


def _wall(command: list[str], env: dict[str, str]) -> float:
    start = time.perf_counter()
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, cwd=env["HOME"])
    if done.returncode:
        raise RuntimeError(done.stderr)
    return (time.perf_counter() - start) * 1000


if __name__ == "__main__":
    main()
