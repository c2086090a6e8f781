"""Meet folders of transcripts: what is in them when crystal first sees them is imported only on request."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from crystal.capture import finder, tail
from crystal.capture.safe_open import TranscriptBlockedError, TranscriptRefusedError, call_with_deadline
from crystal.config.harnesses import Root
from crystal.errors import CrystalError
from crystal.model.capture import Origin, Watermark
from crystal.store import Store
from crystal.store.capture import ledger
from crystal.store.json_columns import read_json_note
from crystal.store.notes import write_note
from crystal.transcript.framing import end_of_lines

if TYPE_CHECKING:
    from crystal.capture.engine import Capture

UNMET = "unmet"
"""Key of the note of what could not be read when its folder was met: folders, and files of records."""


def meet(capture: Capture, living: frozenset[str]) -> None:
    """Mark the content of new folders as from before crystal, see ``Capture.meet``."""
    met = ledger.met_roots(capture.store)
    new = [root for root in capture.roots if met_name(root) not in met]
    there = finder.existing(new)
    if len(there) < len(new):
        with capture.store.transaction():
            for root in (root for root in new if root not in there):
                ledger.meet_root(capture.store, Path(met_name(root)), capture.clock())
    unmet = _unmet(capture.store)
    if readable := {path for path in unmet if _may_read(path)}:
        left = set[str]().union(*(_meet(capture, root, living, readable) for root in finder.existing(capture.roots)))
        with capture.store.transaction():
            _write_unmet(capture.store, unmet - (readable - left))
    for root in there:
        unread = _meet(capture, root, living, None)
        with capture.store.transaction():
            _write_unmet(capture.store, _unmet(capture.store) | unread)
            ledger.meet_root(capture.store, Path(met_name(root)), capture.clock())


def met_name(root: Root) -> str:
    """Return the name under which the store notes that it has seen a folder; several places may share one."""
    return str(root.folder) if root.number == 0 else f"{root.folder}#{root.number}"


def is_below(path: Path, folders: Collection[str]) -> bool:
    """Return True for one of these paths, or what is in one of them."""
    return any(str(one) in folders for one in (path, *path.parents))


def _meet(capture: Capture, root: Root, living: frozenset[str], only: Collection[str] | None) -> set[str]:
    """Mark the content of a folder, or of some paths in it; return what cannot be read."""
    if root.place.form != "lines":
        return capture.whole_files().meet(capture, root, only) if capture.whole_files is not None else set()
    unread: dict[Path, Exception] = {}
    files = [*finder.all_transcripts([root], unread.setdefault, capture.folders)]
    if only is not None:
        files = [found for found in files if is_below(found.path, only)]
    elif _was_moved_here(capture, files):
        files = []
    seen = [*_marks(capture, files, living)]
    with capture.store.transaction():  # no file is waited for in it
        for origin, path, mark in seen:
            ledger.mark_seen(capture.store, origin, str(path), mark, capture.clock())
    return {str(path) for path, error in unread.items() if not isinstance(error, TranscriptRefusedError)}


def _may_read(path: str) -> bool:
    with contextlib.suppress(TranscriptBlockedError):
        return call_with_deadline(lambda: os.access(path, os.R_OK), path)
    return False


def _unmet(store: Store) -> set[str]:
    return set(read_json_note(store, UNMET) or ())


def _write_unmet(store: Store, paths: Collection[str]) -> None:
    write_note(store, UNMET, json.dumps(sorted(paths)))


def _was_moved_here(capture: Capture, files: Sequence[finder.TranscriptFile]) -> bool:
    """Return whether most files of a new folder are known: a home folder that was moved, copied or restored.

    What is unknown in it was said since, and nobody has asked to leave it out.
    """
    known = sum(capture.state_for(found) is not None for found in files)
    return known > len(files) - known


def _marks(
    capture: Capture, files: Iterable[finder.TranscriptFile], living: frozenset[str]
) -> Iterator[tuple[Origin, Path, Watermark]]:
    """Yield the end of each transcript. One that cannot be read counts whole: it is compared when it can be read."""
    for found in files:
        key, origin = capture.origin_of(found.path)
        if living & {origin.session_id, found.path.stem, str(found.path)}:
            continue
        offset, tail_hash = found.size, b""
        try:
            with finder.opened(found.path, capture.folders) as file:
                offset = end_of_lines(file, found.size)
                tail_hash = tail.tail_hash(file, offset, capture.cleaner)
        except FileNotFoundError:
            continue
        except (CrystalError, OSError):
            pass
        yield origin, found.path, Watermark(key, offset, found.dev, found.inode, 0, tail_hash, found.written)
