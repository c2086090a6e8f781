"""Embeddings by Ollama, on this machine or in the local network.

Source: https://github.com/ollama/ollama/blob/main/docs/api.md, Generate Embeddings.
"""

from __future__ import annotations

from typing import Any

from crystal.embedding.remote import EmbeddingResponse, Purpose
from crystal.errors import NotConfiguredError
from crystal.provider_http.post import address, post_json

# What the models were trained with: https://huggingface.co/nomic-ai/nomic-embed-text-v1.5, Usage; and so forth.
PREFIXES: dict[str, dict[Purpose, str]] = {
    "nomic-embed-text": {"document": "search_document: ", "query": "search_query: "},
    "mxbai-embed-large": {"document": "", "query": "Represent this sentence for searching relevant passages: "},
    "snowflake-arctic-embed": {"document": "", "query": "Represent this sentence for searching relevant passages: "},
    "snowflake-arctic-embed2": {"document": "", "query": "query: "},
    "embeddinggemma": {"document": "title: none | text: ", "query": "task: search result | query: "},
}


class Ollama:
    """See ``Provider``. One request holds few texts: without a graphics card each takes a while."""

    most_texts = 16
    most_characters = 50_000

    def __init__(self, model: str, base_url: str, dimension: int | None, key: str) -> None:
        del key
        self.name = f"ollama {model}"
        self._model = model
        self._url = address(base_url, scheme="http").removesuffix("/api") + "/api/embed"
        self._more: dict[str, Any] = {"dimensions": dimension} if dimension else {}
        self._prefixes = PREFIXES.get(model.rpartition("/")[2].partition(":")[0])

    def ask(self, texts: list[str], purpose: Purpose, timeout: float) -> EmbeddingResponse:
        """Send one request, see ``Provider``."""
        prefix = self._prefixes[purpose] if self._prefixes else ""
        body = {"model": self._model, "input": [prefix + text for text in texts], "truncate": True, **self._more}
        try:
            answer = post_json(self.name, self._url, body, {}, timeout)
        except NotConfiguredError as error:
            raise NotConfiguredError(error.message, hint=f"run: ollama pull {self._model}") from error
        return EmbeddingResponse(list(answer["embeddings"]))
