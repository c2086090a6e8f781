"""Embeddings by Voyage AI.

Source: https://docs.voyageai.com/reference/embeddings-api.
"""

from __future__ import annotations

from typing import Any

from crystal.embedding.openai_api import read_answer
from crystal.embedding.remote import EmbeddingResponse, Purpose
from crystal.provider_http.post import address, post_json


class Voyage:
    """See ``Provider``. The limit of characters holds for the models with the smallest one, 120,000 tokens."""

    most_texts = 128
    most_characters = 110_000

    def __init__(self, model: str, base_url: str, dimension: int | None, key: str) -> None:
        self.name = f"voyage {model}"
        self._model = model
        self._headers = {"Authorization": f"Bearer {key}"}
        self._url = f"{address(base_url)}/embeddings"
        self._more: dict[str, Any] = {"output_dimension": dimension} if dimension else {}

    def ask(self, texts: list[str], purpose: Purpose, timeout: float) -> EmbeddingResponse:
        """Send one request, see ``Provider``."""
        body = {"model": self._model, "input": texts, "input_type": purpose, "truncation": True, **self._more}
        return read_answer(self.name, post_json(self.name, self._url, body, self._headers, timeout))
