"""A model hub on loopback, as ``huggingface_hub`` asks it: listings, redirects to the bytes, and what goes wrong."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.support.loopback import Handler, serving

COMMIT = "0123456789abcdef0123456789abcdef01234567"
LARGE = (".onnx", "_data", "tokenizer.json")


@dataclass
class FakeHub:
    """Files by (repository, name); ``faults`` change what is answered for a name."""

    url: str = ""
    files: dict[tuple[str, str], bytes] = field(default_factory=dict)
    faults: dict[str, str] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    card: dict[str, object] = field(default_factory=lambda: {"license": "mit"})

    def listing(self, repository: str) -> dict[str, object] | None:
        siblings = []
        for (owner, name), held in self.files.items():
            if owner != repository:
                continue
            one: dict[str, object] = {"rfilename": name, "size": len(held), "blobId": git_hash(held)}
            if name.endswith(LARGE):
                one["lfs"] = {"sha256": hashlib.sha256(held).hexdigest(), "size": len(held), "pointerSize": 133}
            siblings.append(one)
        return {"id": repository, "sha": COMMIT, "siblings": siblings, "cardData": self.card} if siblings else None


def git_hash(held: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(held) + held, usedforsecurity=False).hexdigest()


@contextlib.contextmanager
def serve_hub() -> Iterator[FakeHub]:
    hub = FakeHub()

    class Hub(Handler):
        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            hub.asked.append(f"{self.command} {self.path}")
            hub.headers.append(dict(self.headers))
            path = self.path.partition("?")[0]
            if path.startswith("/api/models/"):
                found = hub.listing(path.removeprefix("/api/models/").partition("/revision/")[0])
                fault = hub.faults.get("listing", "")
                if fault == "gated":
                    self.answer(401, b"{}", "", {"X-Error-Code": "GatedRepo"})
                elif found is None:
                    self.answer(404, b"{}", "", {"X-Error-Code": "RepoNotFound"})
                else:
                    self.answer(200, json.dumps(found).encode(), "listing")
                return
            repository, _, rest = path[1:].partition("/resolve/")
            name = rest.partition("/")[2]
            if hub.faults.get(name, "").isdigit():
                self.answer(int(hub.faults[name]), b"no", "")
            elif (repository, name) in hub.files:
                self.answer(200, hub.files[repository, name], name, {"X-Repo-Commit": COMMIT})
            else:
                self.answer(404, b"", "", {"X-Error-Code": "EntryNotFound"})

        def answer(self, status: int, held: bytes, name: str, headers: dict[str, str] | None = None) -> None:
            fault = hub.faults.get(name, "")
            if fault == "other":
                held = held[:-1] + bytes([held[-1] ^ 1])
            if fault == "html":
                held = b"<html>log in first</html>"
            headers = {"ETag": f'"{git_hash(held)}"', **(headers or {})}
            sent = held[: len(held) // 2] if fault == "cut" else held
            with contextlib.suppress(OSError):
                self.send(status, sent, headers, more=len(held) - len(sent))
            self.close_connection = True

    with serving(Hub) as hub.url:
        yield hub
