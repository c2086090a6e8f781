"""A model on loopback: answers Claude Code's requests with what the test told it to say, streamed as the real one does.

A test registers what the model says when it is asked something (``model.when("first question", ["answer"])``). A
request belongs to the latest user text that holds a registered key; the number of assistant messages after it says
which step of that answer is due. Nothing else is remembered, so retries, resumes and forks need no care.
"""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.support.loopback import Handler, LoopbackServer

PATIENCE_SECONDS = 30.0
PIECE = 500


@dataclass(eq=False)
class Pause:
    """Where an answer stops until the test says go. ``reached`` is set when everything before it has been sent."""

    reached: threading.Event = field(default_factory=threading.Event)
    go: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True)
class Think:
    """A thinking block."""

    text: str


@dataclass(frozen=True)
class Use:
    """A tool call."""

    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Fail:
    """An HTTP error instead of an answer."""

    status: int
    message: str


Block = str | Think | Use | Pause
Step = Sequence[Block] | Fail


class FakeAnthropic:
    """The server. ``requests`` are the bodies that were sent to it, in order; ``surprises`` what it had no answer to."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.surprises: list[str] = []
        self._answers: dict[str, list[Step]] = {}
        self._ids = itertools.count(1)
        self._closing = threading.Event()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.model = self
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    @property
    def base_url(self) -> str:
        """What ``ANTHROPIC_BASE_URL`` is set to."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> FakeAnthropic:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()

    def when(self, key: str, *steps: Step) -> None:
        """Say what to answer to a user's text that holds ``key``: one step for each request of that turn."""
        self._answers[key] = list(steps)

    def step_for(self, body: dict[str, Any]) -> Step:
        """The step that a request is due."""
        said = 0
        messages = body.get("messages", [])
        for message in reversed(messages):
            if message.get("role") == "assistant":
                said += 1
                continue
            text = "\n".join(_texts(message))
            keys = [key for key in self._answers if key in text]
            if keys:
                steps = self._answers[max(keys, key=text.rindex)]
                return steps[said] if said < len(steps) else ["(nothing left to say)"]
        self.surprises.append("\n".join(_texts(messages[-1]))[-500:] if messages else repr(body)[:500])
        return ["(nobody told me what to say)"]

    def next_id(self, kind: str) -> str:
        """An id as the real service gives them."""
        return f"{kind}_01fake{next(self._ids):016d}"

    def wait(self, pause: Pause) -> None:
        """Hold an answer until the test, or the end of the server, lets it go."""
        pause.reached.set()
        for _ in range(int(PATIENCE_SECONDS / 0.05)):
            if pause.go.wait(0.05) or self._closing.is_set():
                return

    def was_told(self, words: str) -> bool:
        """Whether any request held these words."""
        return any(words in self.texts_sent(at) for at in range(len(self.requests)))

    def texts_sent(self, at: int = -1) -> str:
        """Everything that one request told the model, as one text."""
        return json.dumps(self.requests[at]["messages"], ensure_ascii=False)


def _texts(message: dict[str, Any]) -> list[str]:
    content = message.get("content")
    if isinstance(content, str):
        return [content]
    blocks = content if isinstance(content, list) else []
    return [block.get("text", "") for block in blocks if isinstance(block, dict) and block.get("type") == "text"]


Event = tuple[str, dict[str, Any]]


def stream(model: FakeAnthropic, body: dict[str, Any], blocks: Sequence[Block]) -> Iterator[Event | Pause]:
    """The server-sent events of one message, with the pauses between them."""
    usage = {"input_tokens": 20, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 1}
    yield _event(
        "message_start",
        message={
            "id": model.next_id("msg"),
            "type": "message",
            "role": "assistant",
            "model": body.get("model"),
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": usage,
        },
    )
    index, uses_tools, partial = 0, False, False
    for place, block in enumerate(blocks):
        if isinstance(block, Pause):
            yield block
            continue
        # A pause right after a text stands inside it: the block is still open.
        partial = place + 1 < len(blocks) and isinstance(blocks[place + 1], Pause) and isinstance(block, str)
        uses_tools |= isinstance(block, Use)
        yield from _block_events(model, index, block)
        if partial:
            yield from (later for later in (blocks[place + 1],) if isinstance(later, Pause))
        yield _event("content_block_stop", index=index)
        index += 1
    yield _event(
        "message_delta",
        usage={**usage, "output_tokens": 20},
        delta={"stop_reason": "tool_use" if uses_tools else "end_turn", "stop_sequence": None},
    )
    yield _event("message_stop")


def _block_events(model: FakeAnthropic, index: int, block: str | Think | Use) -> Iterator[Event]:
    if isinstance(block, str):
        empty: dict[str, Any] = {"type": "text", "text": ""}
        deltas = [{"type": "text_delta", "text": piece} for piece in _pieces(block)]
    elif isinstance(block, Think):
        empty = {"type": "thinking", "thinking": "", "signature": ""}
        deltas = [{"type": "thinking_delta", "thinking": piece} for piece in _pieces(block.text)]
        deltas.append({"type": "signature_delta", "signature": "bm90IGEgc2lnbmF0dXJl"})
    else:
        empty = {"type": "tool_use", "id": model.next_id("toolu"), "name": block.name, "input": {}}
        deltas = [{"type": "input_json_delta", "partial_json": json.dumps(block.arguments)}]
    yield _event("content_block_start", index=index, content_block=empty)
    for delta in deltas:
        yield _event("content_block_delta", index=index, delta=delta)


def _pieces(text: str) -> list[str]:
    size = max(PIECE, len(text) // 400)
    return [text[at : at + size] for at in range(0, len(text), size)]


def _event(kind: str, **fields: Any) -> Event:
    return kind, {"type": kind, **fields}


class _Server(LoopbackServer):
    model: FakeAnthropic


class _Handler(Handler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        self._send_json(404, {"type": "error", "error": {"type": "not_found_error", "message": self.path}})

    do_HEAD = do_GET

    def do_POST(self) -> None:
        body = json.loads(self.body() or b"{}")
        if self.path.split("?")[0] != "/v1/messages":
            self._send_json(200, {"input_tokens": 20})
            return
        model = self.server.model
        model.requests.append(body)
        step = model.step_for(body)
        if isinstance(step, Fail):
            self._send_json(
                step.status,
                {
                    "type": "error",
                    "error": {"type": "invalid_request_error", "message": step.message},
                },
            )
            return
        self.send_response(200)
        self.send_header("content-type", "text/event-stream; charset=utf-8")
        self.send_header("request-id", model.next_id("req"))
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True
        waited: set[int] = set()
        for item in stream(model, body, step):
            if not isinstance(item, Pause):
                name, data = item
                self.wfile.write(f"event: {name}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n".encode())
                self.wfile.flush()
            elif id(item) not in waited:
                waited.add(id(item))
                model.wait(item)

    def _send_json(self, status: int, value: object) -> None:
        self.send(status, value, {"request-id": self.server.model.next_id("req")})
