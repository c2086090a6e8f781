"""List the models that crystal knows by a short name.

``sha256`` pins files whose hash is known here. For all other files the hub's own list of hashes is the only check.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


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


MINILM = KnownModel(
    "minilm",
    "sentence-transformers/all-MiniLM-L6-v2",
    "English; small and fast",
    "Apache-2.0",
    dimension=384,
    megabytes=91,
    most_tokens=256,
    revision="1110a243fdf4706b3f48f1d95db1a4f5529b4d41",
    sha256={
        "onnx/model.onnx": "6fd5d72fe4589f189f8ebc006442dbb529bb7ce38f8082112682524616046452",
        "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    },
)
E5_SMALL = KnownModel(
    "e5-small", "intfloat/multilingual-e5-small", "a hundred languages", "MIT", 384, 490, "query: ", "passage: "
)
E5_BASE = KnownModel(
    "e5-base", "intfloat/multilingual-e5-base", "a hundred languages", "MIT", 768, 1130, "query: ", "passage: "
)
BGE_M3 = KnownModel(
    "bge-m3", "BAAI/bge-m3", "a hundred languages, long texts; slow", "MIT", 1024, 2290, most_tokens=1024
)
EMBEDDING_GEMMA = KnownModel(
    "embeddinggemma",
    "onnx-community/embeddinggemma-300m-ONNX",
    "a hundred languages; new",
    "Gemma terms of use",
    768,
    1240,
    "task: search result | query: ",
    "title: none | text: ",
    most_tokens=1024,
)
KNOWN: Mapping[str, KnownModel] = {known.name: known for known in (MINILM, E5_SMALL, E5_BASE, BGE_M3, EMBEDDING_GEMMA)}
