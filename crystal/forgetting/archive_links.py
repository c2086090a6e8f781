"""Links in the place of archives: a person moved the file, or another crystal home has it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

MAX_LINKS = 40
_ARCHIVED = re.compile("/agents/[^/]+/memory/transcripts/.")


def archive_elsewhere(path: Path, ldm_home: Path) -> Path | None:
    """Return the archive of another crystal home to which a link leads, None if it leads to none."""
    own = ldm_home.resolve()
    for _ in range(MAX_LINKS):
        if not path.is_symlink():
            return None
        path = path.parent / path.readlink()
        path = path.parent.resolve() / path.name
        if _ARCHIVED.search(path.as_posix()) and not path.is_relative_to(own):
            return path
    return None


def archives_elsewhere(names: Iterable[str], ldm_home: Path) -> Iterator[Path]:
    """Yield the archives of other crystal homes to which links in the place of some archives lead."""
    found = (archive_elsewhere(ldm_home / name, ldm_home) for name in dict.fromkeys(names))
    return (path for path in found if path is not None)
