"""The reader of memory-crystal's LanceDB tables, copied into a database of the form of ``context_embeddings``."""

from crystal.transcript.context_embeddings import READER

__all__ = ["READER"]
