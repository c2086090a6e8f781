"""Memories outside of the database: as JSON, and in the append-only record beside the archive."""
