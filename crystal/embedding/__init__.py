"""Texts to vectors: the embedders, and the queue of chunks that wait for one."""

from crystal.embedding.choice import make_embedder
from crystal.embedding.embedder import Embedder, RateLimited, ServerFault, TextRefused, TokenVectors, WrongAnswer
from crystal.embedding.pending import EmbedReport, embed_pending

__all__ = [
    "EmbedReport",
    "Embedder",
    "RateLimited",
    "ServerFault",
    "TextRefused",
    "TokenVectors",
    "WrongAnswer",
    "embed_pending",
    "make_embedder",
]
