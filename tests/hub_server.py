"""A model hub on loopback, in the ways that matter: listings, redirects to where the bytes are, and what goes wrong."""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class FakeHub:
    """Files by (repository, name); ``faults`` change what is answered for a name."""

    url: str = ""
    files: dict[tuple[str, str], bytes] = field(default_factory=dict)
    faults: dict[str, str] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    card: dict[str, object] = field(default_factory=lambda: {"license": "mit"})

    def listing(self, repository: str) -> dict[str, object] | None:
        siblings = []
        for (owner, name), held in self.files.items():
            if owner != repository:
                continue
            git = hashlib.sha1(b"blob %d\0" % len(held) + held, usedforsecurity=False).hexdigest()
            one: dict[str, object] = {"rfilename": name, "size": len(held), "blobId": git}
            if name.endswith((".safetensors", ".onnx", "_data")):
                one["lfs"] = {"sha256": hashlib.sha256(held).hexdigest(), "size": len(held)}
            siblings.append(one)
        return {"sha": COMMIT, "siblings": siblings, "cardData": self.card} if siblings else None


@contextlib.contextmanager
def serve_hub() -> Iterator[FakeHub]:
    hub = FakeHub()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            hub.asked.append(self.path)
            if self.path.startswith("/api/models/"):
                found = hub.listing(self.path.removeprefix("/api/models/").partition("?")[0])
                self.answer(404 if found is None else 200, json.dumps(found).encode(), "listing")
                return
            if "/resolve/" in self.path:
                repository, _, rest = self.path[1:].partition("/resolve/")
                name = rest.partition("/")[2]
                fault = hub.faults.get(name, "")
                if fault == "loop":
                    self.redirect(self.path)
                elif fault.isdigit():
                    self.answer(int(fault), b"no", "")
                elif (repository, name) in hub.files:
                    self.redirect(f"/bytes/{repository}/{name}")
                else:
                    self.answer(404, b"", "")
                return
            owner, model, name = self.path.removeprefix("/bytes/").split("/", 2)
            self.answer(200, hub.files[f"{owner}/{model}", name], name)

        def redirect(self, there: str) -> None:
            self.send_response(302)
            self.send_header("Location", there)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def answer(self, status: int, held: bytes, name: str) -> None:
            fault = hub.faults.get(name, "")
            if fault == "other":
                held = held[:-1] + bytes([held[-1] ^ 1])
            if fault == "longer":
                held += b"x" * 1000
            if fault == "html":
                held = b"<html>log in first</html>"
            self.send_response(status)
            self.send_header("Content-Length", str(len(held)))
            self.end_headers()
            with contextlib.suppress(OSError):
                self.wfile.write(held[: len(held) // 2] if fault == "cut" else held)
            self.close_connection = True

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
