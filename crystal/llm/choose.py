"""Choose the model that the settings name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from crystal.config.providers import PROGRAMS, SUMMARIZERS, WRITERS
from crystal.errors import CrystalError, NotConfiguredError, UsageError
from crystal.llm.ask import Completion, LanguageModel, Prompt
from crystal.llm.chat import OLLAMA_SECONDS, ChatModel
from crystal.llm.programs import ProgramModel


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


def _may_ask(key: str | None, *, consent: bool, needs_key: bool) -> bool:
    return consent and (bool(key) or not needs_key)


def choose_model(
    mode: str,
    provider: str,
    *,
    model: str | None,
    base_url: str | None,
    key: str | None,
    consent: bool,
    environ: Mapping[str, str] = MappingProxyType({}),
) -> LanguageModel | None:
    """Return the configured model; None for simple summaries.

    Args:
        mode: ``simple``; ``llm``; or ``auto``, which needs consent, and a key if the provider requires one.
        provider: a name in ``WRITERS``.
        model: The model name, None for the provider's default.
        base_url: The base URL, None for the provider's own address.
        key: The API key, if there is one.
        consent: Whether transcripts may be sent to the provider.
        environ: The environment of a provider that is a program.
    """
    needs_key = provider not in ("ollama", *PROGRAMS) and base_url is None
    if mode == "simple" or (mode == "auto" and not _may_ask(key, consent=consent, needs_key=needs_key)):
        return None
    if provider not in WRITERS:
        return MissingModel(UsageError(f"the model's provider is {provider!r}", hint=f"one of {', '.join(WRITERS)}"))
    if provider in PROGRAMS:
        return ProgramModel(provider, model or PROGRAMS[provider], environ)
    usual_url, usual = SUMMARIZERS[provider]
    if provider == "ollama":
        return ChatModel(provider, model or usual, base_url or usual_url, timeout_seconds=OLLAMA_SECONDS)
    problem = _key_problem(provider, key, needs_key=needs_key)
    return MissingModel(problem) if problem else ChatModel(provider, model or usual, base_url or usual_url, key)


def _key_problem(provider: str, key: str | None, *, needs_key: bool) -> CrystalError | None:
    if key is None and needs_key:
        return NotConfiguredError(f"there is no API key for {provider}", hint="see: crystal doctor")
    if key is not None and not (key.isascii() and key.isprintable()):
        return NotConfiguredError(f"the API key for {provider} holds characters that no key has")
    return None
