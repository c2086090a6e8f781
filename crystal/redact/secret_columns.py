r"""Find passwords and tokens in tables: in CSV and TSV files, in Markdown, and as psql and mysql print them.

A line is the head of a table if a rule of dashes follows, or if it holds nothing but names between commas, semicolons
or tabs. Its names tell which columns hold secrets; the rows go on as long as they have as many cells.
"""

from __future__ import annotations

from collections.abc import Iterator

from crystal.model.named_tuple import NamedTuple
from crystal.redact.judge import is_code
from crystal.redact.named_value_hints import ANY_NAME
from crystal.redact.named_values import is_secret_beside
from crystal.redact.regex_engines import Lazy, scanner
from crystal.redact.secret_names import strength
from crystal.redact.spans import NAMED, Span
from crystal.redact.work_limit import CALL, FINDING, RedactionWork

_LINE_END = rb"(?:\\+r|\r)?(?:\\+n|\n)"
_TAB = rb"(?:[,;\t]|\\+t)"
_QUOTE = rb"\\*\"?"
_RULE_HINT = _LINE_END + rb"(?:[ \t|+:0-9]|\\+(?:t|u2192)|\xe2\x86\x92)*--"
TABLE_HINTS = (
    ANY_NAME + rb"[\w \t|.`*()/+-]*" + _RULE_HINT,
    ANY_NAME + _QUOTE + _TAB + _QUOTE + rb"[A-Za-z_](?:[\w .,;\t\"/-]|\\+[t\"])*" + _LINE_END,
    _TAB + _QUOTE + rb"[\w .-]*" + ANY_NAME + _QUOTE + _LINE_END,
)
"""Pattern found in every raw line that has the head of a table in one of its strings (RE2 and ``re`` syntax)."""

_MAX_LINE = 4096
_LINE_NUMBER = Lazy(rb"[ \t]*\d+(?:\t|\xe2\x86\x92)|")
_RULE = Lazy(rb"[|+:= \t]*--[|+:= \t-]*\r?")
_JSON_END = Lazy(rb"\"\s*[\]},]")
_NAME = Lazy(rb"[A-Za-z_][\w./-]{0,39}(?: [\w./-]{1,20}){0,2}")
_CELLS = {
    b"|": Lazy(rb"((?:\\.|[^|\\]+|\\)*)(\||$)"),
    **{comma: Lazy(rb'((?:"[^"]*"|[^"%b]+|")*)(%b|$)' % (comma, comma)) for comma in (b"\t", b",", b";")},
}
_USER = Lazy(rb"(?i)user|login|name|mail|account|host|ur[li]|site|service|server|address|database|role|\bid\b")
"""A column beside that of a password which makes a plain word in it a password, too."""
_LETTERS = Lazy(rb"[A-Za-z]+")
_SPACE = Lazy(rb"\s")


class _Table(NamedTuple):
    """Form of a table: what divides cells, what surrounds a value, its columns, and those that hold secrets."""

    comma: bytes
    padding: bytes
    width: int
    secrets: dict[int, bytes]
    names_users: bool


def holds_table(text: bytes) -> bool:
    """Return whether a raw text may hold the head of a table with a column of secrets.

    Most random letters have neither a sign that divides columns nor a rule of dashes: telling this takes no time.
    """
    if any(sign in text for sign in _DIVIDING) or scanner((_RULE_HINT,))(text) is not None:
        return scanner(TABLE_HINTS)(text) is not None
    return False


_DIVIDING = (b",", b";", b"\t", b"\\t")


def table_spans(text: bytes, work: RedactionWork) -> Iterator[Span]:
    """Yield the secrets that are in tables under telling names."""
    if not holds_table(text):
        return
    search, at = scanner(TABLE_HINTS), 0
    while (hint := search(text, at)) is not None:
        work.spend(8 * CALL)
        start, end, at = _line(text, text.rfind(b"\n", at, hint.start() + 1) + 1 or at)
        if text.count(b'"', start, end) % 2:  # a string of JSON begins in it
            start, end, _ = _line(text, text.rfind(b'"', start, end) + 1)
        table = _table(text[start:end], text[slice(*_line(text, at)[:2])])
        while table is not None and at < len(text):
            start, end, following = _line(text, at)
            if _RULE.fullmatch(text, start, end) is None:
                if text.count(b'"', start, end) % 2 and (quote := _JSON_END.search(text, start, end)):
                    end = following = quote.start()
                work.spend(2 * CALL + 4 * (end - start))
                cells = list(_cells(table.comma, text, start, end))
                if len(cells) != table.width:
                    break
                for number, name in table.secrets.items():
                    yield from _secret(text, *cells[number], name, table, work)
            at = following


def _line(text: bytes, start: int) -> tuple[int, int, int]:
    """Return where the line at ``start`` begins after its number and where it ends, and where the next begins."""
    end = text.find(b"\n", start)
    end = end if end >= 0 else len(text)
    return _LINE_NUMBER.match(text, start, end).end(), end, min(end + 1, len(text))  # type: ignore[union-attr]


def _cells(comma: bytes, text: bytes, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield where the cells of a line are; the bars on both sides of a row are not among what divides them."""
    if comma == b"|":
        line = text[start:end].rstrip()
        start, end = start + (len(line) - len(line.lstrip(b" \t"))), start + len(line.removesuffix(b"|"))
        start += text.startswith(b"|", start)
    for found in _CELLS[comma].finditer(text, start, end) if end - start <= _MAX_LINE else ():
        yield found.span(1)
        if not found[2]:
            break


def _table(head: bytes, following: bytes) -> _Table | None:
    """Read the head of a table; None if the line is no head, or no column holds secrets."""
    comma = b"|" if _RULE.fullmatch(following) else next((comma for comma in (b"\t", b",", b";") if comma in head), b"")
    padding = b" \t\r`*" if comma == b"|" else b' \t\r"'
    names = [head[slice(*cell)].strip(padding) for cell in _cells(comma, head, 0, len(head))] if comma else []
    if len(names) < 2 or (comma != b"|" and not all(map(_NAME.fullmatch, names))):
        return None
    secrets = {number: name for number, name in enumerate(names) if strength(name) is not None}
    users = any(_USER.search(name) for number, name in enumerate(names) if number not in secrets)
    return _Table(comma, padding, len(names), secrets, users) if secrets else None


def _secret(text: bytes, start: int, end: int, name: bytes, table: _Table, work: RedactionWork) -> Iterator[Span]:
    work.spend(CALL)
    cell = text[start:end]
    value = cell.strip(table.padding)
    kind = is_secret_beside(name, value)
    if kind is None or (kind == "password" and not _is_password(value, cell, table)):
        return
    work.spend(FINDING)
    start += len(cell) - len(cell.lstrip(table.padding))
    yield Span(start, start + len(value), kind, NAMED)


def _is_password(value: bytes, cell: bytes, table: _Table) -> bool:
    """Return whether a cell is no word about a password: a plain word is one only beside users."""
    if b'"' in cell and table.comma != b"|":
        return True
    if len(value) < 4 or _SPACE.search(value) or is_code(value):
        return False
    return table.names_users or _LETTERS.fullmatch(value) is None
