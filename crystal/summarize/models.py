"""Models that write summaries or help a search: any server with OpenAI's chat completions, or Ollama.

The only file of this package that uses the network. Every answer is bounded in time and size. Calls are plain HTTP from
this process: no coding agent is started and no transcript is created, so these calls are never captured.
"""

from __future__ import annotations

import ipaddress
import re
import time
from dataclasses import dataclass, field
from typing import Any

import httpx
import orjson

from crystal.errors import CrystalError, Denied, NotConfigured, UsageProblem
from crystal.summarize.llm import ANSWER_TOKENS, PROMPT_TOKENS, Completion, ModelUnavailable, Prompt, SummaryModel

TIMEOUT_SECONDS = 60.0
CONNECT_SECONDS = 10.0
MAX_BYTES = 1 << 20
_OLLAMA_CONTEXT = PROMPT_TOKENS * 2 + ANSWER_TOKENS
_REASONING_TOKENS = 4000
_CODE = re.compile(r"[a-z_]{1,40}")

DEFAULTS = {
    "openai": ("https://api.openai.com/v1", "gpt-4o-mini"),
    "google": ("https://generativelanguage.googleapis.com/v1beta/openai", "gemini-2.5-flash-lite"),
    "ollama": ("http://localhost:11434", "llama3.2"),
}


@dataclass(frozen=True, slots=True)
class OpenAIChat:
    """Model with OpenAI's ``/chat/completions`` API, on any server that supports it."""

    provider: str
    model: str
    base_url: str
    key: str | None = field(default=None, repr=False)
    timeout_seconds: float = TIMEOUT_SECONDS

    @property
    def most_output_tokens(self) -> int:
        """See ``SummaryModel``. Which models reason is not known before the first call."""
        return _REASONING_TOKENS

    def complete(self, prompt: Prompt) -> Completion:
        """Send one prompt, see ``SummaryModel``.

        Servers and models differ in the supported options (no temperature for models that reason, no JSON schema on
        small servers). If the server refuses the request, it is sent once more without options.
        """
        messages = [{"role": "system", "content": prompt.system}, {"role": "user", "content": prompt.user}]
        chosen: dict[str, Any] = {"temperature": 0.2, "max_tokens": prompt.most_tokens}
        if prompt.schema is not None:
            shape = {"name": "index_card", "strict": True, "schema": prompt.schema}
            chosen["response_format"] = {"type": "json_schema", "json_schema": shape}
        plain = {"model": self.model, "messages": messages}
        headers = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        url = self.base_url.rstrip("/") + "/chat/completions"
        try:
            reply = _post(url, {**plain, **chosen}, headers, self.timeout_seconds, self.model)
        except _RequestRefused:
            bare = {**plain, "max_completion_tokens": _REASONING_TOKENS}
            reply = _post(url, bare, headers, self.timeout_seconds, self.model)
        choices, usage = _list(reply.get("choices")), _dict(reply.get("usage"))
        message = _dict(_dict(choices[0] if choices else None).get("message"))
        return Completion(
            _text(message.get("content")), _count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens"))
        )


@dataclass(frozen=True, slots=True)
class OllamaChat:
    """Model on the user's own machine with Ollama's ``/api/chat``. Costs nothing."""

    model: str
    base_url: str
    timeout_seconds: float = TIMEOUT_SECONDS * 3
    provider: str = "ollama"

    @property
    def most_output_tokens(self) -> int:
        """See ``SummaryModel``."""
        return ANSWER_TOKENS

    def complete(self, prompt: Prompt) -> Completion:
        """Send one prompt, see ``SummaryModel``.

        The context size is always sent: Ollama's default silently cuts the prompt.
        """
        body: dict[str, Any] = {
            "model": self.model,
            "messages": [{"role": "system", "content": prompt.system}, {"role": "user", "content": prompt.user}],
            "stream": False,
            "options": {"temperature": 0.2, "num_predict": prompt.most_tokens, "num_ctx": _OLLAMA_CONTEXT},
        }
        if prompt.schema is not None:
            body["format"] = prompt.schema
        reply = _post(self.base_url.rstrip("/") + "/api/chat", body, {}, self.timeout_seconds, self.model)
        return Completion(
            _text(_dict(reply.get("message")).get("content")),
            _count(reply.get("prompt_eval_count")),
            _count(reply.get("eval_count")),
        )


@dataclass(frozen=True, slots=True)
class MissingModel:
    """Configured model that cannot be used: every call raises the reason."""

    problem: CrystalError
    provider: str = "none"
    model: str = "none"
    most_output_tokens: int = 0

    def complete(self, prompt: Prompt) -> Completion:  # noqa: ARG002  the protocol's
        """Raise the reason."""
        raise self.problem


