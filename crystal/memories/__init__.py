"""Store memories outside the database: as JSON, and in the append-only record next to the archive."""
