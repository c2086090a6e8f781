"""Models that write summaries or help a search: any server with OpenAI's chat completions, or Ollama.

Calls are plain HTTP from this process: no coding agent is started and no transcript is created, so these calls are
never captured.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from crystal.config.providers import SUMMARIZERS
from crystal.errors import CrystalError, NotConfiguredError, TextRefusedError, UsageError
from crystal.provider_http.post import address, is_loopback, post_json
from crystal.summarize.llm import ANSWER_TOKENS, PROMPT_TOKENS, Completion, Prompt, SummaryModel

TIMEOUT_SECONDS = 60.0
OLLAMA_SECONDS = 180.0
MAX_BYTES = 1 << 20
_OLLAMA_CONTEXT = PROMPT_TOKENS * 2 + ANSWER_TOKENS
_REASONING_TOKENS = 4000


@dataclass(frozen=True, slots=True)
class ChatModel:
    """Model on a server with OpenAI's ``/chat/completions`` API, or on Ollama, which costs nothing."""

    provider: str
    model: str
    base_url: str
    key: str | None = field(default=None, repr=False)
    timeout_seconds: float = TIMEOUT_SECONDS

    @property
    def most_output_tokens(self) -> int:
        """See ``SummaryModel``. Which models reason is not known before the first call."""
        return ANSWER_TOKENS if self.provider == "ollama" else _REASONING_TOKENS

    def complete(self, prompt: Prompt) -> Completion:
        """Send one prompt, see ``SummaryModel``.

        Servers and models differ in the supported options (no temperature for models that reason, no JSON schema on
        small servers). If the server refuses the request, it is sent once more without options.
        """
        messages = [{"role": "system", "content": prompt.system}, {"role": "user", "content": prompt.user}]
        plain = {"model": self.model, "messages": messages}
        if self.provider == "ollama":
            return self._ask_ollama(plain, prompt)
        chosen: dict[str, Any] = {"temperature": 0.2, "max_tokens": prompt.most_tokens}
        if prompt.schema is not None:
            shape = {"name": "index_card", "strict": True, "schema": prompt.schema}
            chosen["response_format"] = {"type": "json_schema", "json_schema": shape}
        try:
            return self._ask_openai({**plain, **chosen})
        except TextRefusedError:
            return self._ask_openai({**plain, "max_completion_tokens": _REASONING_TOKENS})

    def _ask_openai(self, body: dict[str, Any]) -> Completion:
        reply = self._post(address(self.base_url) + "/chat/completions", body)
        choices, usage = reply.get("choices"), _dict(reply.get("usage"))
        message = _dict(_dict(choices[0] if isinstance(choices, list) and choices else None).get("message"))
        return _completion(message, usage.get("prompt_tokens"), usage.get("completion_tokens"))

    def _ask_ollama(self, plain: dict[str, Any], prompt: Prompt) -> Completion:
        """Ask Ollama. The context size is always sent: its default silently cuts the prompt."""
        options = {"temperature": 0.2, "num_predict": prompt.most_tokens, "num_ctx": _OLLAMA_CONTEXT}
        body = {**plain, "stream": False, "options": options}
        if prompt.schema is not None:
            body["format"] = prompt.schema
        reply = self._post(address(self.base_url, scheme="http") + "/api/chat", body)
        return _completion(_dict(reply.get("message")), reply.get("prompt_eval_count"), reply.get("eval_count"))

    def _post(self, url: str, body: dict[str, Any]) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        name = f"{self.provider} {self.model}"
        return _dict(post_json(name, url, body, headers, self.timeout_seconds, max_bytes=MAX_BYTES))


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
    if provider not in SUMMARIZERS:
        return MissingModel(
            UsageError(f"the model's provider is {provider!r}", hint=f"one of {', '.join(SUMMARIZERS)}")
        )
    usual_url, usual = SUMMARIZERS[provider]
    if provider == "ollama":
        return ChatModel(provider, model or usual, base_url or usual_url, timeout_seconds=OLLAMA_SECONDS)
    if key is None and needs_key:
        return MissingModel(NotConfiguredError(f"there is no API key for {provider}", hint="run: crystal config"))
    if key is not None and not (key.isascii() and key.isprintable()):
        return MissingModel(NotConfiguredError(f"the API key for {provider} holds characters that no key has"))
    return ChatModel(provider, model or usual, base_url or usual_url, key)


def stays_here(provider: str, base_url: str | None) -> bool:
    """Return True if data sent to this provider does not leave this machine."""
    return is_loopback(base_url or SUMMARIZERS.get(provider, ("", ""))[0])


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _completion(message: dict[str, Any], input_tokens: object, output_tokens: object) -> Completion:
    content = message.get("content")
    return Completion(content if isinstance(content, str) else "", _count(input_tokens), _count(output_tokens))


def _count(value: object) -> int | None:
    """Return a plausible number of tokens."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 100_000_000 else None
