"""A server on loopback that answers as OpenAI, Ollama, Google and Voyage do, with their manners and their failures.

    def test_x(providers):
        providers.fail_next(status(429, {"Retry-After": "7"}))
        make_embedder("openai", base_url=providers.openai, key=KEY)...

Requests are checked as the real services check them (key, limits, unknown models) and kept in ``asked``. Failures
queue up, one a request; after them the server answers well. Chat answers are what ``reply`` makes of the messages.
Import the fixture ``providers`` where it is needed.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.support.loopback import Handler, serving

KEY = "sk-test-0123456789abcdefghijklmnopqrstuvwxyz"

DIMENSIONS = {
    "text-embedding-3-small": 1536,
    "text-embedding-3-large": 3072,
    "nomic-embed-text": 768,
    "text-embedding-004": 768,
    "gemini-embedding-001": 3072,
    "voyage-3-lite": 512,
    "voyage-3.5": 1024,
}
CHAT_MODELS = ("gpt-4o-mini", "llama3.2", "gemini-2.0-flash")
MAX_OPENAI_TEXT = 8191 * 4


@dataclass
class Asked:
    """One request as it arrived."""

    path: str
    headers: dict[str, str]
    body: Any


Failure = Callable[["Providers", Handler, Asked], None]


@dataclass
class Providers:
    """The server's face for tests."""

    url: str
    asked: list[Asked] = field(default_factory=list)
    failures: deque[Failure] = field(default_factory=deque)
    reply: Callable[[list[dict[str, str]]], str] = lambda _: "A fine summary."
    over: threading.Event = field(default_factory=threading.Event)

    openai = property(lambda self: f"{self.url}/openai/v1")
    ollama = property(lambda self: f"{self.url}/ollama")
    google = property(lambda self: f"{self.url}/google")
    voyage = property(lambda self: f"{self.url}/voyage/v1")

    def fail_next(self, *failures: Failure) -> None:
        self.failures.extend(failures)

    def base_url(self, provider: str) -> str:
        return f"{self.url}/{provider}" + ("/v1" if provider in ("openai", "voyage") else "")


def vector(text: str, dimension: int, purpose: str = "") -> list[float]:
    """The server's vector of a text: drawn from it, of length 1 within rounding."""
    draw = random.Random(hashlib.sha256(f"{purpose}|{text}".encode()).digest())
    numbers = [draw.gauss(0, 1) for _ in range(dimension)]
    length = math.sqrt(sum(n * n for n in numbers))
    return [round(n / length, 9) for n in numbers]


# -------------------------------------------------------------------------------------------------------- failures


def status(code: int, headers: dict[str, str] | None = None, body: object = None) -> Failure:
    def act(_: Providers, handler: Handler, asked: Asked) -> None:
        told = error_body(asked, code, "told to fail", "told") if body is None else body
        handler.send(code, told, headers)

    return act


def slow(providers: Providers, handler: Handler, _: Asked) -> None:
    """No answer until the test is over."""
    providers.over.wait(30)
    handler.close_connection = True


def dripping(providers: Providers, handler: Handler, _: Asked) -> None:
    """A byte now and then, so that no single read ever times out."""
    handler.send_response(200)
    handler.send_header("Content-Length", "100000")
    handler.end_headers()
    while not providers.over.wait(0.02):
        handler.wfile.write(b" ")
        handler.wfile.flush()
    handler.close_connection = True


def cut_off(_: Providers, handler: Handler, asked: Asked) -> None:
    """The first half of a good answer, then the connection closes."""
    held = json.dumps(good_answer(asked)[1]).encode()
    half = len(held) // 2
    handler.send(200, held[:half], more=len(held) - half)
    handler.close_connection = True


