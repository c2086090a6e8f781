"""Run the program of an agent whose sessions only it can write."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from crystal.errors import NotConfiguredError, UnavailableError

SECONDS = 120.0


def run_program(*command: str, cwd: Path) -> str:
    """Return what a program prints.

    Raises:
        NotConfiguredError: It is not installed.
        UnavailableError: It fails, or does not end.
    """
    program = shutil.which(command[0])
    if program is None:
        raise NotConfiguredError(f"{command[0]} is not installed; crystal needs it to import the session")
    named = " ".join(command[:2])
    try:
        ran = subprocess.run(
            [program, *command[1:]],
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise UnavailableError(f"{named} did not end within {SECONDS:.0f} s") from error
    except OSError as error:
        raise UnavailableError(f"{named} cannot be run: {error}") from error
    if ran.returncode:
        said = (ran.stderr or ran.stdout).decode("utf-8", "replace").strip()[-300:]
        raise UnavailableError(f"{named} failed: {said}")
    return ran.stdout.decode("utf-8", "replace")
