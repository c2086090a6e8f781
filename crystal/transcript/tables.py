"""Read a harness's database: tables whose columns differ by version, and the JSON in them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from crystal.model.capture import ID_END
from crystal.model.zstd import zstd
from crystal.transcript.line import MAX_MILLISECONDS, Fields, identifier, parse_line, parse_time
from crystal.transcript.snapshot import Snapshot, SourceError

_MAX_SECONDS = 100_000_000_000
"""A larger number is milliseconds: it would be after the year 5000."""

_ZSTD = b"\x28\xb5\x2f\xfd"
MAX_UNPACKED_BYTES = 256 << 20


def tables_of(source: Snapshot) -> set[str]:
    """Return the names of the tables."""
    return {name for (name,) in source.rows("SELECT name FROM sqlite_master WHERE type = 'table'")}


def columns_of(source: Snapshot, table: str) -> list[str]:
    """Return the columns of a table, none if it does not exist."""
    return [name for (name,) in source.rows("SELECT name FROM pragma_table_info(?)", (table,))]


def check_tables(
    source: Snapshot, *forms: Mapping[str, str], read: Mapping[str, tuple[str, str]] | None = None
) -> None:
    """Refuse a database with another schema, before any of it is recorded as read.

    Args:
        source: The database.
        forms: Groups of tables, each table with the columns that are read. If a table of a group has a row, all tables
            of the group must exist. At least one group must have its first table.
        read: Tables, each with its optional columns and all other columns that were ever seen. If the table has a
            column that is in neither, its program is new, and its missing optional columns are added to
            ``source.missing``.

    Raises:
        SourceError: A table or a column is missing.
    """
    is_any = any(columns_of(source, next(iter(form))) for form in forms)
    for form in forms:
        columns = [missing for table in form for missing in _missing(source, table, form[table])]
        if columns and (not is_any or any(_has_rows(source, table) for table in form)):
            raise source.other_form(columns[0])
    for table, (wanted, others) in (read or {}).items():
        if set(columns_of(source, table)) - {*wanted.split(), *others.split()}:
            source.missing += _missing(source, table, wanted)


def _missing(source: Snapshot, table: str, wanted: str) -> list[str]:
    names = columns_of(source, table)
    return [f"{table}.{name}" for name in wanted.split() if name not in names]


def _has_rows(source: Snapshot, table: str) -> bool:
    return bool(columns_of(source, table)) and next(source.rows(f'SELECT 1 FROM "{table}" LIMIT 1'), None) is not None


def rows_of(source: Snapshot, table: str, where: str = "", values: tuple[object, ...] = ()) -> Iterator[Fields]:
    """Yield the rows of a table as fields, by column; none if it does not exist.

    Args:
        source: The database.
        table: The table.
        where: The end of the statement, after the name of the table.
        values: The values for its question marks.
    """
    names = columns_of(source, table)
    if names:
        listed = ", ".join(f'"{name}"' for name in names)
        for row in source.rows(f'SELECT {listed} FROM "{table}" {where}', values):
            yield dict(zip(names, row, strict=True))


def counts_of(source: Snapshot) -> dict[str, int]:
    """Return the number of rows of each table that SQLite keeps itself."""
    tables = source.rows("SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0 ORDER BY name")
    return {name: next(source.rows(f'SELECT count(*) FROM "{name}"'))[0] for (name,) in tables}


def ids_in(source: Snapshot, table: str, column: str) -> set[str]:
    """Return the ids in a column, none if it does not exist. Rows without an id are added to ``source.damaged``."""
    found = set[str]()
    exists = column in columns_of(source, table)
    for value, count in source.rows(f'SELECT "{column}", count(*) FROM "{table}" GROUP BY 1') if exists else ():
        if identifier(value) is not None:
            found.add(value)
        else:
            source.damaged.append(no_id(count, table, column))
    return found


def no_id(count: int, table: str, column: str) -> SourceError:
    """Return the error for rows whose ``column`` refers to no existing row."""
    words = f"{count} rows of {table} cannot be read: {column} names nothing that is there"
    return SourceError(words, hint="crystal tries again by itself")


def read_before(source: Snapshot) -> dict[str, tuple[str, str | None]]:
    """Return the (session, subagent) of each conversation that was read from a source before, by the program's id."""
    return {(part or session).partition(ID_END)[0]: (session, part or None) for session, part in source.sessions}


def without_row(source: Snapshot, tables: Iterable[str], known: Collection[str]) -> dict[str, tuple[str, str | None]]:
    """Return the (session, subagent), as read before, of each id in ``tables`` that is not in ``known``."""
    before = read_before(source)
    named = set[str]().union(*(ids_in(source, table, "session_id") for table in tables))
    return {ident: before.get(ident, (ident, None)) for ident in sorted(named - {*known})}


def object_of(value: object) -> Fields:
    """Return the object that a column holds as JSON, empty if it holds none."""
    if isinstance(value, str):
        return parse_line(value.encode("utf-8", "surrogatepass")) or {}
    return parse_line(value) or {} if isinstance(value, bytes) else {}


def moment_of(value: object) -> int | None:
    """Return a time in ms: of a date as text, or a number of seconds or milliseconds; None for anything else."""
    if isinstance(value, str):
        return parse_time(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < MAX_MILLISECONDS:
        return None
    return round(value * 1000) if value < _MAX_SECONDS else int(value)


def first_ancestor(ident: str, parents: Mapping[str, object]) -> str:
    """Return the topmost conversation above a subagent's, by the parent of each; ``ident`` itself if it has none."""
    seen = {ident}
    while isinstance(parent := parents.get(ident), str) and parent in parents and parent not in seen:
        seen.add(parent)
        ident = parent
    return ident


def unpacked(data: bytes, limit: int = MAX_UNPACKED_BYTES) -> bytes:
    """Return data, decompressed if it was compressed with zstd.

    Raises:
        SourceError: It is damaged, or larger than ``limit``.
    """
    if not data.startswith(_ZSTD):
        return data
    try:
        opener = zstd.ZstdDecompressor()
        found = opener.decompress(data, max_length=limit)
    except zstd.ZstdError as error:
        raise SourceError(f"a compressed record is damaged: {error}", hint="crystal tries again by itself") from error
    if not opener.eof:
        raise SourceError("a compressed record is cut off or too large", hint="crystal tries again by itself")
    return bytes(found)
