"""Exchange data with the relay: what a machine sends and receives. The relay itself is not trusted."""
