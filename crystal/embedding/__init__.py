"""Turn texts into vectors, and fill the queue of chunks that wait for one (``crystal.embedding.pending``)."""
