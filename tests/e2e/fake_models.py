"""A model on loopback for agents other than Claude Code: speaks Gemini's protocol and both of OpenAI's.

It answers the latest of the user's texts that holds a registered key (``model.when("quartz", "A mineral.")``), and
everything else, as the titles that agents ask for, with one fixed sentence. Before an answer it may call a tool; an
answer may stop in the middle.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Answer:
    """What the model says to one prompt.

    Attributes:
        text: The text.
        tool: The tool that it calls first.
        arguments: The tool's arguments.
        never_ends: Whether nothing comes after the text, not even its end.
    """

    text: str
    tool: str | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    never_ends: bool = False


NOTHING_TO_SAY = Answer("Nothing to say.")
RESULT_MARKS = ('"role": "tool"', '"function_call_output"', '"functionResponse"')
USAGE = {"prompt_tokens": 20, "completion_tokens": 5, "total_tokens": 25}


class FakeModels:
    """The server. Use it as a context manager."""

    def __init__(self) -> None:
        self._answers: dict[str, Answer] = {}
        self.is_pausing = threading.Event()
        self.is_closed = threading.Event()
        self.requests: list[dict[str, Any]] = []
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.models = self

    def __enter__(self) -> FakeModels:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.is_closed.set()
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        """The address, without a path."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def when(self, prompt: str, answer: str | Answer) -> None:
        """Register what is answered to a text of the user's that holds ``prompt``."""
        self._answers[prompt] = Answer(answer) if isinstance(answer, str) else answer

    def answer_to(self, body: dict[str, Any]) -> Answer:
        """Return the answer to a request of any protocol."""
        self.requests.append(body)
        turns = body.get("messages") or body.get("input") or body.get("contents") or []
        turns = turns if isinstance(turns, list) else []
        for at, turn in reversed(list(enumerate(turns))):
            told = json.dumps(turn, ensure_ascii=False) if turn.get("role", "user") == "user" else ""
            for prompt, answer in self._answers.items():
                if prompt in told and (body.get("tools") or not (answer.tool or answer.never_ends)):
                    has_called = any(mark in json.dumps(turns[at:]) for mark in RESULT_MARKS)
                    return replace(answer, tool=None) if has_called else answer
        return NOTHING_TO_SAY


def _chat(answer: Answer) -> Iterator[str]:
    base = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "mock-model"}
    delta: dict[str, Any] = {"role": "assistant", "content": answer.text}
    if answer.tool:
        call = {"name": answer.tool, "arguments": json.dumps(answer.arguments)}
        delta = {"role": "assistant", "tool_calls": [{"index": 0, "id": _call(), "type": "function", "function": call}]}
    yield json.dumps({**base, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
    if not answer.never_ends:
        end = {"index": 0, "delta": {}, "finish_reason": "tool_calls" if answer.tool else "stop"}
        yield json.dumps({**base, "choices": [end], "usage": USAGE})
        yield "[DONE]"


def _responses(answer: Answer) -> Iterator[str]:
    usage = {"input_tokens": 20, "output_tokens": 5, "total_tokens": 25}
    ident = f"item_{uuid.uuid4().hex}"
    part = {"type": "output_text", "text": answer.text, "annotations": []}
    item: dict[str, Any] = {"type": "message", "role": "assistant", "content": [part]}
    told = {"type": "response.output_text.delta", "content_index": 0, "delta": answer.text}
    if answer.tool:
        arguments = json.dumps(answer.arguments)
        item = {"type": "function_call", "call_id": _call(), "name": answer.tool, "arguments": arguments}
        told = {"type": "response.function_call_arguments.delta", "delta": arguments}
    item |= {"id": ident, "status": "completed"}
    begun = {**item, "content": []} if "content" in item else {**item, "arguments": ""}
    reply = {"id": "resp_1", "object": "response", "created_at": 1, "status": "completed", "model": "mock-model"}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": {**reply, "status": "in_progress", "output": []}},
        {"type": "response.output_item.added", "output_index": 0, "item": begun},
        {**told, "output_index": 0, "item_id": ident},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": {**reply, "output": [item], "usage": usage}},
    ]
    sent = events[:3] if answer.never_ends else events
    return (json.dumps({**event, "sequence_number": number}) for number, event in enumerate(sent))


def _gemini(answer: Answer) -> dict[str, Any]:
    part: dict[str, Any] = {"text": answer.text}
    if answer.tool:
        part = {"functionCall": {"id": _call(), "name": answer.tool, "args": answer.arguments}}
    candidate = {"index": 0, "content": {"role": "model", "parts": [part]}}
    return {
        "responseId": "r1",
        "modelVersion": "mock-model",
        "candidates": [candidate if answer.never_ends else {**candidate, "finishReason": "STOP"}],
        "usageMetadata": {"promptTokenCount": 20, "candidatesTokenCount": 5, "totalTokenCount": 25},
    }


def _call() -> str:
    return f"call_{uuid.uuid4().hex[:24]}"


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    models: FakeModels

    def handle_error(self, request: Any, client_address: Any) -> None:
        """An agent that ends in the middle is no news."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, *_: object) -> None:
        """Silence."""

    def do_GET(self) -> None:
        models = [{"id": "mock-model", "object": "model", "owned_by": "test"}]
        self._send("application/json", json.dumps({"object": "list", "data": models}))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)) or b"{}")
        path, is_stream = self.path.split("?")[0], bool(body.get("stream"))
        if path.endswith(":countTokens"):
            self._send("application/json", json.dumps({"totalTokens": 20}))
            return
        answer = self.server.models.answer_to(body)
        if path.endswith(":streamGenerateContent"):
            self._events([json.dumps(_gemini(answer))], answer)
        elif ":" in path:
            self._send("application/json", json.dumps(_gemini(answer)))
        elif path.endswith("/responses"):
            self._events(_responses(answer), answer)
        elif is_stream:
            self._events(_chat(answer), answer)
        else:
            message = {"index": 0, "message": {"role": "assistant", "content": answer.text}, "finish_reason": "stop"}
            whole = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "mock-model"}
            self._send("application/json", json.dumps({**whole, "choices": [message], "usage": USAGE}))

    def _events(self, events: Iterable[str], answer: Answer) -> None:
        lines = [(f"event: {json.loads(one)['type']}\n" if '"type": "response' in one else "", one) for one in events]
        text = "".join(f"{name}data: {one}\n\n" for name, one in lines)
        self._send("text/event-stream", text, more=answer.never_ends)
        if answer.never_ends:
            self.server.models.is_pausing.set()
            self.server.models.is_closed.wait()

    def _send(self, kind: str, text: str, *, more: bool = False) -> None:
        data = text.encode()
        self.send_response(200)
        self.send_header("content-type", f"{kind}; charset=utf-8")
        self.send_header("content-length", str(len(data) + more))
        self.end_headers()
        self.wfile.write(data)
