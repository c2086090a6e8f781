"""What is known of an installed model: its folder, its ``crystal.json``, and whether its files are still the same.

A folder counts as a model when it has that file, which is written last. Every other file is named in it with its size
and SHA-256. Which vectors belong together is told by the digest: the same name with other files is another model.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from crystal.errors import Damaged, NotConfigured, UsageProblem
from crystal.paths import refused

FILE = "crystal.json"
SCHEMA = 1
GRAPH = "model.onnx"

ALWAYS_HASHED = 256 << 20
"""Bytes; a larger file is read again only when its time of change is another than at the last look."""

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
TAKEN = frozenset({"embedded", "local", "none", "openai", "ollama", "google", "voyage"})
"""Names of providers, which a model must not have: ``crystal models use`` takes either."""
NAME_WORDS = "1 to 64 of a-z, 0-9, '.', '_' and '-', the first a letter or a digit"


@dataclass(frozen=True, slots=True)
class HeldFile:
    """A file of a model: its size in bytes, its SHA-256, and when it was last changed (ns)."""

    size: int
    sha256: str
    changed: int = 0


@dataclass(frozen=True, slots=True)
class Manifest:
    """An installed model.

    Attributes:
        name: The name of its folder.
        dimension: Numbers in a vector.
        weights: ``int8`` or ``float32`` where crystal made the graph, else ``as given``.
        pooling: How hidden states become one vector: ``mean``, ``cls``, ``lasttoken``, or ``given`` by the graph.
        most_tokens: Of a text, special ones included; the rest of a longer text is not looked at.
        query_prefix: What the model wants before a question.
        document_prefix: The same before what is searched.
        output: The value of the graph that is pooled, or is the vector.
        token_output: The value with the hidden states, None if the graph does not give them.
        origin: Where its files came from.
        licence: What is known of its licence.
        verified: What its files were compared with, in words.
        installed_at: When, in ms since the epoch.
        files: By name; all that the folder has besides this.
    """

    name: str
    dimension: int
    weights: str
    pooling: str
    most_tokens: int
    query_prefix: str
    document_prefix: str
    output: str
    token_output: str | None
    origin: str
    licence: str
    verified: str
    installed_at: int
    files: Mapping[str, HeldFile] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """Eight digits that change with everything that changes vectors."""
        made = [self.pooling, self.most_tokens, self.query_prefix, self.document_prefix, self.output]
        held = sorted((name, one.sha256) for name, one in self.files.items() if name != "LICENSE")
        return hashlib.sha256(json.dumps([made, held]).encode()).hexdigest()[:8]

    @property
    def full_name(self) -> str:
        """The name under which its vectors are kept."""
        return f"{self.name}@{self.digest}"

    @property
    def size(self) -> int:
        """Bytes of all its files."""
        return sum(one.size for one in self.files.values())


def checked_name(name: str) -> str:
    """A name, if it can be that of a model's folder.

    Raises:
        UsageProblem: It cannot.
    """
    if not _NAME.fullmatch(name) or name.endswith(".") or name in TAKEN:
        raise UsageProblem(
            f"{name!r} cannot be the name of a model", hint=f"a name is {NAME_WORDS}; no provider's name"
        )
    return name


def installed_models(home: Path) -> Iterator[Manifest | Damaged]:
    """Every model in the folder of models, by name; one whose description cannot be read as the error that says so."""
    try:
        names = sorted(each.name for each in home.iterdir() if _NAME.fullmatch(each.name) and each.is_dir())
    except OSError:
        return
    for name in names:
        try:
            yield read_manifest(home, name)
        except Damaged as error:
            yield error
        except NotConfigured:
            continue


def read_manifest(home: Path, name: str) -> Manifest:
    """The description of an installed model, by its name or its full name.

    Raises:
        NotConfigured: It is not installed, or is another one by now than the full name says.
        Damaged: Its description cannot be understood.
    """
    bare, _, digest = name.partition("@")
    path = home / checked_name(bare) / FILE
    try:
        held = json.loads(path.read_bytes())
        files = {str(file): HeldFile(**one) for file, one in held.pop("files").items()}
        if held.pop("schema") != SCHEMA or not all(Path(file).name == file for file in files):
            raise ValueError(SCHEMA)
        found = Manifest(files=files, **{**held, "name": bare})
        _check_types(found)
    except (FileNotFoundError, NotADirectoryError) as error:
        hint = f"crystal models install {bare}"
        raise NotConfigured(f"the model {bare} is not installed", hint=hint) from error
    except OSError as error:
        raise refused(error, path) from error
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise damaged_model(bare, f"{path} cannot be understood") from error
    if digest and digest != found.digest:
        hint = "keywords answer until the new model's vectors are complete: crystal sync"
        raise NotConfigured(f"the model {name} is not installed any more, {bare} is another one now", hint=hint)
    return found


def _check_types(found: Manifest) -> None:
    numbers = (found.dimension, found.most_tokens, found.installed_at)
    if not all(type(number) is int and number > 0 for number in numbers):
        raise TypeError(numbers)
    words = (found.weights, found.pooling, found.query_prefix, found.document_prefix, found.output, found.origin)
    if not all(isinstance(word, str) for word in (*words, found.licence, found.verified)):
        raise TypeError(words)


def manifest_bytes(found: Manifest) -> bytes:
    """A description as it is written."""
    return (json.dumps({"schema": SCHEMA, **asdict(found)}, indent=2, ensure_ascii=False) + "\n").encode()


def held_file(path: Path) -> HeldFile:
    """Size, hash and time of a file."""
    with path.open("rb") as file:
        digest = sha256_of(file)
    seen = path.stat()
    return HeldFile(seen.st_size, digest, seen.st_mtime_ns)


def sha256_of(file: Any) -> str:
    """The SHA-256 of what is left to read of a file."""
    digest = hashlib.sha256()
    while piece := file.read(1 << 20):
        digest.update(piece)
    return digest.hexdigest()


def check_files(folder: Path, found: Manifest) -> None:
    """Compare a model's files with what was installed.

    Raises:
        Damaged: One is missing or another than it was.
    """
    for name, held in found.files.items():
        path = folder / name
        try:
            seen = path.stat()
            if seen.st_size != held.size:
                raise damaged_model(found.name, f"{path} has {seen.st_size} bytes, not {held.size}")
            if held.size > ALWAYS_HASHED and seen.st_mtime_ns == held.changed:
                continue
            with path.open("rb") as file:
                digest = sha256_of(file)
        except OSError as error:
            raise damaged_model(found.name, f"{path} cannot be read: {(error.strerror or '').lower()}") from error
        if digest != held.sha256:
            raise damaged_model(found.name, f"{path} has other content than was installed")


def check_model(home: Path, name: str) -> None:
    """Compare the files of an installed model with what was installed, as ``check_files`` does."""
    found = read_manifest(home, name)
    check_files(home / found.name, found)


def damaged_model(name: str, why: str) -> Damaged:
    """The error for a model that cannot be used as it lies on the disk."""
    hint = (
        f"install it again (crystal models install {name}), or: crystal models use embedded; keywords answer meanwhile"
    )
    return Damaged(f"the model {name} is damaged: {why}", hint=hint)
