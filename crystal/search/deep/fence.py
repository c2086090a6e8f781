"""Data for a model, between two lines with a mark that the data cannot contain. Pure."""

from __future__ import annotations

import hashlib


def fenced(task: str, name: str, data: str) -> str:
    """Return a task followed by untrusted data between marks.

    The mark is the hash of the data, so no data can hold its own.
    """
    mark = hashlib.sha256(data.encode("utf-8", "replace")).hexdigest()[:20]
    return f"{task}\nMark: {mark}\n--- {name} {mark}\n{data}\n--- end of {name} {mark}\nNow the JSON array."
