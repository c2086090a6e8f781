"""Embeddings by Google's Gemini API. The key goes into a header: addresses end up in logs.

Source: https://ai.google.dev/api/embeddings, batchEmbedContents.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from crystal.embedding.remote import EmbeddingResponse, Purpose
from crystal.errors import NotConfiguredError
from crystal.provider_http.post import address, post_json

TASKS: dict[Purpose, str] = {"document": "RETRIEVAL_DOCUMENT", "query": "RETRIEVAL_QUERY"}


class Google:
    """See ``Provider``."""

    most_texts = 100
    most_characters = 200_000

    def __init__(self, model: str, base_url: str, dimension: int | None, key: str) -> None:
        bare = model.removeprefix("models/")
        self.name = f"google {bare}"
        self._model = f"models/{bare}"
        self._headers = {"x-goog-api-key": key}
        root = address(base_url).removesuffix("/v1beta")
        self._url = f"{root}/v1beta/models/{quote(bare, safe='')}:batchEmbedContents"
        self._more: dict[str, Any] = {"outputDimensionality": dimension} if dimension else {}

    def ask(self, texts: list[str], purpose: Purpose, timeout: float) -> EmbeddingResponse:
        """Send one request, see ``Provider``."""
        requests = [
            {
                "model": self._model,
                "content": {"parts": [{"text": text}]},
                "taskType": TASKS[purpose],
                **self._more,
            }
            for text in texts
        ]
        try:
            answer = post_json(self.name, self._url, {"requests": requests}, self._headers, timeout)
        except NotConfiguredError as error:
            hint = "older models are switched off at times; set embedding.model to gemini-embedding-001"
            raise NotConfiguredError(error.message, hint=hint) from error
        # The API does not return its token count; four characters a token is its own rule of thumb.
        return EmbeddingResponse([entry["values"] for entry in answer["embeddings"]], sum(map(len, texts)) // 4 + 1)
