"""A machine on which the hook is run as the client runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.copied_hook import copy_hook

SECRET = "the words of a private conversation"
STOP = {
    "session_id": "1f35fa49-0000-4000-8000-000000000001",
    "transcript_path": "/nowhere/1f35fa49.jsonl",
    "cwd": "/home/user/work",
    "hook_event_name": "Stop",
    "stop_hook_active": False,
    "last_assistant_message": SECRET,
    "background_tasks": [],
}
NOTE_KEYS = set("v at event session_id transcript_path agent_transcript_path cwd size private awaited".split())

FAKE_WORKER = """
import json, os, sys
def main():
    home = os.environ["LDM_HOME"]
    gate = os.path.join(home, "gate")
    if os.path.exists(gate):
        with open(os.path.join(home, "up"), "w"):
            pass
        with open(gate) as file:
            file.read()
    fds = {}
    for name in os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else []:
        try:
            fds[name] = os.readlink("/proc/self/fd/" + name)
        except OSError:
            pass
    told = {"pid": os.getpid(), "ppid": os.getppid(), "sid": os.getsid(0), "pgid": os.getpgid(0), "cwd": os.getcwd(),
            "fds": fds, "argv": sys.argv, "env": dict(os.environ), "isolated": sys.flags.isolated, "path": sys.path}
    target = os.path.join(home, "worker-%d.json" % os.getpid())
    with open(target + ".part", "w") as file:
        json.dump(told, file)
    os.rename(target + ".part", target)
"""


def run(command: list[str], **more: Any) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(command, capture_output=True, timeout=60, check=False, **more)


class Machine:
    """A copied hook, a memory folder for it, and what can be seen of both."""

    def __init__(self, root: Path) -> None:
        self.package = root / "package"
        self.hook = copy_hook(self.package, FAKE_WORKER)
        self.ldm = root / "ldm"
        self.ldm.mkdir()
        self.claude = root / "claude"
        (self.claude / "projects" / "p").mkdir(parents=True)
        self.env = {**os.environ, "LDM_HOME": str(self.ldm), "CRYSTAL_HOOK_WAIT": "1"}
        self.env["CLAUDE_CONFIG_DIR"] = str(self.claude)

    @property
    def command(self) -> list[str]:
        return [sys.executable, "-I", "-S", str(self.hook)]

    @property
    def spool(self) -> Path:
        return self.ldm / "memory" / "spool"

    def run(self, stdin: bytes | dict[str, Any], *arguments: str, **more: Any) -> bytes:
        """Run the hook to its end. It must succeed and not say a word on stderr; what it prints is returned."""
        given = stdin if isinstance(stdin, bytes) else json.dumps(stdin).encode() + b"\n"
        env = {**self.env, **more.pop("env", {})}
        env = {name: value for name, value in env.items() if value is not None}
        done = run([*self.command, *arguments], input=given, env=env, **more)
        assert (done.returncode, done.stderr) == (0, b"")
        return done.stdout

    def start(self, **more: Any) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.env, **more
        )

    def notes(self) -> list[dict[str, Any]]:
        return [json.loads(path.read_bytes()) for path in sorted(self.spool.glob("*.json"))]

    def workers(self) -> list[dict[str, Any]]:
        return [json.loads(path.read_bytes()) for path in self.ldm.glob("worker-*.json")]


def feed(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps(STOP).encode())
    process.stdin.close()
    process.stdin = None


def finish(process: subprocess.Popen[bytes]) -> tuple[bytes, bytes]:
    return process.communicate(timeout=60)


ALLOWED_MODULES = set(
    "os os.path posixpath genericpath stat _stat _collections_abc _json zlib session_start assist matching launch remember remember_line".split()
)
