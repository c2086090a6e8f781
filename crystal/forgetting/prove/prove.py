"""Prove that something is forgotten on this machine: check every byte of every file of crystal.

Rows are counted by their ids, tables are read value by value, archives and sealed blobs are opened, and all files are
read raw to their last byte, including free pages, logs and leftovers. If something cannot be read, it is reported and
nothing is proved.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache, partial
from itertools import groupby, islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from crystal.errors import CrystalError, DamagedError
from crystal.forgetting.match.forgotten_text import ForgottenText, rare_words
from crystal.forgetting.match.multi_pattern import MAX_LENGTH, MIN_LENGTH, PIECE, MultiPatternMatcher
from crystal.forgetting.match.patterns import (
    PatternSet,
    Source,
    forms_of,
    index_words,
    is_word,
    own_words,
    stretches_of,
    words_of,
)
from crystal.forgetting.match.query_terms import folded
from crystal.forgetting.prove import file_reader
from crystal.forgetting.request import ForgetContext, counted
from crystal.model.named_tuple import NamedTuple
from crystal.search.index.index_files import MAGIC
from crystal.store import Store
from crystal.store.forget import forgotten_rows, traces
from crystal.store.forget.forgetting import read_blocks
from crystal.store.search.tokenizer import tokenizer
from crystal.transcript.reader import find_facts, is_forgotten

MAX_TRACES = MAX_TRANSCRIPTS = 10_000
TRANSCRIPT = "transcript"
LINES_KEPT = 4
"""Number of lines whose facts are kept: one line may have a match in each of its words."""


class NotProvedError(DamagedError):
    """Forgotten text is still in a file, or a file could not be read completely."""


class Trace(NamedTuple):
    """Location of leftover data. Holds no text of it.

    ``kind`` is text, word, line (an archived line, known by its id), row (of a table), index (a word of the keyword
    index, or an entry without a text), name (the file's own), outbox. ``offset`` counts bytes to the first of
    ``times`` places; of what is decompressed, in the decompressed text.
    """

    file: str
    offset: int
    kind: str
    times: int = 1


class Unread(NamedTuple):
    """Item that could not be read, and the reason."""

    file: str
    why: str


@dataclass(frozen=True, slots=True)
class ForgetProof:
    """Result of a proof.

    Attributes:
        files, bytes: Number of files and bytes read.
        texts: Number of forgotten texts.
        by_rows_only: Number of texts without unique words: too short, or also occurring elsewhere.
        traces: Locations of leftover data.
        unread: Items that could not be read.
        transcripts: The agents' files and the vault's notes that hold it. They are not crystal's and do not count.
    """

    files: int
    bytes: int
    texts: int
    by_rows_only: int
    traces: tuple[Trace, ...]
    unread: tuple[Unread, ...]
    transcripts: tuple[str, ...]

    @property
    def proved(self) -> bool:
        """True if everything was read and nothing was found."""
        return not self.traces and not self.unread

    def as_dict(self) -> dict[str, Any]:
        """Return the keys that ``--json`` prints."""
        shown = {one.name: getattr(self, one.name) for one in fields(self)}
        shown["findings"] = [trace._asdict() for trace in shown.pop("traces")]
        shown["unread"] = [one._asdict() for one in self.unread]
        return {"proved": self.proved, **shown, "transcripts": list(self.transcripts)}


def prove(context: ForgetContext, forgotten: ForgottenText) -> ForgetProof:
    """Search every file of crystal on this machine for what was forgotten. Changes nothing.

    Args:
        context: This machine.
        forgotten: What was read before it was forgotten.
    """
    with context.open_mirror() as mirror:
        search = _Search(context, forgotten, [context.store, *([mirror] if mirror is not None else [])])
        for store in search.stores:
            search.look_into_store(store)
        folders = (context.ldm_home, context.data_dir)
        roots = {root.folder for root in context.roots if not root.place.in_projects}
        others = file_reader.models_as_installed(context.ldm_home / "models") | roots
        paths = list(file_reader.files_of(folders, others, search.cannot_read))
        search.count_bytes(paths)
        for path in paths:
            search.look_into_file(path)
        search.look_into_outbox()
        search.look_into_transcripts()
        return search.result()


class _Search:
    """State of one proof.

    Attributes:
        findings: Offset of the first of how many matches, by file, kind and what was matched.
        retained: What retained texts hold as well: it proves nothing.
    """

    def __init__(self, context: ForgetContext, forgotten: ForgottenText, stores: Sequence[Store]) -> None:
        self.context, self.forgotten, self.stores = context, forgotten, stores
        self.findings: dict[tuple[str, str, Source], tuple[int, int]] = {}
        self.unread: list[Unread] = []
        self.files = self.size = self.read = self.total = 0
        texts = (*forgotten.texts, *forgotten.asked)
        words = set().union(*map(words_of, texts)) | index_words(texts, tokenizer(context.store))
        stretches = {word for text in texts for word in _stretches(text) if is_word(word)}
        gone = (forgotten.lines, forgotten.memories)
        self.words = rare_words(stores, words - stretches, *gone, context.progress)
        self.patterns = PatternSet(texts, self.words, forgotten.bodies, _stretches)
        ids = (uuid.encode("utf-8", "surrogatepass") for uuid in forgotten.lines)
        self.ids = MultiPatternMatcher(sorted(uuid for uuid in ids if len(uuid) >= MIN_LENGTH))
        self.retained: set[Source] = set()
        self._facts = lru_cache(LINES_KEPT)(find_facts)
        self._shared_in = lru_cache(LINES_KEPT)(lambda line: {found for _, found in self.patterns.find_in_lines(line)})
        self.limit = MAX_TRACES
        self.blocks = read_blocks(context.store)
        self.sessions = {
            context.ldm_home / row.archive: row.session_id for row in forgotten_rows.kept_rows(context.store)
        }

    def add(self, file: str, offset: int, kind: str, source: Source = "") -> None:
        """Note a match; without a source it is known by an id."""
        if source in self.retained:
            return
        first, times = self.findings.get((file, kind, source), (offset, 0))
        self.findings[file, kind, source] = (min(first, offset), times + 1)
        if len(self.findings) > self.limit:
            self._leave_out_retained()
            self.limit = 2 * len(self.findings) + MAX_TRACES

    def cannot_read(self, file: str, why: str) -> None:
        """Note what cannot be read."""
        self.unread.append(Unread(file, why))

    # -- what stays --------------------------------------------------------------------------------------------------

    def _leave_out_retained(self) -> None:
        """Drop matches of what retained texts hold as well."""
        sources = {source for _, _, source in self.findings if source}
        texts: dict[bytes, set[Source]] = {}
        for source in sources:
            if isinstance(source, str):
                forms = (form.decode("utf-8", "ignore") for form in forms_of(source))  # a retained call is JSON itself
                for form in {folded(source), *map(folded, forms)}:
                    texts.setdefault(form.encode("utf-8", "replace"), set()).add(source)
        bodies: dict[bytes, set[Source]] = {source: {source} for source in sources if isinstance(source, bytes)}
        gone = (self.forgotten.lines, self.forgotten.memories)
        kept = (body for store in self.stores for body in traces.retained_bodies(store, *gone))
        self.retained |= _held(texts, self._retained_texts()) | _held(bodies, kept)
        self.findings = {key: found for key, found in self.findings.items() if key[2] not in self.retained}

    def _retained_texts(self) -> Iterator[bytes]:
        forgotten = self.forgotten
        for store in self.stores:
            texts = traces.retained_texts(store, forgotten.lines, forgotten.memories, forgotten.sessions)
            for text in counted(texts, "reading what stays", traces.count_turns(store), self.context.progress):
                yield folded(text).encode("utf-8", "replace")

    # -- databases ---------------------------------------------------------------------------------------------------

    def look_into_store(self, store: Store) -> None:
        """Check an open database for rows, values and words."""
        name = file_reader.name_of(store.path, self.context.ldm_home)
        try:
            if traces.rows_left(store, self.forgotten.lines, self.forgotten.memories):
                self.add(name, 0, "row")
            told = partial(self.context.progress, "looking into the tables")
            for table, values in groupby(traces.values(store, told), key=lambda found: found[0]):
                for offset, _, source in self.patterns.find(_joined(value for _, value in values)):
                    self.add(f"{name}: {table}", offset, "row", source)
            if traces.entries_alone(store):
                self.add(name, 0, "index")
        except CrystalError as error:
            self.cannot_read(name, error.message)

    # -- files -------------------------------------------------------------------------------------------------------

    def count_bytes(self, paths: Iterable[Path]) -> None:
        """Set the number of bytes to read: those of the files, and of the lines that archives hold compressed."""
        self.total = forgotten_rows.archived_bytes(self.context.store)
        for path in paths:
            with contextlib.suppress(OSError):
                self.total += path.stat().st_size

    def _have_read(self, size: int) -> None:
        self.read += size
        self.context.progress("looking at every byte", self.read, max(self.read, self.total))

    def look_into_file(self, path: Path) -> None:
        """Check a file to its last byte, its decompressed content, and its name."""
        name = file_reader.name_of(path, self.context.ldm_home)
        for offset, _, source in self.patterns.find([name.encode("utf-8", "surrogateescape")]):
            self.add(name, offset, "name", source)
        try:
            with file_reader.opened(path) as file:
                head = file.read(len(MAGIC) * 2)
            self._look_at_bytes(path, name, is_compressed=head.startswith(file_reader.COMPRESSED))
            self.files += 1
            at = 0
            if head.startswith(file_reader.COMPRESSED):
                for text in file_reader.lines_of(file_reader.decompressed(path, head)):
                    for offset, kind, source in self._in_lines(text, self.sessions.get(path)):
                        self.add(name, at + offset, kind, source)
                    at += len(text)
                    self._have_read(len(text))
        except FileNotFoundError:
            return
        except OSError as error:
            self.cannot_read(name, error.strerror or str(error))
        except file_reader.UnreadableFileError as error:
            self.cannot_read(name, str(error))

    def _look_at_bytes(self, path: Path, name: str, *, is_compressed: bool) -> None:
        """Check a file as it is. What is compressed holds short words by chance."""
        borders = file_reader.word_borders(path)
        with file_reader.opened(path) as file:
            for start, end, source in self.patterns.find(self._pieces(file)):
                is_chance = is_compressed or (len(borders) and not np.isin((start, end), borders).all())
                if not (is_word(source) and is_chance):
                    self.add(name, start, "word" if source in self.words else "text", source)

    def _pieces(self, file: BinaryIO) -> Iterator[bytes]:
        while piece := file.read(PIECE):
            self.size += len(piece)
            self._have_read(len(piece))
            yield piece

    def _in_lines(self, text: bytes, session: str | None = None) -> Iterator[tuple[int, str, Source]]:
        """Yield the place, the kind and the source of matches that may not be there, in lines of a known session."""
        is_touched = session is None or session in self.forgotten.sessions
        for offset, _ in self.ids.find(text):
            line = _line_at(text, offset)
            if find_facts(line).uuid in self.forgotten.lines and not is_forgotten(line):
                yield offset, "line", ""
        for offset, source in self.patterns.find_in_lines(text):
            is_elsewhere = not is_touched and (source in self.words or self.forgotten.is_scope)
            line = _line_at(text, offset)
            if is_elsewhere or self._stays(line, session) or (not is_touched and self._only_shares(line, source)):
                continue
            yield offset, "word" if source in self.words else "text", source

    def _stays(self, line: bytes, session: str | None) -> bool:
        """Return True if a line may contain the text: it is in the memory, or outside of what was forgotten."""
        facts = self._facts(line)
        if facts.uuid is None or facts.uuid in self.forgotten.lines:
            return False
        if any(traces.has_line(store, facts.uuid) for store in self.stores):
            return True
        where = (session or facts.session_id or "", facts.timestamp_ms, facts.cwd)
        is_blocked = self.blocks is not None and self.blocks.holds(facts.uuid, *where)
        return self.forgotten.is_scope and not is_blocked

    def _only_shares(self, line: bytes, source: Source) -> bool:
        """Return True if a note of the client has less than half of each text that a stretch in it is of.

        A subagent's progress shows other parts of the files that a forgotten message showed.
        """
        facts = self._facts(line)
        if facts.uuid is None or facts.is_conversation or source not in self._texts_with:
            return False
        return all(2 * len(text & self._shared_in(line)) < len(text) for text in self._texts_with[source])

    @cached_property
    def _texts_with(self) -> dict[Source, list[frozenset[str]]]:
        """Map each stretch to the texts that have it, each as the set of its stretches."""
        found: dict[Source, list[frozenset[str]]] = {}
        for text in map(frozenset, map(_stretches, (*self.forgotten.texts, *self.forgotten.asked))):
            for stretch in text:
                found.setdefault(stretch, []).append(text)
        return found

    # -- elsewhere ---------------------------------------------------------------------------------------------------

    def look_into_outbox(self) -> None:
        """Check the sealed blobs that wait for other machines."""
        if self.context.outbox is None:
            return
        try:
            for place, payload in self.context.outbox.payloads():
                for offset, _, source in self._in_lines(payload):
                    self.add(f"outbox: {place}", offset, "outbox", source)
            if unopened := self.context.outbox.unopened():
                self.cannot_read("outbox", f"{unopened} blobs that no key here opens")
        except CrystalError as error:
            self.cannot_read("outbox", error.message)

    def look_into_transcripts(self) -> None:
        """Check the agents' own files, notes of the person's vault, and another home's archives, for the texts."""
        vault = self.context.vault
        if vault is not None and not vault.is_dir():
            self.cannot_read(str(vault), "the vault is not there")
        notes = [] if vault is None else sorted(path for path in vault.rglob("*.md") if path.is_file())
        for path in (*islice(self._transcripts(), MAX_TRANSCRIPTS), *notes, *self.context.files):
            with contextlib.suppress(OSError, file_reader.UnreadableFileError), path.open("rb", buffering=0) as file:
                is_archive = path.suffix == ".zst"
                texts = file_reader.decompressed(path, b"") if is_archive else iter(partial(file.read, PIECE), b"")
                for offset, _, source in self.patterns.find(texts):
                    if source not in self.words:
                        self.add(str(path), offset, TRANSCRIPT, source)

    def _transcripts(self) -> Iterator[Path]:
        for root in self.context.roots:
            found = {path for pattern in root.place.files for path in root.folder.glob(pattern)}
            yield from sorted(path for path in found if root.place.owns(path))

    def result(self) -> ForgetProof:
        """Return the result, without matches of what retained texts hold as well."""
        self._leave_out_retained()
        found: dict[tuple[str, str], Trace] = {}
        for (file, kind, _), (offset, times) in self.findings.items():
            one = found.get((file, kind), Trace(file, offset, kind, 0))
            found[file, kind] = Trace(file, min(offset, one.offset), kind, one.times + times)
        by_rows_only = sum(self.retained.issuperset(_stretches(text)) for text in self.forgotten.texts)
        return ForgetProof(
            self.files,
            self.size,
            len(self.forgotten.texts),
            by_rows_only,
            tuple(trace for trace in found.values() if trace.kind != TRANSCRIPT)[:MAX_TRACES],
            tuple(self.unread),
            tuple(dict.fromkeys(trace.file for trace in found.values() if trace.kind == TRANSCRIPT)),
        )


def _stretches(text: str) -> list[str]:
    return [one for one in stretches_of(text) if one.lower() not in own_words()]


def _held(wanted: Mapping[bytes, set[Source]], datas: Iterator[bytes]) -> set[Source]:
    """Return the values of what occurs in some data."""
    left = {data: sources for data, sources in wanted.items() if MIN_LENGTH <= len(data) <= MAX_LENGTH}
    matcher, found = MultiPatternMatcher(sorted(left)), set[Source]()
    for batch in _joined(datas) if left else ():
        for data in {matcher.strings[number] for _, number in matcher.find(batch)} & left.keys():
            found |= left.pop(data)
        if len(left) < 0.9 * len(matcher):  # a frequent string would be found again and again
            matcher = MultiPatternMatcher(sorted(left))
    return found


def _line_at(text: bytes, offset: int) -> bytes:
    end = text.find(b"\n", offset)
    return text[text.rfind(b"\n", 0, offset) + 1 : end if end >= 0 else len(text)]


def _joined(values: Iterable[bytes]) -> Iterator[bytes]:
    """Join many small values into larger ones."""
    batch: list[bytes] = []
    size = 0
    for value in values:
        batch.append(value)
        size += len(value) + 1
        if size > PIECE:
            yield b"\0".join((*batch, b""))
            batch, size = [], 0
    yield b"\0".join(batch)
