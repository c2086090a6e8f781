"""Prefetch blobs: the next ones are fetched while the current one is processed."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from crystal.errors import CrystalError
from crystal.sync.answers import BlobInfo
from crystal.sync.client import RelayClient

MAX_BYTES = 24 << 20
"""Maximum bytes being fetched or waiting to be processed."""


def fetched(
    client: RelayClient, stream: bytes, blobs: Sequence[BlobInfo], at_once: int
) -> Iterator[tuple[BlobInfo, bytes | CrystalError]]:
    """Fetch blobs of a stream and yield them in order.

    An error is yielded in the place of its blob and ends the iteration.

    Args:
        client: The relay; used by several threads if ``at_once`` is more than 1.
        stream: The stream.
        blobs: The listed blobs.
        at_once: Number of concurrent requests.
    """
    with ThreadPoolExecutor(at_once, thread_name_prefix="relay") as threads:
        coming: deque[tuple[BlobInfo, Future[bytes | CrystalError]]] = deque()
        left = deque(blobs)
        try:
            while left or coming:
                size = sum(blob.size for blob, _ in coming)
                while left and (not coming or (len(coming) < 2 * at_once and size + left[0].size <= MAX_BYTES)):
                    blob = left.popleft()
                    size += blob.size
                    coming.append((blob, threads.submit(_get, client, stream, blob.seq)))
                blob, future = coming.popleft()
                data = future.result()
                yield blob, data
                if isinstance(data, CrystalError):
                    return
        finally:
            for _, future in coming:
                future.cancel()


def _get(client: RelayClient, stream: bytes, seq: int) -> bytes | CrystalError:
    try:
        return client.get(stream, seq)
    except CrystalError as error:
        return error
