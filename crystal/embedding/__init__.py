"""Texts to vectors: the embedders here, and the queue of chunks that wait for one in ``crystal.embedding.pending``."""

from crystal.embedding.choice import make_embedder
from crystal.embedding.embedder import Embedder, TokenVectors

__all__ = [
    "Embedder",
    "TokenVectors",
    "make_embedder",
]
