"""Write the vault: memories, their index, daily logs and summaries, as files of a folder of the person's."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path

from crystal.app.context import Machine
from crystal.app.memory_queries import list_memories
from crystal.capture.lock import wait_lock
from crystal.errors import CrystalError, UsageError
from crystal.model.recall import Remembered
from crystal.sources.file_content import encoded, text_of
from crystal.sources.scan import SkippedFile
from crystal.sources.sync import hash_key
from crystal.store.capture.privacy import store_key
from crystal.summarize.daily import FOLDER as DAILY_LOGS
from crystal.summarize.markdown import FOLDER as SUMMARIES
from crystal.summarize.simple import first_words
from crystal.summarize.wording import escaped, one_line
from crystal.text.slug import slug
from crystal.vault.folder import DAILY, INDEX, MEMORIES, SESSIONS, Vault, WantedFile, read_kept
from crystal.vault.note import parse_note, render_note, text_of_memory

VAULT_LOCK = "vault.lock"
LOCK_SECONDS = 60.0
EVERY = 2**31
_NAME_CHARACTERS = 50
_INDEX_CHARACTERS = 120
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
HIDES = "changed in crystal, but the file has private parts or secrets: left as it is"


def open_vault(machine: Machine, folder: Path) -> Vault:
    """Return the vault in a folder."""
    return Vault(folder, machine.places.ldm_home, hash_key(store_key(machine.store)))


def write_vault(machine: Machine, vault: Vault, found: Collection[Remembered]) -> tuple[int, int, list[SkippedFile]]:
    """Write the files of memories and those made from conversations; delete crystal's other files.

    Return how many were written and deleted, and which were left as they are, with the reason.
    """
    left: list[SkippedFile] = []
    paths = {one.memory: path for path, one in vault.kept.items() if one.memory is not None}
    wanted: dict[str, WantedFile] = {}
    for one in sorted(found, key=lambda one: (one.created_at, one.id)):
        path = paths.get(one.id) or _new_path(one, vault, wanted)
        paths[one.id] = path
        wanted[path] = WantedFile(_memory_file(machine, vault, path, one, left), one.id, one.updated_at)
    index = _index([(one, paths[one.id]) for one in found])
    made = {INDEX: index.encode(), **_copied(machine)}
    wanted |= {path: WantedFile(data) for path, data in made.items()}
    written, removed, more = vault.write(wanted)
    return written, removed, [*left, *more]


def write_after_forgetting(machine: Machine) -> str | None:
    """Take what was forgotten out of the vault; what a person changed stays. Return what could not be done."""
    folder, kept = read_kept(machine.places.ldm_home)
    if folder is None or not kept:
        return None
    try:
        with wait_lock(machine.places.data_dir / VAULT_LOCK, seconds=LOCK_SECONDS):
            vault = open_vault(machine, Path(folder))
            vault.check()
            known = {one.memory for one in vault.kept.values()}
            write_vault(machine, vault, [one for one in list_memories(machine, limit=EVERY) if one.id in known])
    except CrystalError as error:
        return f"{error.message}; to clean the vault later: crystal vault sync"
    return None


# ---------------------------------------------------------------------------------------------------------- memories


def _new_path(one: Remembered, vault: Vault, taken: Collection[str]) -> str:
    digits = one.id.removeprefix("mem-")
    stem = slug(one.key or first_words(one.text, _NAME_CHARACTERS))[:_NAME_CHARACTERS].strip("-")
    for name in (f"{stem}-{digits[:6]}".lstrip("-"), *(f"{stem}-{digits}-{number}".lstrip("-") for number in range(9))):
        path = f"{MEMORIES}/{name}.md"
        if path not in taken and path not in vault.kept and not vault.is_there(path):
            return path
    raise UsageError(f"there are too many files {stem}-{digits[:6]}.md", hint="delete those that you do not need")


def _memory_file(machine: Machine, vault: Vault, path: str, one: Remembered, left: list[SkippedFile]) -> bytes:
    """Return the file of a memory: with the person's own lines, and with a text that says the same as it is."""
    content = vault.read(path)
    text, why = ("", None) if content is None else text_of(content)
    if content is None or why is not None:
        return render_note(one, None, keeps_body=False).encode()
    before = parse_note(text)
    is_same = before.text == text_of_memory(one)
    if not is_same and (kept := machine.redactor().clean_text(before.text)[0].strip()) != before.text:
        is_same = kept == text_of_memory(one)
        if not is_same and vault.is_kept(path, content.data):
            left.append(SkippedFile(path, HIDES))
            return content.data
    return encoded(render_note(one, before, keeps_body=is_same), content.data)


def _index(found: Iterable[tuple[Remembered, str]]) -> str:
    """Return the list of what is remembered, by project."""
    groups: dict[str, list[tuple[Remembered, str]]] = defaultdict(list)
    for one, path in found:
        groups[one.project or ""].append((one, path))
    return "\n".join(_index_lines(groups))


def _index_lines(groups: dict[str, list[tuple[Remembered, str]]]) -> Iterator[str]:
    yield from (
        "# Memory",
        "",
        "Written by crystal. Change a memory in its file; to add one, add a file to memories/.",
        "",
    )
    for project, rows in sorted(groups.items()):
        yield from (f"## {escaped(one_line(project)) or 'Everywhere'}", "")
        for one, path in sorted(rows, key=lambda row: (row[0].created_at, row[0].id)):
            words = escaped(first_words(one.text, _INDEX_CHARACTERS)).translate(_NO_BRACKETS) or "…"
            key = f" · {escaped(one_line(one.key))}" if one.key else ""
            yield f"- [{words}](<{path}>) · {one.category}{key}"
        yield ""


_NO_BRACKETS = str.maketrans("[]", "()")


# ------------------------------------------------------------------------------------------------------ conversations


def _copied(machine: Machine) -> dict[str, bytes]:
    """Return the daily logs and the summaries of all agents of this machine, by their path in the vault."""
    found: dict[str, bytes] = {}
    for folder in sorted((machine.places.ldm_home / "agents").glob("*/memory")):
        for path in sorted((folder / DAILY_LOGS).glob("*.md")):
            if _DAY.fullmatch(path.stem):
                _add(found, f"{DAILY}/{path.name}", path, lambda there, more: there + b"\n" + more)
        for path in sorted((folder / SUMMARIES).glob("*.md")):
            name = f"{SESSIONS}/{path.name}"
            own = name if name not in found else f"{SESSIONS}/{folder.parent.name}--{path.name}"
            _add(found, own, path, lambda _, more: more)
    return found


def _add(found: dict[str, bytes], name: str, path: Path, join: Callable[[bytes, bytes], bytes]) -> None:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return
    found[name] = join(found[name], data) if name in found else data
