"""Read the settings file, which is TOML."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from crystal.config.json_file import read_regular
from crystal.errors import UsageError

MAX_DIGITS = 18


def read_file(path: Path) -> dict[str, Any]:
    """Read the settings file as tables; a missing file gives none.

    Raises:
        UsageError: The file is not UTF-8 or not TOML; the message names the line.
        UnavailableError: The system refuses to read it.
    """
    return parse(read_text(path), path)


def read_text(path: Path) -> str:
    """Read the file's text without a byte order mark; a missing file gives an empty text.

    Raises:
        UsageError: It is not UTF-8.
        UnavailableError: The system refuses to read it.
    """
    raw = read_regular(path) or b""
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise UsageError(f"{path} is not UTF-8 text (line {line})", hint="save the file as UTF-8") from error


def _loads(text: str) -> dict[str, Any]:
    """Parse TOML, without a full parser for most files: the hook's worker reads the settings at every turn."""
    plain = _plain(text)
    return _by_parser(text) if plain is None else plain


def _by_parser(text: str) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib  # noqa: PLC0415 - takes longer than all settings of most files
    else:
        import tomli as tomllib  # noqa: PLC0415
    return tomllib.loads(text)


def _plain(text: str) -> dict[str, Any] | None:
    """Parse a file as crystal writes it, with one value per line; return None if it needs a full TOML parser."""
    tables: dict[str, Any] = {}
    table = tables
    for line in text.split("\n"):
        name, equals, value = line.partition(" = ")
        if not line.replace("\t", "").isprintable():
            return None
        if not line or line[0] == "#":
            continue
        if line[0] == "[" and line[-1] == "]" and _is_name(line[1:-1]) and line[1:-1] not in tables:
            table = tables[line[1:-1]] = {}
        elif equals and _is_name(name) and name not in table and (found := _plain_value(value)) is not None:
            table[name] = found
        else:
            return None
    return tables


def _is_name(text: str) -> bool:
    return text.isascii() and text.isidentifier()


def _plain_value(text: str) -> str | int | bool | None:
    """Parse a string without escapes, a small number or a boolean; return None for any other value."""
    inner = text[1:-1]
    if len(text) > 1 and text[0] == text[-1] == '"' and '"' not in inner and "\\" not in inner:
        return inner
    if text.isascii() and text.isdigit() and len(text) < MAX_DIGITS and str(int(text)) == text:
        return int(text)
    return {"true": True, "false": False}.get(text)


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
    """Parse TOML, or return None if the text is not TOML, to find the end of a statement."""
    try:
        return _loads(text)
    except (ValueError, RecursionError):
        return None
