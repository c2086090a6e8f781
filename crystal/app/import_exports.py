"""Import what other programs exported: find the conversations in the files, and in archives of them."""

from __future__ import annotations

import contextlib
import fnmatch
import shutil
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from crystal.app.capture_engine import make_capture
from crystal.app.context import Machine
from crystal.capture import finder
from crystal.capture.backfill import PastFile, plan_file
from crystal.capture.engine import Tally
from crystal.capture.recognition import understood
from crystal.capture.safe_open import ANYWHERE
from crystal.capture.snapshots import Container
from crystal.capture.source import MAX_DOCUMENT_BYTES
from crystal.config.harness import Place
from crystal.config.harnesses import HARNESSES, Root, places_of_all
from crystal.config.working_folder import working_folder
from crystal.errors import UsageError
from crystal.export.form import is_export
from crystal.transcript.snapshot import SourceError

UNPACK_FOLDER = "imports"
KNOWN_FORMS = (
    "a .zip or conversations.json of ChatGPT or Claude.ai, SpecStory's Markdown,"
    " or what crystal export --as jsonl wrote"
)


@contextlib.contextmanager
def unpacked(machine: Machine, paths: Sequence[Path]) -> Iterator[list[Path]]:
    """Yield the files to import: those that were given, those in given folders, and those in archives.

    Archives are unpacked into a folder that only the user can read, until the end of the block.

    Raises:
        UsageError: An archive is damaged, has no conversations, or its conversations are too large.
    """
    with working_folder(machine.places.data_dir / UNPACK_FOLDER) as folder:
        found: list[Path] = []
        for number, path in enumerate(paths):
            if zipfile.is_zipfile(path):
                found += _unpack(path, folder / str(number))
            elif path.is_dir():
                found += [one.path for one in finder.under(path)]
                found += [one for one in sorted(path.glob("*.jsonl")) if is_export(one)]
            else:
                found.append(path)
        yield found


def name_archives(problems: Mapping[str, str], machine: Machine, paths: Sequence[Path]) -> dict[str, str]:
    """Return problems by file, where one that was unpacked from an archive in ``paths`` is named after the archive."""
    folder = machine.places.data_dir / UNPACK_FOLDER
    named = {}
    for file, problem in problems.items():
        if Path(file).is_relative_to(folder):
            _, number, *_, name = Path(file).relative_to(folder).parts
            file = f"{paths[int(number)]}: {name}"  # noqa: PLW2901 - the name that the user knows
        named[file] = problem
    return named


def plan_exports(machine: Machine, paths: Sequence[Path], *, named: Sequence[Path], tally: Tally) -> list[PastFile]:
    """Return the conversations in exports with messages that are not in the memory.

    Args:
        machine: This machine.
        paths: Files; those that are no exports are left out.
        named: Those that a person named: they must be exports.
        tally: Gets each other one that cannot be read, and each of which a part cannot.

    Raises:
        UsageError: One of ``named`` is no export that is known.
        SourceError: One of them cannot be read.
    """
    capture = make_capture(machine)._replace(anywhere=True)
    plan = []
    for path in paths:
        found = finder.examine(path, ANYWHERE)
        root = None if found is None else _root_of(path)
        if found is not None and root is not None:
            try:
                plan += plan_file(capture, Container(found, root), named=True, tally=tally)
            except SourceError as error:
                if path in named:
                    raise
                tally.fail(path, error)
        elif path in named:
            raise UsageError(f"crystal does not know this export: {path}", hint=f"give {KNOWN_FORMS}")
    return plan


def _root_of(path: Path) -> Root | None:
    """Return which program exported a file, by its beginning; None if none did."""
    roots = [Root(path.parent, name, number) for name, number, _ in _export_places()]
    with finder.opened(path) as file:
        beginning = file.read(finder.RECOGNIZED_BYTES)
    scores = [(understood(beginning, path, root), root) for root in roots]
    score, root = max(scores, key=lambda one: one[0])
    return root if score else None


def _export_places() -> list[tuple[str, int, Place]]:
    return [one for one in places_of_all() if HARNESSES[one[0]].is_export and not HARNESSES[one[0]].is_store]


def _unpack(archive: Path, folder: Path) -> Iterator[Path]:
    """Unpack the files of an archive whose names are those of conversations, and yield them."""
    patterns = {pattern for _, _, place in _export_places() for pattern in place.files}
    try:
        with zipfile.ZipFile(archive) as packed:
            members = [
                one
                for one in packed.infolist()
                if any(fnmatch.fnmatchcase(one.filename.rpartition("/")[2], pattern) for pattern in patterns)
            ]
            if not members:
                raise UsageError(f"{archive} has no conversations", hint=f"give {KNOWN_FORMS}")
            for number, member in enumerate(members):
                if member.file_size > MAX_DOCUMENT_BYTES:
                    limit = f"{MAX_DOCUMENT_BYTES >> 20} MB"
                    problem = f"{member.filename} in {archive} is larger than {limit}"
                    raise UsageError(problem, hint="export again: newer exports are split into parts")
                target = folder / str(number) / Path(member.filename).name
                target.parent.mkdir(parents=True)
                with packed.open(member) as source, target.open("wb") as copy:
                    shutil.copyfileobj(source, copy)
                yield target
    except zipfile.BadZipFile as error:
        raise UsageError(f"{archive} is damaged: {error}", hint="download it again") from error
