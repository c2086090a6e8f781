"""Changing one value of the settings file, and not a byte of what the user wrote around it.

The parser of the standard library does the reading here too: a statement is the fewest lines that parse by
themselves, and a comment starts at the first ``#`` before which the statement already has its value. Every edit is
proved before it is written: parsed again, the file must be what it was with just this key changed.

Why not tomlkit: everybody would carry 236 KB and 42 ms at import for this one command (tomllib: 11 ms), and it puts a
new key of a table below the comment that belongs to the next table (0.15). An edit that cannot be proved is refused.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from crystal.config.file import parse, parse_fragment, read_text
from crystal.config.load import checked, parse_text
from crystal.config.paths import alone_in, make_private_dir, write_private
from crystal.config.table import Setting, setting_for
from crystal.errors import UsageProblem

FIRST_LINE = "# Settings of crystal. All keys, their values and where these come from: crystal config\n"

Names = tuple[str, ...]
Tables = dict[str, Any]


def set_value(config_file: Path, key: str, value: object) -> Any:
    """Write one setting into the settings file, which is made if need be. Returns the value as it was checked.

    Text stands for the value as it does in a variable: ``"20"`` sets a number. Comments, order and layout stay.

    Raises:
        UsageProblem: There is no such key, the value is none of its values, or the file is not TOML. Nothing changed.
        Unavailable: The system refuses to write. Nothing changed.
    """
    setting = _writable(key)
    good = parse_text(setting, value, "") if isinstance(value, str) else checked(setting, value, "")
    written = list(good) if isinstance(good, tuple) else good
    make_private_dir(config_file.parent)
    with alone_in(config_file.parent):
        before = read_text(config_file)
        after = with_value(before or FIRST_LINE, key, written, config_file)
        _write(config_file, before, after)
    return good


def set_values(config_file: Path, values: Mapping[str, object]) -> None:
    """Write several settings at once, all or none; None takes one out. Otherwise as ``set_value``."""
    checked_values: dict[str, Any] = {}
    for key, value in values.items():
        setting = _writable(key)
        good = parse_text(setting, value, "") if isinstance(value, str) else value
        good = None if good is None else checked(setting, good, "")
        checked_values[key] = list(good) if isinstance(good, tuple) else good
    make_private_dir(config_file.parent)
    with alone_in(config_file.parent):
        before = read_text(config_file)
        after = before
        for key, value in checked_values.items():
            if value is None:
                after = without_value(after, key, config_file)
            else:
                after = with_value(after or FIRST_LINE, key, value, config_file)
        _write(config_file, before, after)


def unset_value(config_file: Path, key: str) -> bool:
    """Take one key out of the settings file, also one that is no setting. Return whether it was there.

    Raises:
        UsageProblem: It is neither in the file nor a setting, or the file is not TOML. Nothing changed.
        Unavailable: The system refuses to write. Nothing changed.
    """
    if config_file.exists():
        with alone_in(config_file.parent):
            before = read_text(config_file)
            after = without_value(before, key, config_file)
            _write(config_file, before, after)
        if after != before:
            return True
    setting_for(key)
    return False


def with_value(text: str, key: str, value: Any, path: Path) -> str:
    """Return the text of a settings file with ``key`` set to ``value``; ``path`` is for messages."""
    wanted = _changed(parse(text, path), key, value)
    lines = lines_of(text)
    place = tuple(key.split("."))
    statements = list(statements_in(lines))
    found = next((each for each in statements if not each.is_header and each.path == place), None)
    outer = next((each for each in statements if each.is_inline_table and each.path == place[:-1]), None)
    if found:
        lines[found.start : found.end] = [found.with_value(value)]
    elif outer:
        lines[outer.start : outer.end] = [outer.with_value({**outer.value, place[-1]: value})]
    else:
        _insert(lines, statements, place, value)
    return _proved("".join(lines), wanted, key, path)


def without_value(text: str, key: str, path: Path) -> str:
    """Return the text of a settings file without ``key``; ``path`` is for messages."""
    wanted = _changed(parse(text, path), key, None)
    lines = lines_of(text)
    place = tuple(key.split("."))
    for each in statements_in(lines):
        if not each.is_header and each.path == place:
            lines[each.start : each.end] = []
        elif each.is_inline_table and each.path == place[:-1] and place[-1] in each.value:
            rest = {name: inner for name, inner in each.value.items() if name != place[-1]}
            lines[each.start : each.end] = [each.with_value(rest)]
        else:
            continue
        return _proved("".join(lines), wanted, key, path)
    return text


class Statement(NamedTuple):
    """A table's header or one key with its value: the lines ``[start, end)``, and the place in the document."""

    start: int
    end: int
    path: Names
    is_header: bool
    text: str = ""
    value: Any = None

    @property
    def is_inline_table(self) -> bool:
        """Return whether it holds a whole table between braces."""
        return not self.is_header and isinstance(self.value, dict)

    def with_value(self, value: Any) -> str:
        """Return the statement with another value; key, spaces and the comment behind it stay."""
        equals = _equals(self.text)
        whole = parse_fragment(self.text)
        hashes = (match.start() for match in re.finditer("#", self.text))
        comment = next((at for at in hashes if parse_fragment(self.text[:at]) == whole), len(self.text))
        old = self.text[equals + 1 : comment]
        lead = old[: len(old) - len(old.lstrip(" \t"))]
        return self.text[: equals + 1] + lead + to_toml(value) + old[len(old.rstrip()) :] + self.text[comment:]


