"""Read and write the record of memories: an append-only file of JSON lines, ``memories.jsonl``, next to the archive.

Each change of a memory adds a line with all of its fields and its former version. The last line of a memory is its
current state. Each line ends with a checksum of its own bytes, to detect damage. This module reads and writes the file.
It knows nothing of the database.

Source: docs/adr/0024-memory-record.md.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from crystal.config.json_file import read_regular
from crystal.config.paths import append_durably, make_private_dir, refused, write_own, write_private
from crystal.errors import CrystalError, StoreFullError, UsageError
from crystal.memories.rules import CATEGORIES, STATUSES
from crystal.memories.serialize import InvalidMemoryError, memory_from_dict, memory_to_dict
from crystal.model.recall import FormerMemory
from crystal.store.memories.memories import Version

DAMAGED_SUFFIX = ".damaged"
"""Suffix of the file that keeps damaged lines when the record is rewritten."""
FORMAT = 1
_CHECKSUM = b',"sum":"'
_CHECKSUM_DIGITS = 16


@dataclass(frozen=True, slots=True)
class MemoryEntry:
    """A memory according to one or all of its lines. ``former`` are its earlier versions, oldest first."""

    version: Version
    former: tuple[FormerMemory, ...] = ()


@dataclass(frozen=True, slots=True)
class DamagedLine:
    """A damaged line. ``is_torn`` marks a last line without a newline, as opposed to an altered one."""

    number: int
    offset: int
    raw: bytes
    is_torn: bool


@dataclass(frozen=True, slots=True)
class RecordContents:
    """Content of a record: memories by id, in the order of their first lines. ``size`` is None if there is no file."""

    entries: dict[str, MemoryEntry] = field(default_factory=dict)
    damaged: tuple[DamagedLine, ...] = ()
    size: int | None = None


def encode_entry(entry: MemoryEntry) -> bytes:
    """Return the line for the current state of a memory, with its newline."""
    former = [[one.text, one.category, one.status, one.from_at, one.until_at] for one in entry.former]
    fields = {"v": FORMAT, "memory": memory_to_dict(entry.version), "former": former}
    body = json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()
    return body[:-1] + _CHECKSUM + _checksum(body) + b'"}\n'


def decode_line(line: bytes) -> MemoryEntry:
    """Parse a line without its newline.

    Raises:
        InvalidMemoryError: It is damaged, or of an unknown format.
    """
    begin, found, end = line.rpartition(_CHECKSUM)
    body = begin + b"}"
    if not found or end != _checksum(body) + b'"}':
        raise InvalidMemoryError("the line is damaged")
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InvalidMemoryError("the line is not JSON") from error
    if not isinstance(fields, dict) or fields.get("v") != FORMAT or not isinstance(fields.get("former"), list):
        raise InvalidMemoryError("the line is of another format", hint="update crystal")
    return MemoryEntry(memory_from_dict(fields.get("memory")), tuple(_former(row) for row in fields["former"]))


def read_record(path: Path) -> RecordContents:
    """Read a record. Damaged lines are returned separately.

    Raises:
        CrystalError: The file exists but cannot be read, or is a link to a file without any line of a record.
    """
    data = read_regular(path)
    if data is None:
        return RecordContents()
    entries: dict[str, MemoryEntry] = {}
    damaged: list[DamagedLine] = []
    offset = 0
    for number, line in enumerate(_lines(data), 1):
        try:
            if not line.endswith(b"\n"):
                raise InvalidMemoryError("the line is cut off")
            entry = decode_line(line[:-1])
        except InvalidMemoryError:
            damaged.append(DamagedLine(number, offset, line, not line.endswith(b"\n")))
        else:
            uid = entry.version.memory.id
            known = entries[uid].former if uid in entries else ()
            entries[uid] = replace(entry, former=tuple(dict.fromkeys([*known, *entry.former])))
        offset += len(line)
    if damaged and not entries and path.is_symlink():  # another program's file must not be rewritten
        target = os.path.realpath(path)
        hint = f"run: rm {shlex.quote(str(path))} (removes only the link); then: crystal verify --repair"
        raise UsageError(f"{path} is a link to {target}, which is no record of memories", hint=hint)
    return RecordContents(entries, tuple(damaged), len(data))


def append_entries(path: Path, size: int, entries: Iterable[MemoryEntry]) -> int:
    """Append lines after ``size`` bytes and make them durable; return the new size.

    Bytes after ``size`` are the incomplete line of a killed process and are removed.

    Raises:
        StoreFullError, UnavailableError: The record is unchanged.
    """
    data = b"".join(map(encode_entry, entries))
    try:
        with path.open("r+b", buffering=0) as file:
            file.truncate(size)
            file.seek(size)
            append_durably(file.fileno(), data, size)
    except OSError as error:
        raise _translated(error, path) from error
    return size + len(data)


def write_record(path: Path, entries: Iterable[MemoryEntry]) -> int:
    """Replace a record as a whole, durably. Return its size. After a crash the file is the old or the new record.

    Raises:
        StoreFullError, UnavailableError: The record is unchanged.
    """
    make_private_dir(path.parent)
    data = b"".join(map(encode_entry, entries))
    try:
        write_private(path, data)
    except CrystalError as error:
        if isinstance(error.__cause__, OSError):
            raise _translated(error.__cause__, path) from error
        raise
    return len(data)


def keep_damaged(path: Path, lines: Iterable[DamagedLine]) -> None:
    """Append damaged lines to a file next to the record, for a later repair by hand.

    Raises:
        CrystalError: The system refuses.
    """
    target = path.with_name(path.name + DAMAGED_SUFFIX)
    known = target.read_bytes() if target.exists() else b""
    missing = [line.raw.rstrip(b"\n") + b"\n" for line in lines if line.raw.rstrip(b"\n") not in known]
    if missing:
        write_own(target, known + b"".join(missing))


def forget_in_record(path: Path, ids: set[str]) -> None:
    """Rewrite a record without some memories, and delete damaged lines, whose memory is unknown.

    Raises:
        CrystalError: The system refuses.
    """
    contents = read_record(path)
    if contents.damaged or ids & contents.entries.keys():
        write_record(path, [entry for uid, entry in contents.entries.items() if uid not in ids])
    try:
        path.with_name(path.name + DAMAGED_SUFFIX).unlink(missing_ok=True)
    except OSError as error:
        raise refused(error, path) from error


def join_former(known: Iterable[FormerMemory], more: Iterable[FormerMemory]) -> tuple[FormerMemory, ...]:
    """Return both histories merged, each row once, oldest first."""
    return tuple(sorted(dict.fromkeys([*known, *more]), key=lambda one: one.until_at))


def _lines(data: bytes) -> list[bytes]:
    *whole, torn = data.split(b"\n")
    return [line + b"\n" for line in whole] + ([torn] if torn else [])


def _checksum(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest()[:_CHECKSUM_DIGITS].encode()


def _former(row: Any) -> FormerMemory:
    former = FormerMemory(*row) if isinstance(row, list) and len(row) == 5 else None
    if former is None or former.category not in CATEGORIES or former.status not in STATUSES:
        raise InvalidMemoryError("the line has an invalid former text")
    if type(former.text) is not str or type(former.from_at) is not int or type(former.until_at) is not int:
        raise InvalidMemoryError("the line has an invalid former text or time")
    return former


def _translated(error: OSError, path: Path) -> CrystalError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return StoreFullError(f"{path}: no space left", hint="free some disk space, then run the command again")
    return refused(error, path)
