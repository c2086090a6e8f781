"""A model on loopback for agents other than Claude Code: speaks Gemini's protocol and both of OpenAI's.

It answers the latest of the user's texts that holds a registered key (``model.when("quartz", "A mineral.")``), and
everything else, as the titles that agents ask for, with one fixed sentence.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

NOTHING_TO_SAY = "Nothing to say."
USAGE = {"prompt_tokens": 20, "completion_tokens": 5, "total_tokens": 25}


class FakeModels:
    """The server. Use it as a context manager."""

    def __init__(self) -> None:
        self._answers: dict[str, str] = {}
        self.requests: list[dict[str, Any]] = []
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.models = self

    def __enter__(self) -> FakeModels:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        """The address, without a path."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def when(self, prompt: str, answer: str) -> None:
        """Register what is answered to a text of the user's that holds ``prompt``."""
        self._answers[prompt] = answer

    def answer_to(self, body: dict[str, Any]) -> str:
        """Return the answer to a request of any protocol."""
        self.requests.append(body)
        turns = body.get("messages") or body.get("input") or body.get("contents") or []
        for turn in reversed(turns if isinstance(turns, list) else []):
            told = json.dumps(turn, ensure_ascii=False) if turn.get("role", "user") == "user" else ""
            for prompt, answer in self._answers.items():
                if prompt in told:
                    return answer
        return NOTHING_TO_SAY


def _chat(answer: str) -> Iterator[str]:
    base = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "mock-model"}
    for delta, reason in (({"role": "assistant", "content": answer}, None), ({}, "stop")):
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        yield json.dumps({**base, "choices": [choice], **({"usage": USAGE} if reason else {})})
    yield "[DONE]"


def _responses(answer: str) -> Iterator[str]:
    usage = {"input_tokens": 20, "output_tokens": 5, "total_tokens": 25}
    part = {"type": "output_text", "text": answer, "annotations": []}
    item = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [part]}
    reply = {"id": "resp_1", "object": "response", "created_at": 1, "status": "completed", "model": "mock-model"}
    place = {"output_index": 0, "item_id": "msg_1", "content_index": 0}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": {**reply, "status": "in_progress", "output": []}},
        {"type": "response.output_item.added", "output_index": 0, "item": {**item, "content": []}},
        {"type": "response.output_text.delta", **place, "delta": answer},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": {**reply, "output": [item], "usage": usage}},
    ]
    return (json.dumps({**event, "sequence_number": number}) for number, event in enumerate(events))


def _gemini(answer: str) -> dict[str, Any]:
    return {
        "responseId": "r1",
        "modelVersion": "mock-model",
        "candidates": [{"index": 0, "content": {"role": "model", "parts": [{"text": answer}]}, "finishReason": "STOP"}],
        "usageMetadata": {"promptTokenCount": 20, "candidatesTokenCount": 5, "totalTokenCount": 25},
    }


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
        elif ":" in path:
            reply = json.dumps(_gemini(self.server.models.answer_to(body)))
            is_stream = path.endswith(":streamGenerateContent")
            self._events([reply]) if is_stream else self._send("application/json", reply)
        elif path.endswith("/responses"):
            self._events(_responses(self.server.models.answer_to(body)))
        else:
            answer = self.server.models.answer_to(body)
            message = {"index": 0, "message": {"role": "assistant", "content": answer}, "finish_reason": "stop"}
            whole = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "mock-model"}
            if is_stream:
                self._events(_chat(answer))
            else:
                self._send("application/json", json.dumps({**whole, "choices": [message], "usage": USAGE}))

    def _events(self, events: Any) -> None:
        lines = [(f"event: {json.loads(one)['type']}\n" if '"type": "response' in one else "", one) for one in events]
        self._send("text/event-stream", "".join(f"{name}data: {one}\n\n" for name, one in lines))

    def _send(self, kind: str, text: str) -> None:
        data = text.encode()
        self.send_response(200)
        self.send_header("content-type", f"{kind}; charset=utf-8")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
