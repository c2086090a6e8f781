"""Models behind HTTP: any server with OpenAI's chat completions, or Ollama.

Calls are plain HTTP from this process: no coding agent is started and no transcript is created, so these calls are
never captured.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from crystal.errors import TextRefusedError
from crystal.llm.ask import ANSWER_TOKENS, PROMPT_TOKENS, Completion, Prompt, counted
from crystal.provider_http.post import address, post_json

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
        """See ``LanguageModel``. Which models reason is not known before the first call."""
        return ANSWER_TOKENS if self.provider == "ollama" else _REASONING_TOKENS

    def complete(self, prompt: Prompt) -> Completion:
        """Send one prompt, see ``LanguageModel``.

        Servers and models differ in the supported options (no temperature for models that reason, no JSON schema on
        small servers). If the server refuses the request, it is sent once more without options.
        """
        messages = [{"role": "system", "content": prompt.system}, {"role": "user", "content": prompt.user}]
        plain = {"model": self.model, "messages": messages}
        if self.provider == "ollama":
            return self._ask_ollama(plain, prompt)
        chosen: dict[str, Any] = {"temperature": 0.2, "max_tokens": prompt.most_tokens}
        if prompt.schema is not None:
            shape = {"name": "answer", "strict": True, "schema": prompt.schema}
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
        url = address(self.base_url, scheme="http") + "/api/chat"
        try:
            reply = self._post(url, body)
        except TextRefusedError:
            if body.pop("format", None) is None:
                raise
            reply = self._post(url, body)  # an older Ollama takes no schema
        return _completion(_dict(reply.get("message")), reply.get("prompt_eval_count"), reply.get("eval_count"))

    def _post(self, url: str, body: dict[str, Any]) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        name = f"{self.provider} {self.model}"
        return _dict(post_json(name, url, body, headers, self.timeout_seconds, max_bytes=MAX_BYTES))


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _completion(message: dict[str, Any], input_tokens: object, output_tokens: object) -> Completion:
    content = message.get("content")
    return Completion(content if isinstance(content, str) else "", counted(input_tokens), counted(output_tokens))