def choose_model(
    mode: str, provider: str, *, model: str | None, base_url: str | None, key: str | None, consent: bool
) -> SummaryModel | None:
    """Return the configured model; None for simple summaries.

    Args:
        mode: ``simple``; ``llm``; or ``auto``, which needs consent, and a key if the provider requires one.
        provider: ``openai``, ``google`` or ``ollama``.
        model: The model name, None for the provider's default.
        base_url: The base URL, None for the provider's own address.
        key: The API key, if there is one.
        consent: Whether transcripts may be sent to the provider.
    """
    needs_key = provider != "ollama" and base_url is None
    if mode == "simple" or (mode == "auto" and not (consent and (key or not needs_key))):
        return None
    if provider not in DEFAULTS:
        return MissingModel(UsageProblem(f"the model's provider is {provider!r}", hint=f"one of {', '.join(DEFAULTS)}"))
    address, usual = DEFAULTS[provider]
    if provider == "ollama":
        return OllamaChat(model or usual, base_url or address)
    if key is None and needs_key:
        return MissingModel(NotConfigured(f"there is no API key for {provider}", hint="run: crystal config"))
    if key is not None and not (key.isascii() and key.isprintable()):
        return MissingModel(NotConfigured(f"the API key for {provider} holds characters that no key has"))
    return OpenAIChat(provider, model or usual, base_url or address, key)


def stays_here(provider: str, base_url: str | None) -> bool:
    """Return True if data sent to this provider does not leave this machine."""
    address = base_url or DEFAULTS.get(provider, ("", ""))[0]
    return _is_loopback(_host(address))


class _RequestRefused(ModelUnavailable):
    """The server understood the request and rejects it."""


def _post(url: str, body: dict[str, Any], headers: dict[str, str], seconds: float, model: str) -> dict[str, Any]:
    """Send one request and return the JSON object of the answer, {} if it is not a JSON object."""
    host = _host(url)
    timeout = httpx.Timeout(seconds, connect=CONNECT_SECONDS)
    headers = {"Content-Type": "application/json", **headers}
    try:
        with (
            # A proxy is for other hosts, never for a model on this machine.
            httpx.Client(timeout=timeout, trust_env=not _is_loopback(host)) as client,
            client.stream("POST", url, content=orjson.dumps(body), headers=headers) as response,
        ):
            answer = _read(response, time.monotonic() + seconds, host)
    except (httpx.ConnectError, httpx.ConnectTimeout, httpx.UnsupportedProtocol) as error:
        raise ModelUnavailable(f"{host} cannot be reached: {_reason(error)}") from error
    except httpx.TimeoutException as error:
        raise ModelUnavailable(f"{host} did not answer within {seconds:g} s", may_be_billed=True) from error
    except httpx.HTTPError as error:
        raise ModelUnavailable(f"{host} broke off: {_reason(error)}", may_be_billed=True) from error
    except httpx.InvalidURL as error:
        raise UsageProblem("the model's base_url is no address", hint="for example http://localhost:8080/v1") from error
    fields = _json(answer)
    if response.status_code != httpx.codes.OK:
        raise _refusal(response, host, model, _error_code(fields))
    return fields


def _read(response: httpx.Response, deadline: float, host: str) -> bytes:
    """Read the body, limited in size and time."""
    parts: list[bytes] = []
    size = 0
    for part in response.iter_bytes():
        parts.append(part)
        size += len(part)
        if size > MAX_BYTES:
            raise ModelUnavailable(f"{host} answers with more than {MAX_BYTES} bytes", may_be_billed=True)
        if time.monotonic() > deadline:
            raise ModelUnavailable(f"{host} answers too slowly", may_be_billed=True)
    return b"".join(parts)


def _refusal(response: httpx.Response, host: str, model: str, code: str) -> CrystalError:
    status = response.status_code
    words = f"{host} answers {status}{f' ({code})' if code else ''}"
    if status in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
        return Denied(f"{words}: it refuses the API key", hint="run: crystal config, and check the key")
    if status == httpx.codes.NOT_FOUND:
        return NotConfigured(
            f"{words}: no model {model!r} there", hint="check the settings of the model's name and base_url"
        )
    if status in (httpx.codes.BAD_REQUEST, httpx.codes.UNPROCESSABLE_ENTITY):
        return _RequestRefused(words)
    return ModelUnavailable(words, retry_after=_seconds(response.headers.get("retry-after", "")))


def _error_code(fields: dict[str, Any]) -> str:
    """Return the server's error code if it has one; never a sentence, which might quote the prompt."""
    error = _dict(fields.get("error"))
    code = next((value for value in (error.get("code"), error.get("type")) if isinstance(value, str)), "")
    return code if _CODE.fullmatch(code) else ""


def _seconds(header: str) -> float:
    return float(header) if re.fullmatch(r"\d{1,6}(\.\d{1,3})?", header) else 0.0


def _reason(error: Exception) -> str:
    return str(error).lower().rstrip(".") or type(error).__name__


def _host(url: str) -> str:
    try:
        return httpx.URL(url).host or url
    except httpx.InvalidURL:
        return url


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _json(data: bytes) -> dict[str, Any]:
    try:
        return _dict(orjson.loads(data))
    except orjson.JSONDecodeError:
        return {}


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _count(value: object) -> int | None:
    """Return a plausible number of tokens."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 100_000_000 else None
