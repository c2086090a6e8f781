"""The answer of OpenAI's embeddings endpoint, which others speak too."""

from __future__ import annotations

from crystal.embedding.embedder import WrongAnswer
from crystal.embedding.remote import Answer


def read_answer(name: str, answer: object) -> Answer:
    """Return the vectors in the order of the texts (``index`` decides), and the tokens charged."""
    try:
        data = sorted(answer["data"], key=lambda entry: entry["index"])  # type: ignore[index]
        if [entry["index"] for entry in data] != list(range(len(data))):
            raise WrongAnswer(f"{name} answered with a place left out or twice")
        vectors = [entry["embedding"] for entry in data]
        usage = answer.get("usage") or {}  # type: ignore[attr-defined]
        tokens = usage.get("total_tokens") or 0
    except (KeyError, TypeError, AttributeError) as error:
        raise WrongAnswer(f"{name} answered without embeddings") from error
    return Answer(vectors, tokens if isinstance(tokens, int) and 0 <= tokens < 10**9 else 0)
