"""Embeddings by OpenAI, or by any server that speaks its protocol.

Source: https://platform.openai.com/docs/api-reference/embeddings.
"""

from __future__ import annotations

from typing import Any

from crystal.embedding.remote import EmbeddingResponse, Purpose
from crystal.errors import WrongAnswerError
from crystal.provider_http.post import address, post_json


class OpenAI:
    """See ``Provider``. A server of the user's own may need no key."""

    most_texts = 256
    most_characters = 250_000

    def __init__(self, model: str, base_url: str, dimension: int | None, key: str) -> None:
        self.name = f"openai {model}"
        self._model = model
        self._url = f"{address(base_url)}/embeddings"
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._more: dict[str, Any] = {"dimensions": dimension} if dimension else {}

    def ask(self, texts: list[str], purpose: Purpose, timeout: float) -> EmbeddingResponse:
        """Send one request, see ``Provider``; the models treat documents and queries alike."""
        del purpose
        body = {"model": self._model, "input": texts, "encoding_format": "float", **self._more}
        return read_answer(self.name, post_json(self.name, self._url, body, self._headers, timeout))


def read_answer(name: str, answer: Any) -> EmbeddingResponse:
    """Return the vectors in the order of the texts (``index`` decides), and the tokens charged."""
    data = sorted(answer["data"], key=lambda entry: entry["index"])
    if [entry["index"] for entry in data] != list(range(len(data))):
        raise WrongAnswerError(f"{name} answered with a place left out or twice")
    tokens = (answer.get("usage") or {}).get("total_tokens") or 0
    vectors = [entry["embedding"] for entry in data]
    return EmbeddingResponse(vectors, tokens if isinstance(tokens, int) and 0 <= tokens < 10**9 else 0)
