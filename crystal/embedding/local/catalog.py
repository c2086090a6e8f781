"""The models that crystal knows by a short name, and what is known of each without asking anybody.

``sha256`` stands where it could be verified: then a file is taken from anywhere and believed only with this hash.
Where it is None, the hub's own list of hashes is all there is to compare with, and that is said.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Known:
    """A model with a short name.

    Attributes:
        name: The short name.
        hub: Its repository at the hub.
        about: What it is good for, in a line.
        licence: Its licence.
        dimension: Numbers in a vector.
        megabytes: What is fetched, about.
        query_prefix: What it wants before a question.
        document_prefix: The same before what is searched.
        most_tokens: Of a text; None for what its files say.
        sha256: Of its ``model.safetensors``, None where it is not known here.
    """

    name: str
    hub: str
    about: str
    licence: str
    dimension: int
    megabytes: int
    query_prefix: str = ""
    document_prefix: str = ""
    most_tokens: int | None = None
    sha256: str | None = None


MINILM = Known(
    "minilm",
    "sentence-transformers/all-MiniLM-L6-v2",
    "English; small and fast",
    "Apache-2.0",
    384,
    91,
    most_tokens=256,
    sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
)
MINILM_BYTES = 90_868_376
MINILM_CONFIG: Mapping[str, object] = MappingProxyType(
    {
        "model_type": "bert",
        "num_hidden_layers": 6,
        "num_attention_heads": 12,
        "hidden_size": 384,
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-12,
        "max_position_embeddings": 512,
    }
)
"""Its ``config.json``; the vocabulary is that of the embedded model. So its weights alone need fetching."""

KNOWN: Mapping[str, Known] = MappingProxyType(
    {
        known.name: known
        for known in (
            MINILM,
            Known(
                "e5-small",
                "intfloat/multilingual-e5-small",
                "a hundred languages",
                "MIT",
                384,
                490,
                "query: ",
                "passage: ",
            ),
            Known(
                "e5-base",
                "intfloat/multilingual-e5-base",
                "a hundred languages",
                "MIT",
                768,
                1130,
                "query: ",
                "passage: ",
            ),
            Known(
                "bge-m3", "BAAI/bge-m3", "a hundred languages, long texts; slow", "MIT", 1024, 2290, most_tokens=1024
            ),
            Known(
                "embeddinggemma",
                "onnx-community/embeddinggemma-300m-ONNX",
                "a hundred languages; new",
                "Gemma terms of use",
                768,
                1240,
                "task: search result | query: ",
                "title: none | text: ",
                most_tokens=1024,
            ),
        )
    }
)
