"""Store large bodies in an S3-compatible bucket, one object each, all in one folder of the bucket.

Only the database knows which of them have a row; see ``relay_worker.store.postgres.unnamed``. The keys and the
endpoint come from the variables ``AWS_*``, which obstore reads. No message contains a key.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from relay_worker.errors import CannotServeError

PROBE, MARK = "probe", "relay"
DOWN_SECONDS = 1.0
REQUEST_SECONDS, CONNECT_SECONDS, RETRIES = 20, 3, 2
PAGE = 1000
_FILE = re.compile("[0-9a-f]{32}")
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
_PERMISSIONS = "s3:GetObject, PutObject, DeleteObject and ListBucket"


class Bucket:
    """A folder of bodies in a bucket. Its methods raise ``CannotServeError``: 4 not reachable now, 5 refused.

    Args:
        address: ``s3://bucket/prefix``.
        folder: The relay's folder in it.
    """

    def __init__(self, address: str, folder: str) -> None:
        self.address = address.rstrip("/")
        self._down: tuple[float, str] | None = None
        bucket, _, prefix = self.address.removeprefix("s3://").partition("/")
        name, endpoint = next(((name, os.environ[name]) for name in _ENDPOINTS if os.environ.get(name)), ("", ""))
        if name and not re.match(r"https?://[^/\s]+", endpoint):  # obstore would panic
            hint = f"write https://host; for Amazon S3, unset {name}"
            raise CannotServeError(f"{name} is {endpoint!r}", hint=hint, exit_code=2)
        self._store = S3Store(
            bucket,
            prefix=f"{prefix}/{folder}".lstrip("/"),
            config={"endpoint": endpoint} if endpoint else {},
            client_options={
                "allow_http": endpoint.startswith("http://"),
                "timeout": f"{REQUEST_SECONDS}s",
                "connect_timeout": f"{CONNECT_SECONDS}s",
            },
            retry_config={"max_retries": RETRIES, "retry_timeout": timedelta(seconds=REQUEST_SECONDS)},
        )

    def save(self, name: str, body: bytes) -> None:
        """Store a body durably."""
        with self._translated():
            obstore.put(self._store, name, body, use_multipart=False)

    def read(self, name: str) -> bytes | None:
        """Return a body, or None if it is missing."""
        with self._translated():
            try:
                return obstore.get(self._store, name).bytes().to_bytes()
            except FileNotFoundError as error:
                if "NoSuchBucket" in str(error):
                    raise
        return None

    def remove(self, names: Sequence[str]) -> None:
        """Delete bodies; missing ones are no error."""
        with self._translated():
            obstore.delete(self._store, names)

    def names(self, most: int | None = None) -> list[str]:
        """Return the names of all bodies, or of at most ``most``."""
        found: list[str] = []
        with self._translated():
            for page in obstore.list(self._store, chunk_size=PAGE):
                found += [one["path"] for one in page if _FILE.fullmatch(one["path"])]
                if most and len(found) >= most:
                    break
        return found

    def probe(self) -> None:
        """Write a test object durably."""
        self.save(PROBE, b"crystal-relay")

    def check(self) -> None:
        """Perform each operation that a relay needs once.

        Raises:
            CannotServeError: The bucket cannot be reached, or refuses an operation.
        """
        self.probe()
        self.read(PROBE)
        self.names(1)
        self.remove([PROBE])

    def is_marked(self) -> bool:
        """Return whether a relay uses this folder."""
        return self.read(MARK) is not None

    def mark(self) -> None:
        """Mark the folder as one that a relay uses."""
        self.save(MARK, b"crystal-relay")

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        """Translate obstore's errors. For a second after a temporary error, no other request waits for the bucket."""
        if self._down is not None and time.monotonic() - self._down[0] < DOWN_SECONDS:
            raise CannotServeError(self._down[1], exit_code=4)
        try:
            yield
        except (BaseError, OSError) as error:
            failed = self._failed(error)
            if failed.exit_code == 4:
                self._down = time.monotonic(), str(failed)
            raise failed from None

    def _failed(self, error: Exception) -> CannotServeError:
        text = str(error)
        status = re.search(r"status code: (\d{3})", text)
        code = re.search(r"<Code>(\w+)</Code>", text)
        if "169.254.169.254" in text:  # where a machine at Amazon gets a key
            hint = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
            return CannotServeError(f"there is no key for {self.address}", hint=hint, exit_code=5)
        if "NoSuchBucket" in text:
            hint = "create the bucket, or name another one: s3://bucket/prefix"
            return CannotServeError(f"there is no bucket {self.address}", hint=hint, exit_code=5)
        if "region" in text or (status and status[1] == "301"):
            hint = "set AWS_REGION to the bucket's region"
            return CannotServeError(f"{self.address} is in another region", hint=hint, exit_code=5)
        if status and status[1].startswith("4") and status[1] not in {"408", "409", "429"}:
            hint = f"check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; the key needs {_PERMISSIONS}"
            reason = code[1] if code else status[1]
            return CannotServeError(f"{self.address} refuses the relay: {reason}", hint=hint, exit_code=5)
        reason = code[1] if code else text.partition("\n")[0].rpartition(" - ")[2]
        hint = "start its server or check AWS_ENDPOINT_URL; then try again"
        return CannotServeError(f"{self.address} cannot be reached: {reason}", hint=hint, exit_code=4)
