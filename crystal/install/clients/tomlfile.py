"""Add the server to a client's TOML file, and remove it: text to text, without changing any other line.

A new entry is a separate table at the end, which TOML allows after anything; an update changes single statements. Every
result is parsed again and refused if it differs from the intended one (for the reasons against a library that rewrites
TOML see config/edit.py).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from crystal.config.edit import Statement, lines_of, statements_in, to_toml
from crystal.config.file import parse, parse_fragment
from crystal.errors import Damaged, UsageProblem
from crystal.install.clients.jsonfile import Taken
from crystal.install.clients.table import SERVER, Entry, is_ours, updated

Names = tuple[str, ...]
BARE = re.compile(r"[A-Za-z0-9_-]+")


class NotToml(ValueError):
    """The text is not TOML, or its servers are not a table."""


def with_server(text: str, servers: str, entry: Entry) -> str:
    """Return the document with exactly one entry of ours; an existing one is updated in place.

    Raises:
        NotToml: ``text`` is not TOML, or its servers are not a table.
        Taken: Another server has our name.
        Damaged: It cannot be added without rewriting the file.
    """
    tables = document_of(text)
    group = _group(tables, servers)
    old = group.get(SERVER)
    if old is None:
        wanted = entry.as_document()
        after = text + _block(text, servers, entry)
    elif is_ours(old):
        wanted = updated(old, entry)
        after = _brought_up(text, (servers, SERVER), old, wanted)
    else:
        raise Taken
    return _proved(after, {**tables, servers: {**group, SERVER: wanted}}, servers)


def without_server(text: str, servers: str) -> str:
    """Return the document without our entry, the tables below it, and the blank line above.

    Raises:
        NotToml, Damaged: See ``with_server``.
    """
    tables = document_of(text)
    group = _group(tables, servers)
    if not is_ours(group.get(SERVER)):
        return text
    lines = lines_of(text)
    place = (servers, SERVER)
    statements = list(statements_in(lines))
    gone: set[int] = set()
    for number, each in enumerate(statements):
        if each.path[:2] == place:
            gone.update(range(each.start, each.end))
            if each.is_header:
                gone.update(_with_table(lines, statements, number))
        elif each.is_inline_table and each.path == place[:1]:
            rest = {name: value for name, value in each.value.items() if name != SERVER}
            lines[each.start : each.end] = [each.with_value(rest), *[""] * (each.end - each.start - 1)]
    after = "".join(line for number, line in enumerate(lines) if number not in gone)
    if len(lines) - 1 in gone:
        after = _ending_as(text, after)
    rest = {name: value for name, value in group.items() if name != SERVER}
    return _proved(after, {**tables, servers: rest}, servers)


def document_of(text: str) -> dict[str, Any]:
    """Return the parsed document.

    Raises:
        NotToml: ``text`` is not TOML.
    """
    try:
        return parse(text, Path())
    except UsageProblem as error:
        raise NotToml(f"not valid TOML: {error.__cause__}") from error


def _group(tables: Mapping[str, Any], servers: str) -> dict[str, Any]:
    group = tables.get(servers, {})
    if not isinstance(group, dict):
        raise NotToml(f"{servers} should be a table")
    return group


def _block(text: str, servers: str, entry: Entry) -> str:
    """Return the table to append. It ends as the text ends, so that removing it restores the text exactly."""
    newline = "\r\n" if "\r\n" in text else "\n"
    lines = [f"[{servers}.{SERVER}]", f"command = {_toml(entry.command)}", f"args = {_toml(list(entry.args))}"]
    if entry.env:
        lines += ["", f"[{servers}.{SERVER}.env]"]
        lines += [f"{_key(name)} = {_toml(value)}" for name, value in entry.env.items()]
    block = newline.join(lines)
    if not text:
        return block + newline
    return newline + block + newline if text.endswith("\n") else newline * 2 + block


def _toml(value: Any) -> str:
    return to_toml(value).replace("\x7f", "\\u007f")


def _key(name: str) -> str:
    return name if BARE.fullmatch(name) else json.dumps(name)


def _with_table(lines: list[str], statements: list[Statement], number: int) -> range:
    """Return the lines of a table: its header and what is below it, comments in between, and a blank line above."""
    last = statements[number]
    for each in statements[number + 1 :]:
        if each.is_header:
            break
        last = each
    start = statements[number].start
    if start and not lines[start - 1].strip():
        start -= 1
    return range(start, last.end)


def _brought_up(text: str, place: Names, old: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    """Change the statements that differ; a table of variables may be a separate table or an inline one."""
    for name in ("command", "args"):
        if old.get(name) != wanted[name]:
            text = _set(text, (*place, name), wanted[name])
    before, after = old.get("env", {}), wanted.get("env", {})
    if before == after:
        return text
    if any(each.is_inline_table and each.path == (*place, "env") for each in statements_in(lines_of(text))):
        return _set(text, (*place, "env"), after)
    if "env" not in old:
        return _set(text, (*place, "env"), after)
    for name, value in after.items():
        if before.get(name) != value:
            text = _set(text, (*place, "env", name), value)
    for name in before:
        if name not in after:
            text = _unset(text, (*place, "env", name))
    return text


def _set(text: str, place: Names, value: Any) -> str:
    """Set one key: in its own statement, at the end of its table, or within its inline table."""
    lines = lines_of(text)
    statements = list(statements_in(lines))
    for each in statements:
        if not each.is_header and each.path == place:
            lines[each.start : each.end] = [each.with_value(value)]
            return "".join(lines)
        if each.is_inline_table and each.path == place[: len(each.path)]:
            lines[each.start : each.end] = [each.with_value(_nested(each.value, place[len(each.path) :], value))]
            return "".join(lines)
    for number, each in enumerate(statements):
        if each.is_header and each.path == place[:-1]:
            end = _with_table(lines, statements, number).stop
            newline = "\r\n" if "\r\n" in text else "\n"
            if not lines[end - 1].endswith("\n"):
                lines[end - 1] += newline
                newline = ""
            lines.insert(end, f"{_key(place[-1])} = {_toml(value)}{newline}")
            return "".join(lines)
    return text


def _nested(tables: Any, place: Names, value: Any) -> Any:
    if not place:
        return value
    inner = tables if isinstance(tables, dict) else {}
    return {**inner, place[0]: _nested(inner.get(place[0]), place[1:], value)}


def _unset(text: str, place: Names) -> str:
    lines = lines_of(text)
    for each in statements_in(lines):
        if not each.is_header and each.path == place:
            del lines[each.start : each.end]
            return _ending_as(text, "".join(lines))
    return text


def _ending_as(text: str, shorter: str) -> str:
    """Return the rest of a text, ending in a newline only if the whole did."""
    return shorter if text.endswith("\n") else re.sub(r"\r?\n\Z", "", shorter)


def _proved(text: str, wanted: Mapping[str, Any], servers: str) -> str:
    """Return ``text`` if it has the intended meaning; an empty table of servers means nothing."""

    def said(tables: Mapping[str, Any]) -> str:
        filled = {name: value for name, value in tables.items() if name != servers or value}
        return json.dumps(filled, sort_keys=True, default=repr)

    got = parse_fragment(text)
    if got is None or said(got) != said(wanted):
        raise Damaged("the entry cannot be changed without rewriting the file")
    return text
