"""Embed with providers over a network: clean texts, make batches, check answers; one class for each protocol."""

from __future__ import annotations

import math
import re
import sys
from abc import ABC, abstractmethod
from array import array
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

from crystal.config.providers import EmbeddingProvider
from crystal.errors import NotConfiguredError, WrongAnswerError
from crystal.provider_http.post import address, post_json

if TYPE_CHECKING:
    from crystal.embedding.chosen_embedder import ChosenEmbedder

Purpose = Literal["document", "query"]

DOCUMENTS_SECONDS, QUERY_SECONDS = 60.0, 10.0
"""Time limits for one request. The user waits for a question's vector, and search works without it."""

_KEY = re.compile(r"[!-~]+")


class RemoteEmbedder(ABC):
    """An embedder that calls a provider, see ``Embedder``.

    A subclass defines the limits of one request, what to send, and how to parse the answer.
    How to add one: docs/how-to/add-an-embedding-provider.md.

    Args:
        chosen: The provider, the model, the address and the dimension.
        key: The API key; empty for a server that needs none.
    """

    most_texts: int
    most_characters: int
    unknown_model_hint = ""

    def __init__(self, chosen: ChosenEmbedder, key: str) -> None:
        self.name, self.model, self.key = f"{chosen.provider} {chosen.model}", chosen.model, key
        self.base_url = chosen.base_url or chosen.row.base_url
        self._chosen = chosen
        self._tokens = 0

    @abstractmethod
    def request(self, texts: list[str], purpose: Purpose) -> tuple[str, dict[str, str], dict[str, Any]]:
        """Return the address, the headers and the body of one request."""

    @abstractmethod
    def read(self, answer: Any, texts: list[str]) -> tuple[list[Any], int]:
        """Return a list of numbers for each text, unchecked, and the tokens that the provider charges.

        An answer of another shape may raise ``KeyError``, ``TypeError`` or ``AttributeError``.
        """

    def asked(self, name: str) -> dict[str, Any]:
        """Return the field that requests a dimension, with the provider's name for it; empty for the model's own."""
        return {name: self._chosen.asked_dimension} if self._chosen.asked_dimension else {}

    def bearer(self) -> dict[str, str]:
        """Return the header with the key; empty without a key."""
        return {"Authorization": f"Bearer {self.key}"} if self.key else {}

    def embed_documents(self, texts: Sequence[str]) -> list[bytes]:
        """Embed documents, see ``Embedder``."""
        return self._embed(texts, "document", DOCUMENTS_SECONDS)

    def embed_query(self, text: str) -> bytes:
        """Embed a question, see ``Embedder``."""
        return self._embed([text], "query", QUERY_SECONDS)[0]

    def take_tokens(self) -> int:
        """Return the tokens paid for, see ``Embedder``."""
        taken, self._tokens = self._tokens, 0
        return taken

    def _embed(self, texts: Sequence[str], purpose: Purpose, timeout: float) -> list[bytes]:
        found: list[bytes] = []
        for batch in self._batches([sendable(text) for text in texts]):
            url, headers, body = self.request(batch, purpose)
            try:
                made, tokens = self.read(post_json(self.name, url, body, headers, timeout), batch)
            except NotConfiguredError as error:
                hint = self.unknown_model_hint.format(model=self.model)
                raise NotConfiguredError(error.message, hint=hint or error.hint) from error
            except (KeyError, TypeError, AttributeError) as error:
                raise WrongAnswerError(f"{self.name} answered without embeddings") from error
            self._tokens += tokens
            if len(made) != len(batch):
                raise WrongAnswerError(f"{self.name} gave {len(made)} vectors for {len(batch)} texts")
            found += [unit_vector(numbers, self._chosen.dimension, self.name) for numbers in made]
        return found

    def _batches(self, texts: Sequence[str]) -> Iterator[list[str]]:
        """Group texts into requests, in order; a text above the limit of characters is sent alone."""
        batch: list[str] = []
        size = 0
        for text in texts:
            if batch and (len(batch) >= self.most_texts or size + len(text) > self.most_characters):
                yield batch
                batch, size = [], 0
            batch.append(text)
            size += len(text)
        if batch:
            yield batch


class OpenAI(RemoteEmbedder):
    """OpenAI, or any server with the same protocol. The models treat documents and queries alike.

    Source: https://platform.openai.com/docs/api-reference/embeddings.
    """

    most_texts = 256
    most_characters = 250_000

    def request(self, texts: list[str], purpose: Purpose) -> tuple[str, dict[str, str], dict[str, Any]]:  # noqa: ARG002 - the interface's
        """See ``RemoteEmbedder``."""
        body = {"model": self.model, "input": texts, "encoding_format": "float", **self.asked("dimensions")}
        return f"{address(self.base_url)}/embeddings", self.bearer(), body

    def read(self, answer: Any, texts: list[str]) -> tuple[list[Any], int]:  # noqa: ARG002 - the interface's
        """Return the vectors in the order of the texts, which ``index`` gives."""
        data = sorted(answer["data"], key=lambda entry: entry["index"])
        if [entry["index"] for entry in data] != list(range(len(data))):
            raise WrongAnswerError(f"{self.name} answered with a place left out or twice")
        tokens = (answer.get("usage") or {}).get("total_tokens") or 0
        paid = tokens if isinstance(tokens, int) and 0 <= tokens < 10**9 else 0
        return [entry["embedding"] for entry in data], paid


