"""List the embedding providers, one row each.

Settings, choice, keys, prices, ``crystal doctor`` and the reference page read this table and have no list of their own.
How to add a row: docs/how-to/add-an-embedding-provider.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType

from crystal.model.named_tuple import NamedTuple


class ProviderKind(Enum):
    """Place where a provider's model runs; the value is its name on the reference page."""

    EMBEDDED = "part of crystal"
    INSTALLED = "a model installed on this machine"
    SERVER = "a server of your own; free, no key"
    SERVICE = "a service on the network; needs a key"


class EmbeddingProvider(NamedTuple):
    """An embedding provider.

    Attributes:
        name: The value of ``embedding.provider``.
        kind: Where its model runs.
        module: The module in ``crystal.embedding`` that implements it.
        implementation: The class in that module.
        default_model: The model if none is set.
        dimensions: Numbers in a vector of each known model.
        base_url: The address if none is set; empty if it runs inside crystal.
        key_variables: Environment variables of its key, besides ``CRYSTAL_<NAME>_API_KEY``.
        model_variables: Environment variables that set the model.
        url_variables: Environment variables that set the address.
        packages: Optional packages that it needs.
        usd_per_million: Price of a million tokens by model.
    """

    name: str
    kind: ProviderKind
    module: str
    implementation: str
    default_model: str
    dimensions: Mapping[str, int] = MappingProxyType({})
    base_url: str = ""
    key_variables: tuple[str, ...] = ()
    model_variables: tuple[str, ...] = ()
    url_variables: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    usd_per_million: Mapping[str, float] = MappingProxyType({})

    @property
    def runs_here(self) -> bool:
        """Return True if the model runs on this machine and nothing is sent."""
        return self.kind in (ProviderKind.EMBEDDED, ProviderKind.INSTALLED)

    @property
    def needs_key(self) -> bool:
        """Return True if the provider's own address requires an API key."""
        return self.kind is ProviderKind.SERVICE


NO_PROVIDER = "none"
"""The value of ``embedding.provider`` for search by keywords alone."""

_OF_1024 = ("mxbai-embed-large", "bge-m3", "bge-large", "snowflake-arctic-embed", "snowflake-arctic-embed2")
_VOYAGE_OF_1024 = tuple(f"voyage-{name}" for name in "3 3-large 3.5 3.5-lite code-3 4 4-large 4-lite".split())

_ROWS = (
    EmbeddingProvider(
        name="embedded",
        kind=ProviderKind.EMBEDDED,
        module="embedded",
        implementation="StaticEmbedder",
        default_model="crystal-static-1",
        dimensions={"crystal-static-1": 256},
    ),
    EmbeddingProvider(
        name="local",
        kind=ProviderKind.INSTALLED,
        module="local.encoder",
        implementation="LocalEmbedder",
        default_model="minilm",
        packages=("onnxruntime", "tokenizers"),
    ),
    EmbeddingProvider(
        name="openai",
        kind=ProviderKind.SERVICE,
        module="remote",
        implementation="OpenAI",
        default_model="text-embedding-3-small",
        dimensions={
            "text-embedding-3-small": 1536,
            "text-embedding-3-large": 3072,
            "text-embedding-ada-002": 1536,
        },
        base_url="https://api.openai.com/v1",
        key_variables=("OPENAI_API_KEY",),
        model_variables=("CRYSTAL_OPENAI_MODEL",),
        url_variables=("OPENAI_BASE_URL",),
        usd_per_million={
            "text-embedding-3-small": 0.02,
            "text-embedding-3-large": 0.13,
            "text-embedding-ada-002": 0.10,
        },
    ),
    EmbeddingProvider(
        name="ollama",
        kind=ProviderKind.SERVER,
        module="remote",
        implementation="Ollama",
        default_model="nomic-embed-text",
        dimensions={"nomic-embed-text": 768, "embeddinggemma": 768, "all-minilm": 384, **dict.fromkeys(_OF_1024, 1024)},
        base_url="http://localhost:11434",
        model_variables=("CRYSTAL_OLLAMA_MODEL",),
        url_variables=("CRYSTAL_OLLAMA_HOST",),
    ),
    EmbeddingProvider(
        name="google",
        kind=ProviderKind.SERVICE,
        module="remote",
        implementation="Google",
        default_model="text-embedding-004",
        dimensions={"text-embedding-004": 768, "embedding-001": 768, "gemini-embedding-001": 3072},
        base_url="https://generativelanguage.googleapis.com",
        key_variables=("GOOGLE_API_KEY", "GEMINI_API_KEY"),
        model_variables=("CRYSTAL_GOOGLE_MODEL",),
        usd_per_million={"text-embedding-004": 0.15, "gemini-embedding-001": 0.15},
    ),
    EmbeddingProvider(
        name="voyage",
        kind=ProviderKind.SERVICE,
        module="remote",
        implementation="Voyage",
        default_model="voyage-3-lite",
        dimensions={"voyage-3-lite": 512, **dict.fromkeys(_VOYAGE_OF_1024, 1024)},
        base_url="https://api.voyageai.com/v1",
        key_variables=("VOYAGE_API_KEY",),
        usd_per_million={
            "voyage-3-lite": 0.02,
            "voyage-3.5-lite": 0.02,
            "voyage-3": 0.06,
            "voyage-3.5": 0.06,
            "voyage-3-large": 0.18,
        },
    ),
)

SUMMARIZERS: Mapping[str, tuple[str, str]] = {
    "openai": ("https://api.openai.com/v1", "gpt-4o-mini"),
    "ollama": ("http://localhost:11434", "llama3.2"),
    "google": ("https://generativelanguage.googleapis.com/v1beta/openai", "gemini-2.5-flash-lite"),
}
"""Providers of models that write, each with its address and default model."""

PROGRAMS: Mapping[str, str] = {"claude": "haiku", "codex": "default"}
"""The user's own agents through which a model can be asked, each with its default model."""

WRITERS = (*SUMMARIZERS, *PROGRAMS)

EMBEDDING_PROVIDERS: Mapping[str, EmbeddingProvider] = {row.name: row for row in _ROWS}


def runs_here(provider: str) -> bool:
    """Return True if a provider is known and its model runs on this machine."""
    row = EMBEDDING_PROVIDERS.get(provider)
    return row is not None and row.runs_here


def needs_key(provider: str) -> bool:
    """Return True if a provider's own address requires an API key, or the provider is unknown."""
    row = EMBEDDING_PROVIDERS.get(provider)
    return provider not in (NO_PROVIDER, *PROGRAMS) and (row is None or row.needs_key)
