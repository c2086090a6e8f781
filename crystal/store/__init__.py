"""The database room: all SQL of crystal lives here, one file per group of questions."""

from crystal.store.connection import Store

__all__ = ["Store"]
