"""A database for the tests of the store in PostgreSQL."""

from tests.support.postgres import postgres

__all__ = ["postgres"]