def cut_off_unnoticed(_: Providers, handler: Handler, asked: Asked) -> None:
    """The same, from a server that never said how long the answer would be."""
    held = json.dumps(good_answer(asked)[1]).encode()
    handler.send_response(200)
    handler.send_header("Connection", "close")
    handler.end_headers()
    handler.wfile.write(held[: len(held) // 2])
    handler.close_connection = True


def hang_up(_: Providers, handler: Handler, __: Asked) -> None:
    """The connection closes without a word."""
    handler.close_connection = True


def endless(_: Providers, handler: Handler, __: Asked) -> None:
    """More than anybody wants to hold."""
    handler.send_response(200)
    handler.end_headers()
    try:
        for _ in range(4096):
            handler.wfile.write(b" " * 65536)
    except OSError:
        pass
    handler.close_connection = True


def not_json(_: Providers, handler: Handler, __: Asked) -> None:
    """What a hotel's network answers."""
    handler.send(200, b"<html>Please accept our terms</html>", {"Content-Type": "text/html"})


def spoilt(spoil: Callable[[list[Any]], list[Any]]) -> Failure:
    """A good answer whose vectors went through ``spoil``."""

    def act(_: Providers, handler: Handler, asked: Asked) -> None:
        code, answer = good_answer(asked)
        kind = provider_of(asked)
        if kind == "ollama":
            answer["embeddings"] = spoil(answer["embeddings"])
        elif kind == "google":
            answer["embeddings"] = [{"values": v} for v in spoil([e["values"] for e in answer["embeddings"]])]
        else:
            made = spoil([entry["embedding"] for entry in answer["data"]])
            answer["data"] = [{"object": "embedding", "index": n, "embedding": v} for n, v in enumerate(made)]
        handler.send(code, answer)

    return act


def answer_with(body: object) -> Failure:
    """Any JSON, with 200."""
    return lambda _, handler, __: handler.send(200, body)


# ---------------------------------------------------------------------------------------------------- good answers


def provider_of(asked: Asked) -> str:
    return asked.path.split("/")[1]


def good_answer(asked: Asked) -> tuple[int, Any]:
    answers = {"openai": openai_answer, "voyage": voyage_answer, "ollama": ollama_answer, "google": google_answer}
    try:
        return answers[provider_of(asked)](asked, asked.body)
    except KeyError as missing:
        return 404, error_body(asked, 404, f"nothing at {asked.path}: {missing}", "not_found")


def error_body(asked: Asked, code: int, message: str, label: str) -> object:
    """An error as each of them words it."""
    kind = provider_of(asked)
    if kind == "google":
        return {"error": {"code": code, "message": message, "status": label.upper()}}
    if kind == "ollama":
        return {"error": message}
    if kind == "voyage":
        return {"detail": message}
    return {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": label}}


def openai_answer(asked: Asked, body: Any) -> tuple[int, Any]:
    if asked.headers.get("authorization") != f"Bearer {KEY}":
        given = asked.headers.get("authorization", "")
        return 401, error_body(asked, 401, f"Incorrect API key provided: {given}", "invalid_api_key")
    if asked.path.endswith("/chat/completions"):
        return chat_answer(asked, body)
    model, texts = body["model"], body["input"]
    if model not in DIMENSIONS:
        return 404, error_body(asked, 404, f"The model `{model}` does not exist", "model_not_found")
    if not texts or any(not text for text in texts) or len(texts) > 2048:
        return 400, error_body(asked, 400, "'$.input' is invalid", "invalid_input")
    if any(len(text) > MAX_OPENAI_TEXT for text in texts):
        told = f"This model's maximum context length is 8192 tokens: {texts[0][:40]}"
        return 400, error_body(asked, 400, told, "context_length_exceeded")
    assert body["encoding_format"] == "float"
    made = [vector(text, body.get("dimensions", DIMENSIONS[model])) for text in texts]
    data = [{"object": "embedding", "index": n, "embedding": v} for n, v in enumerate(made)]
    tokens = sum(len(text) for text in texts) // 4 + 1
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    # The order is promised by `index` only.
    return 200, {"object": "list", "data": data[::-1], "model": model, "usage": usage}


def chat_answer(asked: Asked, body: Any) -> tuple[int, Any]:
    if body["model"] not in CHAT_MODELS:
        return 404, error_body(asked, 404, f"The model `{body['model']}` does not exist", "model_not_found")
    said = asked.reply(body["messages"])  # type: ignore[attr-defined]
    tokens = sum(len(json.dumps(message)) for message in body["messages"]) // 4, len(said) // 4 + 1
    return 200, {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_790_000_000,
        "model": body["model"],
        "choices": [
            {"index": 0, "message": {"role": "assistant", "content": said, "refusal": None}, "finish_reason": "stop"}
        ],
        "usage": {"prompt_tokens": tokens[0], "completion_tokens": tokens[1], "total_tokens": sum(tokens)},
    }


def voyage_answer(asked: Asked, body: Any) -> tuple[int, Any]:
    if asked.headers.get("authorization") != f"Bearer {KEY}":
        return 401, {"detail": "Provided API key is invalid."}
    model, texts = body["model"], body["input"]
    if model not in DIMENSIONS:
        return 400, {"detail": f"Model {model} is not supported."}
    if not 0 < len(texts) <= 1000 or any(not text for text in texts) or body["input_type"] not in ("document", "query"):
        return 400, {"detail": "The request body is not valid"}
    dimension = body.get("output_dimension", DIMENSIONS[model])
    made = [vector(text, dimension, body["input_type"]) for text in texts]
    data = [{"object": "embedding", "embedding": v, "index": n} for n, v in enumerate(made)]
    return 200, {"object": "list", "data": data, "model": model, "usage": {"total_tokens": len(texts) * 100}}


def ollama_answer(asked: Asked, body: Any) -> tuple[int, Any]:
    if asked.path == "/ollama/api/chat":
        if body["model"] not in CHAT_MODELS:
            return 404, {"error": f'model "{body["model"]}" not found, try pulling it first'}
        assert body["stream"] is False
        said = asked.reply(body["messages"])  # type: ignore[attr-defined]
        return 200, {
            "model": body["model"],
            "created_at": "2026-11-20T23:51:53.936Z",
            "message": {"role": "assistant", "content": said},
            "done_reason": "stop",
            "done": True,
            "prompt_eval_count": 100,
            "eval_count": len(said) // 4 + 1,
        }
    if asked.path != "/ollama/api/embed":
        raise KeyError(asked.path)
    model = body["model"].partition(":")[0]
    if model not in DIMENSIONS:
        return 404, {"error": f'model "{model}" not found, try pulling it first'}
    made = [vector(text, body.get("dimensions", DIMENSIONS[model])) for text in body["input"]]
    return 200, {"model": body["model"], "embeddings": made, "total_duration": 1, "prompt_eval_count": 7}


def google_answer(asked: Asked, body: Any) -> tuple[int, Any]:
    if asked.headers.get("x-goog-api-key") != KEY:
        details = [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}]
        told = "API key not valid. Please pass a valid API key."
        return 400, {"error": {"code": 400, "message": told, "status": "INVALID_ARGUMENT", "details": details}}
    assert "key=" not in asked.path
    model, _, verb = asked.path.removeprefix("/google/v1beta/models/").partition(":")
    if verb != "batchEmbedContents" or model not in DIMENSIONS:
        return 404, error_body(asked, 404, f"models/{model} is not found", "not_found")
    if not 0 < len(body["requests"]) <= 100:
        return 400, error_body(asked, 400, "at most 100 requests can be in one batch", "invalid_argument")
    made = []
    for request in body["requests"]:
        assert request["model"] == f"models/{model}"
        text = request["content"]["parts"][0]["text"]
        size = request.get("outputDimensionality", DIMENSIONS[model])
        made.append({"values": [2 * n for n in vector(text, size, request["taskType"])]})  # not of length 1
    return 200, {"embeddings": made}


# --------------------------------------------------------------------------------------------------------- serving


@contextmanager
def serve_providers() -> Iterator[Providers]:
    """Run the server for a while; also usable outside of pytest."""

    class OneRequest(Handler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            asked = Asked(self.path, headers, json.loads(self.body()))
            asked.reply = providers.reply  # type: ignore[attr-defined]
            providers.asked.append(asked)
            try:
                if providers.failures:
                    providers.failures.popleft()(providers, self, asked)
                else:
                    self.send(*good_answer(asked))
            except OSError:  # the client has gone, as some tests want it to
                self.close_connection = True

    with serving(OneRequest) as url:
        providers = Providers(url)
        try:
            yield providers
        finally:
            providers.over.set()


@pytest.fixture
def providers() -> Iterator[Providers]:
    with serve_providers() as providers:
        yield providers
