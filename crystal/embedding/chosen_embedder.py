"""Choose the embedder named in the settings, and load it at its first use.

A model's name and dimension are known without loading it. Libraries, tables and keys are loaded when a text is
embedded.
"""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from crystal.config.providers import EMBEDDING_PROVIDERS, EmbeddingProvider, ProviderKind
from crystal.errors import CrystalError, NotConfiguredError, UsageError

if TYPE_CHECKING:  # imports NumPy
    from crystal.embedding.embedder import TokenRows


Key: TypeAlias = "str | Callable[[], str | None] | None"
"""An API key, or a function that fetches it when it is needed, because asking a keyring takes time."""


class ChosenEmbedder:
    """An embedder that is known by name and loaded at its first call, see ``Embedder``.

    Attributes:
        row: The provider's row in the registry.
        model: The provider's name of the model.
        dimension: Numbers in a vector.
        base_url: The provider's address; None for its default.
        asked_dimension: The requested dimension; None for the model's default.
        given_key: The API key, or a function that fetches it.
        models: The folder of installed models, if the provider needs it.
        threads: Maximum number of processors for an installed model.
        has_token_vectors: True if ``token_vectors`` can be called.
    """

    def __init__(  # noqa: PLR0913 - what a provider of one kind or another needs, by name
        self,
        row: EmbeddingProvider,
        model: str,
        dimension: int,
        *,
        base_url: str | None = None,
        asked_dimension: int | None = None,
        given_key: Key = None,
        models: Path | None = None,
        threads: int = 1,
        has_token_vectors: bool = False,
    ) -> None:
        self.row, self.model, self.dimension = row, model, dimension
        self.base_url, self.asked_dimension, self.given_key = base_url, asked_dimension, given_key
        self.models, self.threads, self.has_token_vectors = models, threads, has_token_vectors

    @property
    def provider(self) -> str:
        """Return the provider's name, see ``Embedder``."""
        return self.row.name

    @cached_property
    def identity(self) -> str:
        """Return 16 digits of a hash: enough to detect a change, too few to find a key. See ``Embedder``."""
        try:
            key = self._key or ""
        except CrystalError:  # a key that cannot be fetched is reported when a text is embedded
            key = ""
        parts = (self.provider, self.model, str(self.dimension), self.base_url or "", key)
        return hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()[:16]

    @cached_property
    def _key(self) -> str | None:
        return self.given_key() if callable(self.given_key) else self.given_key

    @cached_property
    def _maker(self) -> Any:
        row = self.row
        implementation = getattr(importlib.import_module(f"crystal.embedding.{row.module}"), row.implementation)
        if row.kind is ProviderKind.EMBEDDED:
            return implementation()
        if row.kind is ProviderKind.INSTALLED:
            return implementation(self.models, self.model, self.threads)
        from crystal.embedding.remote import checked_key

        key = checked_key(self._key, row, has_own_server=self.base_url is not None)
        return implementation(self, key)

    def embed_documents(self, texts: Sequence[str]) -> list[bytes]:
        """Embed documents, see ``Embedder``."""
        made: list[bytes] = self._maker.embed_documents(texts) if texts else []
        return made

    def embed_query(self, text: str) -> bytes:
        """Embed a question, see ``Embedder``."""
        made: bytes = self._maker.embed_query(text)
        return made

    def token_vectors(self, texts: Sequence[str]) -> list[TokenRows]:
        """Return token vectors, see ``TokenVectors``.

        Raises:
            UsageError: The model has none, see ``has_token_vectors``.
        """
        if not self.has_token_vectors:
            raise UsageError(f"{self.provider} {self.model} gives no vectors of tokens")
        made: list[TokenRows] = self._maker.token_vectors(texts)
        return made

    def take_tokens(self) -> int:
        """Return the tokens paid for, see ``Embedder``; loads nothing if the answer is 0."""
        is_asked = "_maker" in self.__dict__ and not self.row.runs_here
        return int(self._maker.take_tokens()) if is_asked else 0


def make_embedder(
    provider: str,
    model: str | None = None,
    dimension: int | None = None,
    base_url: str | None = None,
    key: Key = None,
    *,
    models: Path | None = None,
    threads: int = 1,
) -> ChosenEmbedder:
    """Make the embedder named in the settings. Loads nothing and sends no request.

    Args:
        provider: A name of the registry, ``crystal.config.providers``.
        model: The provider's name of the model; None for its default.
        dimension: For models with a choice, or unknown to crystal; None for the model's default.
        base_url: The provider's address; None for its default.
        key: The API key, or a function that fetches it when it is needed.
        models: The folder of installed models, for ``local``.
        threads: Maximum number of processors for an installed model.

    Raises:
        UsageError: There is no such provider, or the model does not allow the choice.
        NotConfiguredError: The model's dimension is unknown and not given, or the model is not installed.
        DamagedError: The manifest of an installed model cannot be read.
    """
    row = EMBEDDING_PROVIDERS.get(provider)
    if row is None:
        known = ", ".join(EMBEDDING_PROVIDERS)
        raise UsageError(f"there is no embedding provider {provider!r}", hint=f"one of: {known}")
    name = model or row.default_model
    if row.kind is ProviderKind.INSTALLED:
        return _choose_installed(row, name, dimension, models, threads)
    size = dimension or known_dimension(name)
    if row.kind is ProviderKind.EMBEDDED:
        if name not in row.dimensions:
            raise UsageError(f"there is no embedded model {name!r}", hint=f"crystal models use {provider}")
        size = _only_dimension(name, row.dimensions[name], dimension)
    if size is None:
        raise NotConfiguredError(
            f"how many numbers a vector of {provider} {name} has is not known",
            hint="set embedding.dimension (see the model's page)",
        )
    return ChosenEmbedder(row, name, size, base_url=base_url, asked_dimension=dimension, given_key=key)


def known_dimension(model: str) -> int | None:
    """Return the dimension of a model, at any provider; None if unknown."""
    name = model.rpartition("/")[2].partition(":")[0]
    return next((row.dimensions[name] for row in EMBEDDING_PROVIDERS.values() if name in row.dimensions), None)


def _choose_installed(
    row: EmbeddingProvider, name: str, asked: int | None, models: Path | None, threads: int
) -> ChosenEmbedder:
    if models is None:
        hint = f"crystal models install {name}"
        raise NotConfiguredError(f"the model {name} is not installed", hint=hint)
    from crystal.embedding.local.manifest import read_manifest

    found = read_manifest(models, name)
    size = _only_dimension(f"the model {name}", found.dimension, asked)
    has_tokens = found.token_output is not None
    return ChosenEmbedder(row, found.full_name, size, models=models, threads=threads, has_token_vectors=has_tokens)


def _only_dimension(name: str, dimension: int, asked: int | None) -> int:
    if asked not in (None, dimension):
        raise UsageError(f"{name} has {dimension} dimensions, not {asked}", hint="unset embedding.dimension")
    return dimension
