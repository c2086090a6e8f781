"""A copy of the hook whose worker only tells that it ran."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from crystal.context.choosing import Choice, SessionContext
from crystal.context.prepared import PreparedContext, Rules, write_contexts
from crystal.hook import event as hook

SESSION = "1f35fa49-0000-4000-8000-000000000001"
START = {"session_id": SESSION, "cwd": "/home/dev/shop", "hook_event_name": "SessionStart", "source": "startup"}
HOOK_FILES = (
    "main.py", "event.py", "assist.py", "matching.py", "other_agents.py", "session_start.py", "launch.py", "remember.py",
    "remember_line.py",
)  # fmt: skip
WORKER = "import os\ndef main():\n    open(os.path.join(os.environ['LDM_HOME'], 'worked'), 'a').write('x')\n"


def copy_hook(folder: Path, worker: str) -> Path:
    """Copy the hook into a folder, with another worker; return its main file."""
    package = folder / "crystal"
    (package / "hook").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "worker.py").write_text(worker)
    for name in HOOK_FILES:
        (package / "hook" / name).write_bytes(Path(hook.__file__).with_name(name).read_bytes())
    return package / "hook" / "main.py"


@contextlib.contextmanager
def _streams_of(given: bytes) -> Iterator[BinaryIO]:
    """Let the standard input be these bytes, and the standard output a file."""
    with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as stdout, contextlib.ExitStack() as undo:
        stdin.write(given)
        stdin.seek(0)
        for number, file in enumerate((stdin, stdout)):
            kept = os.dup(number)
            undo.callback(os.close, kept)
            undo.callback(os.dup2, kept, number)
            os.dup2(file.fileno(), number)
        yield stdout


@contextlib.contextmanager
def _umask_kept() -> Iterator[None]:
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


class Hook:
    """The hook: in this process and without a worker, or a copied one, whose worker only tells that it ran."""

    def __init__(self, root: Path) -> None:
        self.ldm = root / "ldm"
        self.data = self.ldm / "memory"
        self.data.mkdir(parents=True)
        self.root = root

    @functools.cached_property
    def command(self) -> list[str]:
        return [sys.executable, "-I", "-S", str(copy_hook(self.root / "package", WORKER))]

    def run(self, said: dict[str, Any], env: dict[str, str] | None = None, agent: str = "") -> Any:
        """Run it, for Claude Code or as another agent does; gives what it prints, parsed, None when that is nothing."""
        arguments = ["--harness", agent, "--event", said["hook_event_name"]] if agent else []
        with pytest.MonkeyPatch.context() as patch, _umask_kept(), _streams_of(json.dumps(said).encode()) as printed:
            for name in ("_open_standard_streams", "_hurry_on_signals", "_start_worker"):
                patch.setattr(hook, name, lambda *_: None)
            for name, value in {"LDM_HOME": str(self.ldm), **(env or {})}.items():
                patch.setenv(name, value)
            hook.main(arguments)
            printed.seek(0)
            found = printed.read()
        return json.loads(found) if found else None

    def start(self, said: dict[str, Any], code: tuple[str, ...] = (), env: dict[str, str] | None = None) -> Any:
        """Run it, or other code in its place, as a process of its own, to the end of its worker."""
        done = subprocess.run(
            [*self.command[:3], *code] if code else self.command,
            input=json.dumps(said).encode(),
            env={**os.environ, "LDM_HOME": str(self.ldm), "CRYSTAL_HOOK_WAIT": "1", **(env or {})},
            capture_output=True,
            timeout=60,
            check=True,
        )
        assert done.stderr == b""
        return json.loads(done.stdout) if done.stdout else None

    def told(self, **said: Any) -> str | None:
        env = said.pop("env", {})
        answer = self.run({**START, **said}, env=env)
        return None if answer is None else unfenced(answer["hookSpecificOutput"]["additionalContext"])

    @property
    def notes(self) -> list[dict[str, Any]]:
        return [json.loads(path.read_bytes()) for path in sorted((self.data / "spool").glob("*.json"))]

    def lay_ready(self, folders: dict[str, str], rules: Rules | None = None) -> None:
        ready = [PreparedContext(None if cwd == "default" else cwd, told(text)) for cwd, text in folders.items()]
        write_contexts(self.data, rules or Rules("/none", "-", {}), ready)


def unfenced(text: str) -> str:
    """What stands in a fence whose tags have the same nonce."""
    match = re.fullmatch(r"<crystal-memory-([a-z0-9]{6})>\n(.*)\n</crystal-memory-\1>", text, re.DOTALL)
    assert match, text[:60]
    return match[2]


def told(text: str) -> SessionContext:
    return SessionContext(text, (Choice("mem-0123456789ab", "memory", text, True, "why"),), 2, 34)
