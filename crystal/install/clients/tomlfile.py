"""Add the server to a client's TOML file, and remove it: text to text, without changing any other line.

A new entry is a separate table at the end, which TOML allows after anything, so that removing it leaves the text as it
was. The caller compares what the file means before and after.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from crystal.config.edit import set_in, unset_in
from crystal.config.settings_file import parse, parse_fragment
from crystal.errors import DamagedError, UsageError
from crystal.install.clients.jsonfile import NameTakenError
from crystal.install.clients.table import SERVER, ServerCommand, is_ours, updated

BLANK_END = re.compile(r"^(?:[ \t]*(?:#[^\n]*)?\r?\n)*[ \t]*(?:#[^\n]*)?\Z", re.MULTILINE)
"""Blank lines and comments at the end of a text."""
OURS = re.compile(rf"[ \t]*\[[^\n]*\b{SERVER}\b")


class TomlSyntaxError(ValueError):
    """The text is not TOML, or its servers are not a table."""


def with_server(text: str, servers: str, entry: ServerCommand) -> str:
    """Return the document with exactly one entry of ours; an existing one is updated in place.

    Raises:
        TomlSyntaxError: ``text`` is not TOML, or its servers are not a table.
        NameTakenError: Another server has our name.
        DamagedError: It cannot be added without rewriting the file.
    """
    old = _group(document_of(text), servers).get(SERVER)
    if old is None:
        return _checked(text + _block(text, servers, entry))
    if not is_ours(old):
        raise NameTakenError
    place = _region(text, servers, old) or slice(0, len(text))
    changed = _brought_up(text[place], (servers, SERVER), old, updated(old, entry))
    return _checked(text[: place.start] + changed + text[place.stop :])


def without_server(text: str, servers: str) -> str:
    """Return the document without our entry, the tables below it, and the blank line above.

    Raises:
        TomlSyntaxError, Damaged: See ``with_server``.
    """
    entry: Any = _group(document_of(text), servers).get(SERVER)
    if not is_ours(entry):
        return text
    place = _region(text, servers, entry)
    if place is None:
        return _checked(unset_in(text, (servers,), SERVER))
    above = re.sub(r"(?:(?<=\n)|\A)[ \t]*\r?\n\Z", "", text[: place.start])
    left = above + text[place.stop :]
    return _checked(_ending_as(text, left) if place.stop == len(text) else left)


def document_of(text: str) -> dict[str, Any]:
    """Return the parsed document.

    Raises:
        TomlSyntaxError: ``text`` is not TOML.
    """
    try:
        return parse(text, Path())
    except UsageError as error:
        raise TomlSyntaxError(f"not valid TOML: {error.__cause__}") from error


def _group(tables: Mapping[str, Any], servers: str) -> dict[str, Any]:
    group = tables.get(servers, {})
    if not isinstance(group, dict):
        raise TomlSyntaxError(f"{servers} should be a table")
    return group


def _block(text: str, servers: str, entry: ServerCommand) -> str:
    """Return the table to append. It ends as the text ends, so that removing it restores the text exactly."""
    import tomlkit  # noqa: PLC0415 - as in config/edit.py

    newline = "\r\n" if "\r\n" in text else "\n"
    values = {"command": entry.command, "args": list(entry.args)}
    lines = [
        f"[{servers}.{SERVER}]",
        *(f"{name} = {tomlkit.item(value).as_string()}" for name, value in values.items()),
    ]
    if entry.env:
        lines += ["", f"[{servers}.{SERVER}.env]"]
        lines += [
            f"{tomlkit.key(name).as_string()} = {tomlkit.item(value).as_string()}" for name, value in entry.env.items()
        ]
    block = newline.join(lines)
    if not text:
        return block + newline
    return newline + block + newline if text.endswith("\n") else newline * 2 + block


def _region(text: str, servers: str, entry: Mapping[str, Any]) -> slice | None:
    """Return the place of our tables, without comments after them; None if the entry is not written as tables."""
    headers = [match.start() for match in re.finditer(r"^[ \t]*\[", text, re.MULTILINE)]
    for number, start in enumerate(headers):
        for end in (*headers[number + 1 :], len(text)) if OURS.match(text, start) else ():
            region = BLANK_END.sub("", text[start:end])
            if parse_fragment(region) == {servers: {SERVER: entry}}:
                return slice(start, start + len(region))
    return None


def _brought_up(text: str, place: tuple[str, ...], old: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    """Change the keys that differ; a table of variables may be a separate table or an inline one."""
    after: str | None = text
    before = {name: value for name, value in old.items() if name != "env"}
    for name in ("command", "args", "env") if "env" not in old else ("command", "args"):
        if name in wanted and before.get(name) != wanted[name]:
            after = set_in(after or "", place, name, wanted[name])
    env, new = old.get("env", {}), wanted.get("env", {}) if "env" in old else {}
    for name in env:
        if name not in new:
            after = unset_in(after or "", (*place, "env"), name)
    for name, value in new.items():
        if env.get(name) != value:
            after = set_in(after or "", (*place, "env"), name, value)
    return _ending_as(text, after or "")


def _ending_as(text: str, after: str) -> str:
    """Return a text that ends in a newline only if another one does."""
    return after if text.endswith("\n") else re.sub(r"\r?\n\Z", "", after)


def _checked(text: str | None) -> str:
    if text is None or parse_fragment(text) is None:
        raise DamagedError("the entry cannot be changed without rewriting the file")
    return text
