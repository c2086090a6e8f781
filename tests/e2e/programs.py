"""The real programs: npm installs each once, each is asked once whether it answers, and both are remembered.

A program that cannot be had, or does not answer, would cost every one of its tests the whole of its patience.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

ENVIRON = dict(os.environ)
"""The environment of the one who runs the tests, before the tests emptied it and moved HOME."""
ANSWERS = "answers"
REMEMBERED_SECONDS = 1800.0
NPM_SECONDS = 60.0
INSTALL_SECONDS = 600.0


class NoClient(Exception):
    """Why a program cannot be had here: its tests are skipped."""


class NoAnswer(AssertionError):
    """Why a program that is there cannot be used: its tests fail."""


def cache_folder(environ: Mapping[str, str] = ENVIRON) -> Path:
    """Return where real programs are installed; never in a test's own home."""
    caches = environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME", "/"), ".cache")
    return Path(environ.get("CRYSTAL_E2E_CACHE") or Path(caches, "crystal-e2e")).absolute()


def run_to_end(
    command: Sequence[str | Path], seconds: float, cwd: Path, env: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run a command; end it, and what it has started, when its time is over.

    Raises:
        AssertionError: It did not end in time.
    """
    words = [str(word) for word in command]
    with subprocess.Popen(
        words, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, encoding="utf-8", errors="replace", start_new_session=True,
    ) as process:  # fmt: skip
        try:
            out, err = process.communicate(timeout=seconds)
        except BaseException as error:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            said = b"".join(part or b"" for part in (error.output, error.stderr))  # type: ignore[list-item]
            told = f"{Path(words[0]).name} {' '.join(words[1:])[:300]} did not end within {seconds:.0f} s"
            raise AssertionError(f"{told}; it printed {said[-500:]!r}") from None
    return subprocess.CompletedProcess(words, process.returncode, out, err)


def installed(name: str, packages: Sequence[str], command: str, cache: Path, answers: Callable[[Path], object]) -> Path:
    """Return a program of npm's that answers; it is installed if it is not there yet.

    Args:
        name: Its folder in the cache; the version that is pinned comes behind it.
        packages: What npm installs, in this order: a first ``node`` installs the others, since some refuse an older one.
        command: The program's name.
        cache: The folder of all programs.
        answers: Asks it something; raises AssertionError or OSError if it does not answer.

    Raises:
        NoClient: npm cannot install it.
        NoAnswer: It is there, and does not answer.
    """
    pinned = packages[-1].rpartition("@")
    folder = cache / (f"{name}-{pinned[2]}" if pinned[0] else name)
    program = folder / "node_modules" / ".bin" / command
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / f"{folder.name}.lock").open("a+", encoding="utf-8") as note:
        fcntl.flock(note, fcntl.LOCK_EX)  # tests in other processes ask for it just now
        note.seek(0)
        found = note.read()
        is_old = time.time() - os.fstat(note.fileno()).st_mtime > REMEMBERED_SECONDS
        if not found or is_old or (found == ANSWERS and not program.exists()):
            found = _find_out(program, folder, packages, answers)
            note.truncate(0)
            note.write(found)
    if found == ANSWERS:
        return program
    told = f"{found} (remembered for half an hour: to try again at once, delete {note.name})"
    raise NoAnswer(told) if program.exists() else NoClient(told)


def install_inspector() -> Path:
    """Return the official MCP Inspector, in the newest version that this machine's Node can run.

    Raises:
        NoClient: npm cannot install it.
    """
    return installed("mcp-inspector", ["@modelcontextprotocol/inspector"], "mcp-inspector", cache_folder(), str)


def install_conformance() -> Path:
    """Return the suite that MCP's authors test servers with, in a version that Node 20 runs.

    Raises:
        NoClient: npm cannot install it.
    """
    return installed(
        "mcp-conformance", ["@modelcontextprotocol/conformance@0.1.13"], "conformance", cache_folder(), str
    )


def _find_out(program: Path, folder: Path, packages: Sequence[str], answers: Callable[[Path], object]) -> str:
    try:
        if not program.exists():
            _npm_install(folder, packages)
        answers(program)
    except (AssertionError, OSError, NoClient) as reason:
        told = f"{packages[-1]} does not answer" if program.exists() else f"npm could not install {packages[-1]}"
        return f"{told}: {reason}"
    return ANSWERS


def _npm_install(folder: Path, packages: Sequence[str]) -> None:
    npm = shutil.which("npm", path=ENVIRON.get("PATH"))
    if npm is None:
        raise NoClient("npm is not here")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    env = {**ENVIRON, "PATH": f"{folder / 'node_modules' / '.bin'}{os.pathsep}{ENVIRON['PATH']}"}
    install = (npm, "install", "--prefix", str(folder), "--no-audit", "--no-fund")
    try:
        run_to_end((npm, "view", packages[-1], "version"), NPM_SECONDS, folder, env)  # whether the registry answers
        for package in packages:
            done = run_to_end((*install, package), INSTALL_SECONDS, folder, env)
            if done.returncode:
                raise NoClient((done.stderr or done.stdout).strip()[-300:])
    except BaseException:
        shutil.rmtree(folder)  # half of a program is none
        raise
