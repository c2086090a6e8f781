"""A model on loopback for agents other than Claude Code: speaks Gemini's protocol and both of OpenAI's.

It answers the latest of the user's texts that holds a registered key (``model.when("quartz", "A mineral.")``), and
everything else, as the titles that agents ask for, with one fixed sentence. Before an answer it may call a tool; an
answer may stop in the middle.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tests.support.loopback import Handler, LoopbackServer


@dataclass(frozen=True)
class Answer:
    """What the model says to one prompt.

    Attributes:
        text: The text.
        tool: The tool that it calls first, after its namespace and a colon if it has one.
        arguments: The tool's arguments.
        first: Another tool that it calls before, with its arguments.
        tokens: How many tokens the first answer says that the conversation has.
        waits_for: A prompt that must have been answered before this is.
        never_ends: Whether nothing comes after the text, not even its end.
    """

    text: str
    tool: str | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    first: tuple[str, Mapping[str, Any]] | None = None
    never_ends: bool = False
    tokens: int = 20
    waits_for: str | None = None


NOTHING_TO_SAY = Answer("Nothing to say.")
RESULT_MARKS = ('"role": "tool"', '"function_call_output"', '"functionResponse"')
CHAT_USAGE = ("prompt_tokens", "completion_tokens", "total_tokens")
WAIT_SECONDS = 30


class FakeModels:
    """The server. Use it as a context manager."""

    def __init__(self) -> None:
        self._answers: dict[str, Answer] = {}
        self._has_answered: dict[str, threading.Event] = {}
        self.told: Counter[str] = Counter()
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
        self._has_answered[prompt] = threading.Event()

    def begin_again(self) -> None:
        """Answer as if nothing had been asked yet."""
        self.told.clear()
        for event in self._has_answered.values():
            event.clear()

    def answer_to(self, body: dict[str, Any]) -> Answer:
        """Return the answer to a request of any protocol."""
        self.requests.append(body)
        turns = body.get("messages") or body.get("input") or body.get("contents") or []
        turns = turns if isinstance(turns, list) else []
        for at, turn in reversed(list(enumerate(turns))):
            told = json.dumps(turn, ensure_ascii=False) if turn.get("role") == "user" else ""
            for prompt, answer in self._answers.items():
                if prompt in told and (body.get("tools") or not (answer.tool or answer.never_ends)):
                    results = sum(json.dumps(turns[at:]).count(mark) for mark in RESULT_MARKS)
                    if answer.first and not results:
                        return replace(answer, tool=answer.first[0], arguments=answer.first[1])
                    has_called = results > (answer.first is not None)
                    return self._told(prompt, replace(answer, tool=None) if has_called else answer)
        return NOTHING_TO_SAY

    def _told(self, prompt: str, answer: Answer) -> Answer:
        if answer.waits_for and not answer.tool and self._has_answered[answer.waits_for].wait(WAIT_SECONDS):
            time.sleep(1)  # the one who asked it has to write it down
        is_first = not self._has_answered[prompt].is_set()
        self._has_answered[prompt].set()
        self.told[answer.text] += answer.tool is None
        return answer if is_first else replace(answer, tokens=Answer.tokens)


def _usage(answer: Answer, read: str, written: str, total: str) -> dict[str, int]:
    return {read: answer.tokens, written: 5, total: answer.tokens + 5}


def _chat(answer: Answer) -> Iterator[str]:
    base = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "mock-model"}
    delta: dict[str, Any] = {"role": "assistant", "content": answer.text}
    if answer.tool:
        call = {"name": answer.tool, "arguments": json.dumps(answer.arguments)}
        delta = {"role": "assistant", "tool_calls": [{"index": 0, "id": _call(), "type": "function", "function": call}]}
    yield json.dumps({**base, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
    if not answer.never_ends:
        end = {"index": 0, "delta": {}, "finish_reason": "tool_calls" if answer.tool else "stop"}
        yield json.dumps({**base, "choices": [end], "usage": _usage(answer, *CHAT_USAGE)})
        yield "[DONE]"


def _responses(answer: Answer) -> Iterator[str]:
    usage = _usage(answer, "input_tokens", "output_tokens", "total_tokens")
    ident = f"item_{uuid.uuid4().hex}"
    part = {"type": "output_text", "text": answer.text, "annotations": []}
    item: dict[str, Any] = {"type": "message", "role": "assistant", "content": [part]}
    told = {"type": "response.output_text.delta", "content_index": 0, "delta": answer.text}
    if answer.tool:
        arguments = json.dumps(answer.arguments)
        space, _, name = answer.tool.rpartition(":")
        item = {"type": "function_call", "call_id": _call(), "name": name, "arguments": arguments}
        item |= {"namespace": space} if space else {}
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
        "usageMetadata": _usage(answer, "promptTokenCount", "candidatesTokenCount", "totalTokenCount"),
    }


def _call() -> str:
    return f"call_{uuid.uuid4().hex[:24]}"


class _Server(LoopbackServer):
    models: FakeModels


class _Handler(Handler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        models = [{"id": "mock-model", "object": "model", "owned_by": "test"}]
        self._send("application/json", json.dumps({"object": "list", "data": models}))

    def do_POST(self) -> None:
        body = json.loads(self.body() or b"{}")
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
            self._send(
                "application/json", json.dumps({**whole, "choices": [message], "usage": _usage(answer, *CHAT_USAGE)})
            )

    def _events(self, events: Iterable[str], answer: Answer) -> None:
        lines = [(f"event: {json.loads(one)['type']}\n" if '"type": "response' in one else "", one) for one in events]
        text = "".join(f"{name}data: {one}\n\n" for name, one in lines)
        self._send("text/event-stream", text, more=answer.never_ends)
        if answer.never_ends:
            self.server.models.is_pausing.set()
            self.server.models.is_closed.wait()

    def _send(self, kind: str, text: str, *, more: bool = False) -> None:
        self.send(200, text.encode(), {"Content-Type": f"{kind}; charset=utf-8"}, more=int(more))
