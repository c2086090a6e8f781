"""Texts to vectors: the embedders here, and the queue of chunks that wait for one in ``crystal.embedding.pending``."""
