"""Describe an installed model in ``crystal.json``, and check that its files are unchanged.

A folder is an installed model if it contains that file, which is written last. The file lists every other file with
its size and SHA-256. The digest shows which vectors belong together: other files under the same name are another model.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated

import msgspec

from crystal.config.paths import refused
from crystal.config.providers import EMBEDDING_PROVIDERS, NO_PROVIDER
from crystal.errors import DamagedError, NotConfiguredError, UsageError

FILE, SCHEMA = "crystal.json", 2
GRAPH, TOKENIZER = "model.onnx", "tokenizer.json"
ALWAYS_HASHED_BYTES = 256 << 20
"""A larger file is read again only if its modification time has changed."""

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
Positive = Annotated[int, msgspec.Meta(gt=0)]
NAME_RULE = "1 to 64 of a-z, 0-9, '.', '_' and '-', the first a letter or a digit, and not the name of a provider"


@dataclass(frozen=True, slots=True)
class HeldFile:
    """A file of a model: its size in bytes, its SHA-256, and its modification time (ns)."""

    size: int
    sha256: str
    changed: int = 0


@dataclass(frozen=True, slots=True)
class ModelManifest:
    """An installed model.

    Attributes:
        name: The name of its folder.
        dimension: Numbers in a vector.
        weights: ``int8`` if crystal rounded them, ``float32``, or ``as given`` for a graph that came with 8 bits.
        pooling: How hidden states become one vector: ``mean``, ``cls``, ``lasttoken``, or ``given`` by the graph.
        most_tokens: Maximum tokens of a text, special ones included.
        query_prefix: Text that the model expects before a question.
        document_prefix: The same before a document.
        output: The graph's output that is pooled, or is the vector.
        token_output: The output with the hidden states, None if the graph has none.
        is_batched: False if a vector depends on the other texts of a batch, so that each text runs alone.
        source_sha256: The hash of the original graph.
        origin: Where its files came from.
        licence: Its licence, if known.
        verified: What its files were compared with.
        installed_at: ms since the epoch.
        files: By name; all files of the folder except the manifest.
    """

    name: str
    dimension: Positive
    weights: str
    pooling: str
    most_tokens: Positive
    query_prefix: str
    document_prefix: str
    output: str
    token_output: str | None
    is_batched: bool
    source_sha256: str
    origin: str
    licence: str
    verified: str
    installed_at: int
    files: Mapping[str, HeldFile] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """Return eight digits that change whenever the vectors can change; the same on every machine."""
        tokenizer = self.files[TOKENIZER].sha256
        parts = [self.source_sha256, tokenizer, self.weights, self.pooling, self.most_tokens, self.output]
        prefixes = [self.query_prefix, self.document_prefix]
        return hashlib.sha256(json.dumps([*parts, *prefixes]).encode()).hexdigest()[:8]

    @property
    def full_name(self) -> str:
        """Return the name under which its vectors are stored."""
        return f"{self.name}@{self.digest}"

    @property
    def size(self) -> int:
        """Return the size of all its files in bytes."""
        return sum(held.size for held in self.files.values())

    def to_bytes(self) -> bytes:
        """Return the content of its ``crystal.json``."""
        return (json.dumps({"schema": SCHEMA, **asdict(self)}, indent=2, ensure_ascii=False) + "\n").encode()


def checked_name(name: str) -> str:
    """Return ``name`` if it is valid for a model's folder.

    Raises:
        UsageError: It is not.
    """
    if not _NAME.fullmatch(name) or name.endswith(".") or name in (*EMBEDDING_PROVIDERS, NO_PROVIDER):
        raise UsageError(f"{name!r} cannot be the name of a model", hint=f"a name is {NAME_RULE}")
    return name


def installed_models(home: Path) -> Iterator[ModelManifest | DamagedError]:
    """Yield every installed model by name; an error for one that cannot be read."""
    try:
        names = sorted(folder.name for folder in home.iterdir() if _NAME.fullmatch(folder.name) and folder.is_dir())
    except OSError:
        return
    for name in names:
        try:
            yield read_manifest(home, name)
        except DamagedError as error:
            yield error
        except (NotConfiguredError, UsageError):
            continue


def read_manifest(home: Path, name: str) -> ModelManifest:
    """Read the manifest of a model, by its name or its full name.

    Raises:
        NotConfiguredError: It is not installed, or the installed model differs from the full name.
        DamagedError: Its manifest cannot be parsed.
    """
    bare, _, digest = name.partition("@")
    path = home / checked_name(bare) / FILE
    try:
        content = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError) as error:
        hint = f"crystal models install {bare}"
        raise NotConfiguredError(f"the model {bare} is not installed", hint=hint) from error
    except OSError as error:
        raise refused(error, path) from error
    try:
        found = _parse_manifest(content, bare)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise damaged_model(bare, f"{path} cannot be understood") from error
    if digest and digest != found.digest:
        hint = "keywords are used until the new model's vectors are complete: crystal sync"
        raise NotConfiguredError(f"the model {name} was replaced by another {bare}", hint=hint)
    return found


def _parse_manifest(content: bytes, name: str) -> ModelManifest:
    values = json.loads(content)
    if values.pop("schema") != SCHEMA:
        raise ValueError(SCHEMA)
    found = msgspec.convert({**values, "name": name}, ModelManifest)
    if GRAPH not in found.files or not found.digest or any(Path(file).name != file for file in found.files):
        raise ValueError(found.files)
    return found


def hold_file(path: Path) -> HeldFile:
    """Return size, hash and modification time of a file."""
    status = path.stat()
    return HeldFile(status.st_size, hash_file(path), status.st_mtime_ns)


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def check_files(folder: Path, found: ModelManifest) -> None:
    """Compare a model's files with what was installed.

    Raises:
        DamagedError: A file is missing or has changed.
    """
    for name, held in found.files.items():
        path = folder / name
        try:
            status = path.stat()
            is_known = held.size > ALWAYS_HASHED_BYTES and status.st_mtime_ns == held.changed
            is_same = status.st_size == held.size and (is_known or hash_file(path) == held.sha256)
        except OSError as error:
            raise damaged_model(found.name, f"{path} cannot be read: {(error.strerror or '').lower()}") from error
        if not is_same:
            raise damaged_model(found.name, f"{path} has other content than was installed")


def check_model(home: Path, name: str) -> None:
    """Compare the files of an installed model with what was installed, as ``check_files`` does."""
    found = read_manifest(home, name)
    check_files(home / found.name, found)


def damaged_model(name: str, why: str) -> DamagedError:
    """Return the error for an installed model that cannot be used."""
    hint = (
        f"install it again: crystal models install {name}, or: crystal models use embedded; keywords answer meanwhile"
    )
    return DamagedError(f"the model {name} is damaged: {why}", hint=hint)
