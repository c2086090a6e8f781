"""The settings file, read as TOML."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from crystal.config.paths import refused
from crystal.errors import UsageError


def read_file(path: Path) -> dict[str, Any]:
    """Read the settings file as tables; a missing file gives none.

    Raises:
        UsageError: The file is not UTF-8 or not TOML; the message says in which line.
        UnavailableError: The system refuses to read it.
    """
    return parse(read_text(path), path)


def read_text(path: Path) -> str:
    """Read the file's text without a byte order mark; a missing file gives an empty text.

    Raises:
        UsageError: It is not UTF-8.
        UnavailableError: The system refuses to read it.
    """
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise refused(error, path) from error
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise UsageError(f"{path} is not UTF-8 text (line {line})", hint="save the file as UTF-8") from error


def _loads(text: str) -> dict[str, Any]:
    """Parse TOML. Imported when there is a file: the hook's worker reads the settings at every turn."""
    if not text:
        return {}
    if sys.version_info >= (3, 11):
        import tomllib  # noqa: PLC0415 - as said above
    else:
        import tomli as tomllib  # noqa: PLC0415
    return tomllib.loads(text)


def parse(text: str, path: Path) -> dict[str, Any]:
    """Parse TOML.

    Raises:
        UsageError: It is not TOML; the message names ``path`` and the line.
    """
    try:
        return _loads(text)
    except (ValueError, RecursionError) as error:
        last = f"at line {text.count(chr(10)) + 1}, the end"
        problem = str(error).replace("at end of document", last)
        raise UsageError(f"{path} is not valid TOML: {problem}", hint=f"correct the file: {path}") from error


def parse_fragment(text: str) -> dict[str, Any] | None:
    """Parse TOML; None where it is none, for those who try where a statement ends."""
    try:
        return _loads(text)
    except (ValueError, RecursionError):
        return None
