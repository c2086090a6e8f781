"""A database for the tests of the store in PostgreSQL."""

from __future__ import annotations

from tests.support.postgres import postgres

__all__ = ["postgres"]
