"""List the models that crystal knows by a short name: the rows of ``models.json``.

``sha256`` pins files whose hash is known here. For all other files the hub's own list of hashes is the only check.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A model of the hub, and what is known of it without asking.

    Attributes:
        name: The short name.
        repository: ``OWNER/MODEL`` at the hub.
        about: What it is good for, in a line.
        licence: Its licence.
        dimension: Numbers in a vector.
        megabytes: Size of the download, about.
        query_prefix: Text that the model expects before a question; None for what its files say.
        document_prefix: The same before a document.
        most_tokens: Tokens read of a text; None for what its files say.
        revision: The commit that is fetched; the newest where none is known.
        sha256: Hashes of its files, where they are known here.
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
