"""A database for the tests of the store in PostgreSQL, and the runtime of Cloudflare's Workers."""

from tests.support.postgres import postgres
from tests.support.workerd import workerds

__all__ = ["postgres", "workerds"]
