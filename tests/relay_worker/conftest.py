"""A database for the tests of the store in PostgreSQL, a server for its bucket, and the runtime of Cloudflare's Workers."""

from tests.support.postgres import postgres
from tests.support.s3 import s3, s3_server
from tests.support.workerd import workerds

__all__ = ["postgres", "s3", "s3_server", "workerds"]
