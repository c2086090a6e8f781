"""A server on loopback that speaks OpenAI's chat completions and Ollama's chat as far as summaries use them.

It answers what a test scripts: a reply (bytes or a value for JSON) with a status, cut off, endless, or never.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.support.loopback import Handler, serving

CARD = {
    "title": "Repair of the spool",
    "summary": "The spool lost notes. It was repaired.",
    "topics": ["spool", "fsync"],
}


def openai_reply(content: Any, *, prompt_tokens: Any = 1000, completion_tokens: Any = 100) -> dict[str, Any]:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "model": "gpt-4o-mini-2024-07-18",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens, "total_tokens": 0},
    }


def ollama_reply(content: Any) -> dict[str, Any]:
    return {
        "model": "llama3.2",
        "message": {"role": "assistant", "content": content},
        "done": True,
        "prompt_eval_count": 900,
        "eval_count": 90,
    }


@dataclass
class Reply:
    body: Any = field(default_factory=lambda: openai_reply(json.dumps(CARD)))
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    cut: bool = False  # promises more bytes than come
    silent: bool = False  # never answers
    endless: bool = False  # never stops


ReplyTo = Callable[[dict[str, Any]], Reply]


@dataclass
class ChatServer:
    url: str
    script: list[Reply | ReplyTo] = field(default_factory=list)  # one for each request; the last one stays
    requests: list[dict[str, Any]] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    def next_reply(self) -> Reply:
        if not self.script:
            return Reply()
        reply = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        return reply if isinstance(reply, Reply) else reply(self.requests[-1])


@contextlib.contextmanager
def chat_server(*script: Reply | ReplyTo) -> Iterator[ChatServer]:
    state = ChatServer("", list(script))

    class Chat(Handler):
        def do_POST(self) -> None:
            body = json.loads(self.body())
            state.requests.append({"path": self.path, "headers": dict(self.headers), "body": body})
            with contextlib.suppress(OSError):
                self.answer(state.next_reply())

        def answer(self, reply: Reply) -> None:
            if reply.silent:
                state.over.wait(20)
            elif reply.endless:
                self.send_response(reply.status)
                self.end_headers()
                while not state.over.is_set():
                    self.wfile.write(b" " * 65536)
            else:
                self.send(reply.status, reply.body, reply.headers, more=100 * reply.cut)
            self.close_connection = True

    with serving(Chat) as state.url:
        try:
            yield state
        finally:
            state.over.set()
