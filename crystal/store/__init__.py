"""Hold all SQL of crystal, one file per group of queries."""

from crystal.store.connection import Store

__all__ = ["Store"]
