"""What a turn costs the machine: processor time of the hook, its worker and all that they start.

    python benchmarks/worker_cost.py [--runs 20] [--folder DIR]

The hook runs as the client starts it, with its real worker. This process becomes the parent of every orphan
(``PR_SET_CHILD_SUBREAPER``), so it collects the times of processes that nobody waits for. A bare interpreter runs
between them, and the ratio is printed. Exits 1 where a target is missed. Linux only.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path

import orjson
from machine import HOOK, Machine
from session_world import Client, make_project
from sessions import Session
from words import Writer

PR_SET_CHILD_SUBREAPER = 36
TURN_SECONDS = 0.200
IDLE_SECONDS = 0.080
BARE = {
    "python -I -S -c pass": [sys.executable, "-I", "-S", "-c", "pass"],
    "python -c pass": [sys.executable, "-c", "pass"],
}


class Talk:
    """A session that goes on while it is measured."""

    def __init__(self, machine: Machine) -> None:
        writer = Writer(7)
        began = datetime.now(timezone.utc) - timedelta(hours=2)
        self.machine, self.turns = machine, 0
        self.session = Session(writer, Client(writer), make_project(writer, 0), began)
        self.path = machine.projects / "-home-dev-talk" / f"{self.session.id}.jsonl"
        self.path.parent.mkdir()
        self.path.touch()

    def say(self) -> str:
        """Append a prompt, a tool's call and result, and an answer; gives the answer."""
        self.turns += 1
        session, writer = self.session, self.session.writer
        session.now = datetime.now(timezone.utc)
        answer = writer.prose(1500) + f" zq{self.turns}"
        call = {"type": "tool_use", "id": f"toolu_{self.turns}", "name": "Bash", "input": {"command": "make test"}}
        result = {"type": "tool_result", "tool_use_id": call["id"], "content": writer.prose(2500)}
        for role, content in (
            ("user", f"what of {writer.prose(200)}"),
            ("assistant", [call]),
            ("user", [result]),
            ("assistant", [{"type": "text", "text": answer}]),
        ):
            self.append(session.linked({"type": role, "message": {"role": role, "model": "x", "content": content}}))
        return answer

    def append(self, line: dict[str, object]) -> None:
        with self.path.open("ab") as file:
            file.write(orjson.dumps(line) + b"\n")

    def hook(self, event: str, **more: str) -> float:
        """Run the hook and all that it starts; gives seconds of processor time."""
        told = {"session_id": self.session.id, "transcript_path": str(self.path), "cwd": "/home/dev"}
        return tree([*HOOK], self.machine.env, {**told, "hook_event_name": event, **more})

    def turn(self) -> float:
        """A turn that has ended: what was said is found when the worker has."""
        cost = self.hook("Stop", last_assistant_message=self.say())
        if not self.machine.value(f"SELECT count(*) FROM chunks WHERE text LIKE '%zq{self.turns}'"):
            raise RuntimeError("the turn was not captured")
        if self.machine.value("SELECT count(*) FROM chunks WHERE vector_generation = 0"):
            raise RuntimeError("a chunk has no vector")
        return cost

    def nothing(self) -> float:
        """A hook that brings nothing."""
        return self.hook("Stop")

    def bookkeeping(self) -> float:
        """What the client writes when nothing was said."""
        self.append({"type": "mode", "sessionId": self.session.id})
        return self.hook("Stop")

    def start(self) -> float:
        """A session's start, with a look at every transcript."""
        return self.hook("SessionStart", source="resume")


CASES: dict[str, tuple[Callable[[Talk], float], float | None]] = {
    "a turn": (Talk.turn, TURN_SECONDS),
    "nothing new": (Talk.nothing, IDLE_SECONDS),
    "bookkeeping lines only": (Talk.bookkeeping, None),
    "a session's start, nothing new": (Talk.start, None),
}


def tree(command: list[str], env: dict[str, str], told: dict[str, str] | None = None) -> float:
    """Run a command until it and every process that it left behind has ended; gives seconds of processor time.

    Raises:
        RuntimeError: One of them failed.
    """
    process = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # a bare interpreter may have ended
        process.stdin.write(json.dumps(told or {}).encode())
        process.stdin.close()
    spent = 0.0
    while True:
        try:
            _, status, used = os.wait4(-1, 0)
        except ChildProcessError:
            process.returncode = 0  # it was waited for here
            return spent
        if status:
            raise RuntimeError(f"a process ended with {os.waitstatus_to_exitcode(status)}")
        spent += used.ru_utime + used.ru_stime


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--folder", type=Path, help="work here and leave everything there")
    given = parser.parse_args(arguments)
    if not sys.platform.startswith("linux"):
        print("worker_cost: only Linux can collect the times of orphans")
        return 0
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")
    with tempfile.TemporaryDirectory(prefix="crystal-benchmark-", ignore_cleanup_errors=True) as temporary:
        machine = Machine(given.folder or Path(temporary))
        machine.crystal("init", "--yes", "--no-import")
        talk = Talk(machine)
        for step, _ in CASES.values():  # byte code is written, the session's first line of the log too
            step(talk)
        costs: dict[str, list[float]] = {name: [] for name in [*BARE, *CASES]}
        for _ in range(given.runs):
            for name, command in BARE.items():
                costs[name].append(tree(command, machine.env))
            for name, (step, _) in CASES.items():
                costs[name].append(step(talk))
    return report(costs)


def report(costs: dict[str, list[float]]) -> int:
    """Print medians and ratios; 1 where a target is missed."""
    bare, missed = statistics.median(costs["python -I -S -c pass"]), False
    for name, seconds in costs.items():
        median = statistics.median(seconds)
        target = CASES[name][1] if name in CASES else None
        told = f"{name}: median {1000 * median:.0f} ms of CPU, {median / bare:.1f} x a bare start"
        if target is not None:
            missed |= median > target
            told += f" (target: {1000 * target:.0f} ms, {'MISSED' if median > target else 'kept'})"
        print(told, flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
