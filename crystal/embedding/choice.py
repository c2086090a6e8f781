"""Which embedder the settings mean: names, usual models and dimensions, and loading at the last moment.

Knowing a model's name and dimension loads nothing. Libraries, tables and keys are fetched when a text is embedded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

from crystal.errors import CrystalError, NotConfigured, UsageProblem

if TYPE_CHECKING:  # each brings a library that only its own user pays for
    from crystal.embedding.embedded import StaticEmbedder
    from crystal.embedding.embedder import TokenRows
    from crystal.embedding.local.model import LocalEmbedder
    from crystal.embedding.remote import Provider, RemoteEmbedder

EMBEDDED_MODEL = "crystal-static-1"
TIMEOUT_SECONDS = 60.0

Key: TypeAlias = "str | Callable[[], str | None] | None"
"""An API key, or what fetches it when it is needed: asking a keyring takes time."""

USUAL_MODELS = MappingProxyType(
    {
        "embedded": EMBEDDED_MODEL,
        "local": "minilm",
        "openai": "text-embedding-3-small",
        "ollama": "nomic-embed-text",
        "google": "text-embedding-004",
        "voyage": "voyage-3-lite",
    }
)

DIMENSIONS = MappingProxyType(
    {
        EMBEDDED_MODEL: 256,
        "text-embedding-3-small": 1536,
        "text-embedding-3-large": 3072,
        "text-embedding-ada-002": 1536,
        "nomic-embed-text": 768,
        "mxbai-embed-large": 1024,
        "all-minilm": 384,
        "bge-m3": 1024,
        "bge-large": 1024,
        "snowflake-arctic-embed": 1024,
        "snowflake-arctic-embed2": 1024,
        "embeddinggemma": 768,
        "text-embedding-004": 768,
        "embedding-001": 768,
        "gemini-embedding-001": 3072,
        "voyage-3-lite": 512,
        "voyage-3": 1024,
        "voyage-3-large": 1024,
        "voyage-3.5": 1024,
        "voyage-3.5-lite": 1024,
        "voyage-code-3": 1024,
        "voyage-4": 1024,
        "voyage-4-large": 1024,
        "voyage-4-lite": 1024,
    }
)
"""How many numbers a vector of each model has, when nothing else is asked for."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What the settings say; ``asked_dimension`` is None where the model's own is meant. ``timeout`` in seconds.

    ``models`` is the folder of installed models where one of them is meant, and ``threads`` what it may use.
    """

    provider: str
    model: str
    dimension: int
    base_url: str | None
    asked_dimension: int | None
    timeout: float
    models: Path | None = None
    threads: int = 1
    has_tokens: bool = False


class ChosenEmbedder:
    """An embedder that is known by name and loaded when it is first asked, see ``Embedder``."""

    def __init__(self, choice: Choice, key: Key) -> None:
        self._choice = choice
        self._given_key = key

    @property
    def provider(self) -> str:
        """See ``Embedder``."""
        return self._choice.provider

    @property
    def model(self) -> str:
        """See ``Embedder``."""
        return self._choice.model

    @property
    def dimension(self) -> int:
        """See ``Embedder``."""
        return self._choice.dimension

    @cached_property
    def identity(self) -> str:
        """See ``Embedder``. Sixteen digits of a hash: enough to see a change, too little to find a key."""
        try:
            key = self._key or ""
        except CrystalError:  # a key that cannot be fetched is a failure like others, and told when a text is embedded
            key = ""
        parts = (self.provider, self.model, str(self.dimension), self._choice.base_url or "", key)
        return hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()[:16]

    @cached_property
    def _key(self) -> str | None:
        return self._given_key() if callable(self._given_key) else self._given_key

    @cached_property
    def _maker(self) -> StaticEmbedder | LocalEmbedder | RemoteEmbedder:
        if self.provider == "embedded":
            from crystal.embedding.embedded import StaticEmbedder

            return StaticEmbedder()
        if self._choice.models is not None:
            from crystal.embedding.local.model import LocalEmbedder

            return LocalEmbedder(self._choice.models, self.model, self._choice.threads)
        from crystal.embedding.remote import RemoteEmbedder

        return RemoteEmbedder(_reach(self._choice, self._key), self.dimension, self._choice.timeout)

    def embed_documents(self, texts: Sequence[str]) -> list[bytes]:
        """See ``Embedder``."""
        return self._maker.embed_documents(texts) if texts else []

    def embed_query(self, text: str) -> bytes:
        """See ``Embedder``."""
        return self._maker.embed_query(text)

    @property
    def has_token_vectors(self) -> bool:
        """Whether ``token_vectors`` can be asked; nothing is loaded to know it."""
        return self._choice.has_tokens

    def token_vectors(self, texts: Sequence[str]) -> list[TokenRows]:
        """See ``TokenVectors``.

        Raises:
            UsageProblem: The model gives none, see ``has_token_vectors``.
        """
        maker = self._maker
        if not self.has_token_vectors or not hasattr(maker, "token_vectors"):
            raise UsageProblem(f"{self.provider} {self.model} gives no vectors of tokens")
        return maker.token_vectors(texts)

    def take_tokens(self) -> int:
        """See ``Embedder``; before anything was asked, nothing was paid, and nothing is loaded to say so."""
        return self._maker.take_tokens() if "_maker" in self.__dict__ else 0


def _reach(choice: Choice, key: str | None) -> Provider:
    model, url, asked = choice.model, choice.base_url, choice.asked_dimension
    if choice.provider == "ollama":
        from crystal.embedding.ollama import Ollama

        return Ollama(model, url, asked)
    if choice.provider == "google":
        from crystal.embedding.google import Google

        return Google(model, url, asked, key)
    if choice.provider == "voyage":
        from crystal.embedding.voyage import Voyage

        return Voyage(model, url, asked, key)
    from crystal.embedding.openai_api import OpenAI

    return OpenAI(model, url, asked, key)


def make_embedder(
    provider: str,
    model: str | None = None,
    dimension: int | None = None,
    base_url: str | None = None,
    key: Key = None,
    *,
    timeout: float = TIMEOUT_SECONDS,
    models: Path | None = None,
    threads: int = 1,
) -> ChosenEmbedder:
    """The embedder that settings mean. Loads nothing and asks nobody.

    Args:
        provider: ``embedded``, ``local``, ``openai``, ``ollama``, ``google`` or ``voyage``.
        model: By the provider's name for it; None for its usual one.
        dimension: For models that let one choose, or that crystal does not know; None for the model's own.
        base_url: Where the provider answers; None for its own address.
        key: The API key, or what fetches it when it is needed.
        timeout: Seconds for one request; a question gets ten at most.
        models: The folder of installed models, for ``local``.
        threads: How many processors an installed model may use.

    Raises:
        UsageProblem: No such provider, or a choice that the embedded model does not leave.
        NotConfigured: The model's dimension is not known and not given, or it is not installed.
        Damaged: What is known of an installed model cannot be read.
    """
    if provider not in USUAL_MODELS:
        raise UsageProblem(f"there is no embedding provider {provider!r}", hint=f"one of: {', '.join(USUAL_MODELS)}")
    chosen = model or USUAL_MODELS[provider]
    if provider == "local":
        return _installed(models, chosen, dimension, timeout, threads)
    known = DIMENSIONS.get(chosen.rpartition("/")[2].partition(":")[0])
    if provider == "embedded" and chosen != EMBEDDED_MODEL:
        raise UsageProblem(f"there is no embedded model {chosen!r}", hint=f"there is: {EMBEDDED_MODEL}")
    if provider == "embedded" and dimension not in (None, known):
        raise UsageProblem(
            f"{EMBEDDED_MODEL} has {known} dimensions, not {dimension}", hint="unset embedding.dimension"
        )
    size = dimension or known
    if size is None:
        raise NotConfigured(
            f"how many numbers a vector of {provider} {chosen} has is not known",
            hint="set embedding.dimension to it (the model's page tells)",
        )
    has_tokens = provider == "embedded"
    return ChosenEmbedder(Choice(provider, chosen, size, base_url, dimension, timeout, has_tokens=has_tokens), key)


def _installed(models: Path | None, name: str, dimension: int | None, timeout: float, threads: int) -> ChosenEmbedder:
    if models is None:
        raise NotConfigured(f"the model {name} is not installed", hint=f"crystal models install {name}")
    from crystal.embedding.local.manifest import read_manifest

    found = read_manifest(models, name)
    if dimension not in (None, found.dimension):
        raise UsageProblem(
            f"the model {name} has {found.dimension} dimensions, not {dimension}", hint="unset embedding.dimension"
        )
    has_tokens = found.token_output is not None
    return ChosenEmbedder(
        Choice("local", found.full_name, found.dimension, None, dimension, timeout, models, threads, has_tokens), None
    )
