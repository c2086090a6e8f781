"""Fetching ahead: while one blob is looked at, the next ones are on their way."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from crystal.errors import CrystalError
from crystal.sync.answers import BlobInfo
from crystal.sync.client import RelayClient

MOST_BYTES = 24 << 20
"""How many bytes may be on their way or wait to be looked at."""


def fetched(
    client: RelayClient, stream: bytes, blobs: Sequence[BlobInfo], at_once: int
) -> Iterator[tuple[BlobInfo, bytes | CrystalError]]:
    """Fetch blobs of a stream; gives them in order, or what went wrong with one, after which nothing comes.

    Args:
        client: The relay; with more than one at once, asked by several threads.
        stream: The stream.
        blobs: As they were listed.
        at_once: How many are asked for at the same time.
    """
    if at_once == 1 or len(blobs) == 1:
        for blob in blobs:
            data = _get(client, stream, blob.seq)
            yield blob, data
            if isinstance(data, CrystalError):
                return
        return
    with ThreadPoolExecutor(at_once, thread_name_prefix="relay") as threads:
        coming: deque[tuple[BlobInfo, Future[bytes | CrystalError]]] = deque()
        left = deque(blobs)
        try:
            while left or coming:
                while left and (not coming or (len(coming) < 2 * at_once and _size(coming, left[0]) <= MOST_BYTES)):
                    blob = left.popleft()
                    coming.append((blob, threads.submit(_get, client, stream, blob.seq)))
                blob, future = coming.popleft()
                data = future.result()
                yield blob, data
                if isinstance(data, CrystalError):
                    return
        finally:
            for _, future in coming:
                future.cancel()


def _size(coming: deque[tuple[BlobInfo, Future[bytes | CrystalError]]], another: BlobInfo) -> int:
    return another.size + sum(blob.size for blob, _ in coming)


def _get(client: RelayClient, stream: bytes, seq: int) -> bytes | CrystalError:
    try:
        return client.get(stream, seq)
    except CrystalError as error:
        return error
