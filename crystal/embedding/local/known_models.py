"""List the models that crystal knows by a short name: the rows of ``models.json``.

``sha256`` pins files whose hash is known. For all other files the hub's own list of hashes is the only check.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A model of the hub, with its data.

    Attributes:
        name: The short name.
        repository: ``OWNER/MODEL`` at the hub.
        about: Its purpose, in one line.
        licence: Its licence.
        dimension: Numbers in a vector.
        megabytes: Approximate size of the download.
        query_prefix: Text that the model expects before a question; None to read it from its files.
        document_prefix: The same before a document.
        most_tokens: Maximum tokens of a text; None to read it from its files.
        revision: The commit to fetch; by default the newest.
        sha256: Known hashes of its files.
    """

    name: str
    repository: str
    about: str = ""
    licence: str = ""
    dimension: int = 0
    megabytes: int = 0
    query_prefix: str | None = None
    document_prefix: str | None = None
    most_tokens: int | None = None
    revision: str = "main"
    sha256: Mapping[str, str] = field(default_factory=dict)


KNOWN: Mapping[str, KnownModel] = {
    row["name"]: KnownModel(**row) for row in json.loads(Path(__file__).with_name("models.json").read_bytes())
}
