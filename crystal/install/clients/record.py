"""Record of init's changes in clients' files, for an exact uninstall: ``clients.json`` in ``~/.ldm``.

It holds only what the files cannot tell later: whether the file, the key above our entry and the folders existed
before. Uninstall removes the entry without it, too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from crystal.config.paths import make_private_dir, refused, write_private
from crystal.install.files import system_errors

What = Literal["file", "servers", "entry"]


@dataclass(frozen=True, slots=True)
class Made:
    """Changes made for one client.

    Attributes:
        path: The client's file.
        what: What was created: the whole file, the key of the servers with our entry, or only the entry.
        blank: The content of a file that was blank; None if there was no file.
        folders: The parent folders that were missing, outermost first.
    """

    path: str
    what: What
    blank: str | None = None
    folders: tuple[str, ...] = ()


def record_path(ldm_home: Path) -> Path:
    """Return the path of the record."""
    return ldm_home / "clients.json"


def read_record(ldm_home: Path) -> dict[str, Made]:
    """Return the changes by client name. A malformed record counts as empty.

    Raises:
        UnavailableError: The system refuses to read it.
    """
    try:
        known = json.loads(record_path(ldm_home).read_bytes())["clients"]
        return {name: Made(**{**made, "folders": tuple(made["folders"])}) for name, made in known.items()}
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise refused(error, record_path(ldm_home)) from error
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return {}


def write_record(ldm_home: Path, record: Mapping[str, Made]) -> None:
    """Replace the record; an empty one deletes the file.

    Raises:
        UnavailableError: The system refuses.
    """
    path = record_path(ldm_home)
    if not record:
        with system_errors(path):
            path.unlink(missing_ok=True)
        return
    make_private_dir(ldm_home)
    clients = {name: asdict(made) for name, made in sorted(record.items())}
    write_private(path, (json.dumps({"schema": 1, "clients": clients}, indent=2) + "\n").encode())