def to_toml(value: Any) -> str:
    """Return a value as TOML, on one line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, list | tuple):
        return "[" + ", ".join(to_toml(item) for item in value) + "]"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(name)} = {to_toml(item)}" for name, item in value.items()) + " }"
    return str(value)


def _writable(key: str) -> Setting:
    setting = setting_for(key)
    if setting.only_environment:
        hint = f"set the variable {setting.variables[-1].variable}"
        raise UsageProblem(f"{key} cannot be set in a file, because the hook reads none", hint=hint)
    return setting


def _write(path: Path, before: str, after: str) -> None:
    if after != before:
        write_private(path, after.encode())


def lines_of(text: str) -> list[str]:
    """Return the lines with their ends; only a line feed ends one, as in TOML."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def statements_in(lines: list[str]) -> Iterator[Statement]:
    """Yield the statements of a valid TOML document, in order; comments and blank lines belong to none."""
    table: Names = ()
    start = 0
    while start < len(lines):
        end = start + 1
        while (fragment := parse_fragment("".join(lines[start:end]))) is None and end < len(lines):
            end += 1
        text = "".join(lines[start:end])
        if text.lstrip(" \t").startswith("["):
            table = _innermost(fragment or {})
            yield Statement(start, end, table, is_header=True)
        elif fragment:
            inner = _innermost(parse_fragment(text[: _equals(text)] + "= 0") or {})
            yield Statement(start, end, table + inner, is_header=False, text=text, value=_at(fragment, inner))
        start = end


def _equals(text: str) -> int:
    """Return where the key of a statement ends; a quoted key may contain ``=`` itself."""
    return next(
        match.start() for match in re.finditer("=", text) if parse_fragment(text[: match.start()] + "= 0") is not None
    )


def _innermost(fragment: Tables) -> Names:
    """Return the names that lead to the only value that a fragment defines."""
    path: Names = ()
    inner: Any = fragment
    while isinstance(inner, dict) and inner:
        ((name, inner),) = inner.items()
        path = (*path, name)
    return path


def _at(tables: Tables, path: Names) -> Any:
    inner: Any = tables
    for name in path:
        inner = inner[name]
    return inner


def _insert(lines: list[str], statements: list[Statement], place: Names, value: Any) -> None:
    """Add a new line for a key: below its table's last line, or with a new table at the end."""
    crlf = any(line.endswith("\r\n") for line in lines)
    end_of_line = "\r\n" if crlf else "\n"
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += end_of_line
    headers = [number for number, each in enumerate(statements) if each.is_header]
    mine = next((number for number in headers if statements[number].path == place[:-1]), None)
    root = statements[: headers[0]] if headers else statements
    dotted = [each for each in root if len(place) > 1 and each.path[:-1] == place[:-1]]
    line = f"{place[-1]} = {to_toml(value)}{end_of_line}"
    if len(place) == 1:
        at = root[-1].end if root else _above(lines, statements)
        new = [line] if root or not headers else [line, end_of_line]
    elif mine is not None:
        after = next((number for number in headers if number > mine), len(statements))
        last = statements[after - 1]
        at = last.end
        new = ["" if last.is_header else _indent(lines[last.start]), line]
    elif dotted:
        at, new = dotted[-1].end, [f"{'.'.join(place[:-1])}.{line}"]
    else:
        at, new = len(lines), [end_of_line, f"[{'.'.join(place[:-1])}]{end_of_line}", line]
    lines[at:at] = ["".join(new)]


def _above(lines: list[str], statements: list[Statement]) -> int:
    """Return where the first top-level key goes: above the first header and the comment that belongs to it."""
    if not statements:
        return len(lines)
    at = statements[0].start
    while at and lines[at - 1].lstrip().startswith("#"):
        at -= 1
    return at


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]


def _changed(tables: Tables, key: str, value: Any) -> Tables:
    """Return the tables that the file must have after the edit: with ``key`` set, or without it for None."""
    table, _, name = key.rpartition(".")
    inner = tables.get(table, {}) if table else tables
    if not isinstance(inner, dict):
        return {}  # a value where a table belongs: no edit can prove itself, and the user is told
    inner = {each: old for each, old in inner.items() if each != name} | ({} if value is None else {name: value})
    return {**tables, table: inner} if table else inner


def _proved(text: str, wanted: Tables, key: str, path: Path) -> str:
    got = parse_fragment(text)
    if got is None or _filled(got) != _filled(wanted):
        raise UsageProblem(
            f"{path}: {key} cannot be changed without rewriting the file", hint="change it with an editor"
        )
    return text


def _filled(tables: Tables) -> Tables:
    """Return tables without the empty ones, which have no effect."""
    return {name: value for name, value in tables.items() if value != {}}