class Voyage(OpenAI):
    """Voyage AI. The limit of characters suits the models with the smallest limit, 120,000 tokens.

    Source: https://docs.voyageai.com/reference/embeddings-api.
    """

    most_texts = 128
    most_characters = 110_000

    def request(self, texts: list[str], purpose: Purpose) -> tuple[str, dict[str, str], dict[str, Any]]:
        """See ``RemoteEmbedder``."""
        body = {"model": self.model, "input": texts, "input_type": purpose, "truncation": True}
        return f"{address(self.base_url)}/embeddings", self.bearer(), {**body, **self.asked("output_dimension")}


class Google(RemoteEmbedder):
    """Google's Gemini API. The key is sent in a header, because addresses are logged.

    Source: https://ai.google.dev/api/embeddings, batchEmbedContents.
    """

    most_texts = 100
    most_characters = 200_000
    unknown_model_hint = "older models are switched off at times; set embedding.model to gemini-embedding-001"

    def request(self, texts: list[str], purpose: Purpose) -> tuple[str, dict[str, str], dict[str, Any]]:
        """See ``RemoteEmbedder``."""
        bare = self.model.removeprefix("models/")
        root = address(self.base_url).removesuffix("/v1beta")
        same = {"model": f"models/{bare}", "taskType": f"RETRIEVAL_{purpose.upper()}"}
        same |= self.asked("outputDimensionality")
        requests = [{"content": {"parts": [{"text": text}]}, **same} for text in texts]
        url = f"{root}/v1beta/models/{quote(bare, safe='')}:batchEmbedContents"
        return url, {"x-goog-api-key": self.key}, {"requests": requests}

    def read(self, answer: Any, texts: list[str]) -> tuple[list[Any], int]:
        """Estimate the tokens, which the API does not return: four characters a token is its own rule of thumb."""
        return [entry["values"] for entry in answer["embeddings"]], sum(map(len, texts)) // 4 + 1


# The prefixes used in training: https://huggingface.co/nomic-ai/nomic-embed-text-v1.5, Usage; and so forth.
OLLAMA_PREFIXES: dict[str, dict[Purpose, str]] = {
    "nomic-embed-text": {"document": "search_document: ", "query": "search_query: "},
    "mxbai-embed-large": {"document": "", "query": "Represent this sentence for searching relevant passages: "},
    "snowflake-arctic-embed": {"document": "", "query": "Represent this sentence for searching relevant passages: "},
    "snowflake-arctic-embed2": {"document": "", "query": "query: "},
    "embeddinggemma": {"document": "title: none | text: ", "query": "task: search result | query: "},
}


class Ollama(RemoteEmbedder):
    """Ollama, on this machine or in the local network. Without a graphics card each text takes a while.

    Source: https://github.com/ollama/ollama/blob/main/docs/api.md, Generate Embeddings.
    """

    most_texts = 16
    most_characters = 50_000
    unknown_model_hint = "run: ollama pull {model}"

    def request(self, texts: list[str], purpose: Purpose) -> tuple[str, dict[str, str], dict[str, Any]]:
        """See ``RemoteEmbedder``."""
        prefix = OLLAMA_PREFIXES.get(self.model.rpartition("/")[2].partition(":")[0], {}).get(purpose, "")
        body = {"model": self.model, "input": [prefix + text for text in texts], "truncate": True}
        url = address(self.base_url, scheme="http").removesuffix("/api") + "/api/embed"
        return url, {}, {**body, **self.asked("dimensions")}

    def read(self, answer: Any, texts: list[str]) -> tuple[list[Any], int]:  # noqa: ARG002 - the interface's
        """Return the vectors; they are free."""
        return list(answer["embeddings"]), 0


def sendable(text: str) -> str:
    """Return the text in a form that every provider accepts: no lone surrogates, no NUL, and not blank."""
    sound = text.encode("utf-8", "replace").decode("utf-8").replace("\0", " ")
    return sound if sound.strip() else "."


def unit_vector(numbers: object, dimension: int, name: str) -> bytes:
    """Check a vector and scale it to length 1. A vector of zeros becomes one of equal numbers.

    Raises:
        WrongAnswerError: It has another dimension, or contains something other than finite numbers.
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
    """Return the key if it is valid; no message contains it. A server of the user's own may need none.

    Raises:
        NotConfiguredError: The key is missing, or has invalid characters.
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
