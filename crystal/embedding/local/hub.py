"""Fetching a model's files from a model hub over HTTP: bounded, resumed never, believed only by hash.

What the hub says of a repository (its commit, the size and hash of each file) is asked first; every file is then taken
of that commit and compared. Where crystal knows a hash itself, that one decides.

Source: https://huggingface.co/docs/hub/api, and the addresses that huggingface_hub uses (``/resolve/``).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import httpx
import orjson

from crystal.embedding.web import address, is_loopback, shown
from crystal.errors import CrystalError, Damaged, Denied, NotConfigured, Unavailable, UsageProblem

CONNECT_SECONDS = 10.0
SILENT_SECONDS = 60.0
"""The longest that nothing may arrive."""
LARGEST_LISTING = 16 << 20
LARGEST_FILE = 8 << 30
MOST_HOPS = 5

_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_SHA256 = re.compile(r"[0-9a-f]{64}")

Progress = Callable[[str, int, int], None]
"""Told the name of a file, the bytes that just came, and the bytes that it has (0: not known)."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A file as the hub lists it: ``sha256`` where it keeps it as a large file, else git's own hash."""

    name: str
    size: int
    sha256: str | None
    git_sha1: str | None


@dataclass(frozen=True, slots=True)
class Listing:
    """A repository: its commit, its files by name, and its licence as its card says it."""

    commit: str
    files: dict[str, Listed]
    licence: str


def is_repository(name: str) -> bool:
    """Whether a name can be that of a repository: ``owner/model``."""
    return _REPOSITORY.fullmatch(name) is not None and ".." not in name


class Hub:
    """A model hub at ``base``. Give ``close`` a call when done, or use it in ``with``."""

    def __init__(self, base: str) -> None:
        self.base = address(base, scheme="https")
        limits = httpx.Timeout(SILENT_SECONDS, connect=CONNECT_SECONDS)
        self._client = httpx.Client(timeout=limits, follow_redirects=False, trust_env=not is_loopback(self.base))

    def __enter__(self) -> Hub:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def listing(self, repository: str) -> Listing:
        """What the hub has of a repository, at its newest commit.

        Raises:
            UsageProblem: There is no such repository, or its name can be none.
            Unavailable: The hub does not answer.
            Damaged: It answers with something else.
        """
        if not is_repository(repository):
            raise UsageProblem(f"{repository!r} is no name of a repository", hint="OWNER/MODEL, as the hub shows it")
        held = bytearray()
        for piece in self._stream(f"{self.base}/api/models/{quote(repository)}?blobs=true", repository):
            held += piece
            if len(held) > LARGEST_LISTING:
                raise Damaged(f"the hub's list of {repository} is too long")
        try:
            answer = orjson.loads(held)
            files = [_listed(one) for one in answer["siblings"]]
            if not _COMMIT.fullmatch(answer["sha"]):
                raise ValueError(answer["sha"])
            card = answer.get("cardData") or {}
            licence = card.get("license_name") or card.get("license") or "not told"
            return Listing(answer["sha"], {one.name: one for one in files}, str(licence)[:100])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Damaged(f"{shown(self.base)} gave no list of {repository}", hint="is it a model hub?") from error

    def fetch(self, repository: str, revision: str, wanted: Listed, target: Path, progress: Progress) -> str:
        """Fetch one file to ``target``, and give its SHA-256.

        Raises:
            Unavailable: It does not come whole.
            Damaged: It is another file than was listed.
        """
        url = f"{self.base}/{quote(repository)}/resolve/{quote(revision, safe='')}/{quote(wanted.name)}"
        sha256, git = hashlib.sha256(), hashlib.sha1(b"blob %d\0" % wanted.size, usedforsecurity=False)
        size = 0
        with target.open("wb") as out:
            for piece in self._stream(url, wanted.name):
                size += len(piece)
                if size > (wanted.size or LARGEST_FILE):
                    raise Damaged(f"{wanted.name} is longer than {wanted.size} bytes", hint="fetch it again")
                out.write(piece)
                sha256.update(piece)
                git.update(piece)
                progress(wanted.name, len(piece), wanted.size)
        if wanted.size and size < wanted.size:
            raise Unavailable(f"{wanted.name} broke off after {size} of {wanted.size} bytes", hint="run it again")
        if wanted.sha256 is not None and sha256.hexdigest() != wanted.sha256:
            raise Damaged(f"{wanted.name} has SHA-256 {sha256.hexdigest()}, not {wanted.sha256}", hint="do not use it")
        if wanted.sha256 is None and wanted.git_sha1 is not None and git.hexdigest() != wanted.git_sha1:
            raise Damaged(f"{wanted.name} is another file than the hub lists", hint="fetch it again")
        return sha256.hexdigest()

    def _stream(self, url: str, what: str) -> Any:
        """The bytes of an answer; redirects are followed, but never from https to http."""
        try:
            for _ in range(MOST_HOPS + 1):
                with self._client.stream("GET", url, headers={"Accept-Encoding": "identity"}) as response:
                    if response.status_code in (301, 302, 303, 307, 308):
                        url = _next(url, response.headers.get("location", ""))
                        continue
                    if response.status_code != 200:
                        raise _refusal(response.status_code, what, url)
                    yield from response.iter_bytes()
                    return
        except httpx.TimeoutException as error:
            raise Unavailable(f"the hub at {shown(url)} did not answer in time", hint="try again later") from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            words = f"the hub at {shown(url)} cannot be reached ({type(error).__name__})"
            raise Unavailable(words, hint="check the network, or set models.hub_url") from error
        raise Unavailable(f"the hub at {shown(url)} sends from one address to the next without end")


def _next(url: str, location: str) -> str:
    there = str(httpx.URL(url).join(location)) if location else ""
    if urlsplit(there).scheme not in ("https", urlsplit(url).scheme):
        raise Denied(f"the hub at {shown(url)} sends to an address that is not safe", hint="check models.hub_url")
    return there


def _refusal(status: int, what: str, url: str) -> CrystalError:
    words = f"{shown(url)} answered {status} for {what}"
    if status in (401, 403):
        hint = "it may want a login: fetch it with the hub's own tool, then: crystal models install FOLDER"
        return Denied(words, hint=hint)
    if status == 404:
        return NotConfigured(words, hint="check the name, and models.hub_url")
    return Unavailable(words, hint="try again later")


def _listed(one: dict[str, Any]) -> Listed:
    large = one.get("lfs") or {}
    sha256, sha1 = large.get("sha256"), one.get("blobId")
    return Listed(
        str(one["rfilename"]),
        int(one.get("size") or large.get("size") or 0),
        sha256 if isinstance(sha256, str) and _SHA256.fullmatch(sha256) else None,
        sha1 if isinstance(sha1, str) and _COMMIT.fullmatch(sha1) else None,
    )
