"""What all network embedders share: cleaning texts, making batches, checking answers."""

from __future__ import annotations

import math
import re
import sys
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from crystal.config.providers import EmbeddingProvider
from crystal.errors import NotConfiguredError, WrongAnswerError

Purpose = Literal["document", "query"]

QUERY_SECONDS = 10.0
"""The longest time to embed a question: the user waits for it, and keywords work without it."""

_KEY = re.compile(r"[!-~]+")


@dataclass(frozen=True, slots=True)
class EmbeddingResponse:
    """What a provider said: a list of numbers for each text, unchecked, and the tokens that it charges."""

    vectors: list[Any]
    tokens: int = 0


class Provider(Protocol):
    """A provider behind a network, made with ``(model, base_url, dimension, key)``.

    ``name`` stands in messages; a request stays within both limits. ``dimension`` is None for the model's own, and
    ``key`` is empty for a server that needs none. How to add one: docs/how-to/add-an-embedding-provider.md.
    """

    name: str
    most_texts: int
    most_characters: int

    def ask(self, texts: list[str], purpose: Purpose, timeout: float) -> EmbeddingResponse:
        """Make one request of at most ``timeout`` seconds.

        It fails as ``Embedder.embed_documents`` does. An answer of another shape may raise ``KeyError``, ``TypeError``
        or ``AttributeError``.
        """


class RemoteEmbedder:
    """An embedder that asks a provider, see ``Embedder``.

    Args:
        provider: The provider to call.
        dimension: How many numbers every vector must have.
        timeout: Seconds for one request, from its first byte to the answer's last.
    """

    def __init__(self, provider: Provider, dimension: int, timeout: float) -> None:
        self._provider = provider
        self._dimension = dimension
        self._timeout = timeout
        self._tokens = 0

    def embed_documents(self, texts: Sequence[str]) -> list[bytes]:
        """Embed documents, see ``Embedder``."""
        return self._embed(texts, "document", self._timeout)

    def embed_query(self, text: str) -> bytes:
        """Embed a question, see ``Embedder``."""
        return self._embed([text], "query", min(self._timeout, QUERY_SECONDS))[0]

    def take_tokens(self) -> int:
        """Return the tokens paid for, see ``Embedder``."""
        taken, self._tokens = self._tokens, 0
        return taken

    def _embed(self, texts: Sequence[str], purpose: Purpose, timeout: float) -> list[bytes]:
        found: list[bytes] = []
        for batch in batches([sendable(text) for text in texts], self._provider):
            try:
                answer = self._provider.ask(batch, purpose, timeout)
            except (KeyError, TypeError, AttributeError) as error:
                raise WrongAnswerError(f"{self._provider.name} answered without embeddings") from error
            self._tokens += answer.tokens
            if len(answer.vectors) != len(batch):
                raise WrongAnswerError(
                    f"{self._provider.name} gave {len(answer.vectors)} vectors for {len(batch)} texts"
                )
            found += [unit_vector(numbers, self._dimension, self._provider.name) for numbers in answer.vectors]
        return found


def sendable(text: str) -> str:
    """Return the text as every provider can read it: no lone surrogates, no NUL, and not blank."""
    sound = text.encode("utf-8", "replace").decode("utf-8").replace("\0", " ")
    return sound if sound.strip() else "."


def batches(texts: Sequence[str], provider: Provider) -> Iterator[list[str]]:
    """Cut texts into requests, in order; a text above the limit of characters goes alone."""
    batch: list[str] = []
    size = 0
    for text in texts:
        if batch and (len(batch) >= provider.most_texts or size + len(text) > provider.most_characters):
            yield batch
            batch, size = [], 0
        batch.append(text)
        size += len(text)
    if batch:
        yield batch


def unit_vector(numbers: object, dimension: int, name: str) -> bytes:
    """Check a vector and bring it to length 1. A vector of zeros becomes one that points nowhere in particular.

    Raises:
        WrongAnswerError: It has another dimension, or something in it is no finite number.
    """
    try:
        held = array("d", numbers if isinstance(numbers, list) else [])
    except (TypeError, ValueError, OverflowError) as error:
        raise WrongAnswerError(f"{name} gave a vector that is not all numbers") from error
    if len(held) != dimension:
        raise WrongAnswerError(
            f"{name} gave a vector of {len(held)} numbers, not {dimension}",
            hint=f"set embedding.dimension to {len(held)}" if held else None,
        )
    largest = max(map(abs, held))
    if not math.isfinite(sum(map(abs, held)) / dimension if largest < 1e300 else math.inf):
        raise WrongAnswerError(f"{name} gave a vector with numbers that are not finite")
    if largest == 0:
        held, largest = array("d", [1.0]) * dimension, 1.0
    # First by the largest, then to length 1: the squares of very small or large numbers would be lost.
    scaled = [number / largest for number in held]
    length = math.sqrt(sum(number * number for number in scaled))
    made = array("f", [number / length for number in scaled])
    if sys.byteorder == "big":
        made.byteswap()
    return made.tobytes()


def checked_key(key: str | None, row: EmbeddingProvider, *, has_own_server: bool) -> str:
    """Return the key, if it can be one; it is never part of a message. A server of the user's own may need none.

    Raises:
        NotConfiguredError: There is none, or it has characters that no key has.
    """
    if not key:
        if has_own_server or not row.needs_key:
            return ""
        variable = row.key_variables[0]
        raise NotConfiguredError(f"there is no API key for {row.name}", hint=f"set {variable}, or: crystal doctor")
    if not _KEY.fullmatch(key):
        hint = f"set {row.key_variables[0] if row.key_variables else 'it'} again, in one line"
        raise NotConfiguredError(f"the API key for {row.name} has characters that no key has", hint=hint)
    return key
