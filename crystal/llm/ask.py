"""Build a prompt around untrusted text, pay for its answer under a cap, and hold the answer to a JSON schema."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import orjson

from crystal.config.prices import price_of
from crystal.errors import CrystalError, ModelUnavailableError
from crystal.store import Store
from crystal.store.costs import DAY_MS, Cost, day_start, release, reserve, settle
from crystal.store.problems import find_problem, rest_ms

PROMPT_TOKENS = 6000
ANSWER_TOKENS = 900

_THOUGHT = re.compile(r"<think(?:ing)?>.{0,20000}?(?:</think(?:ing)?>|\Z)", re.DOTALL)
_FENCED = re.compile(r"```(?:json|text)?(.*?)```", re.DOTALL)
_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,), "array": (list,), "string": (str,), "boolean": (bool,), "integer": (int,),
    "number": (int, float),
}  # fmt: skip


class InvalidAnswerError(CrystalError):
    """The model's answer does not have the requested form. It was paid for."""


class CostCapError(CrystalError):
    """The next call would exceed the daily cap."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """Prompt for a model: the task, and the data.

    Attributes:
        system: The task.
        user: The data.
        schema: The JSON schema of the answer, enforced if the server supports it; None for free text.
        most_tokens: Maximum length of the answer.
    """

    system: str
    user: str
    schema: dict[str, Any] | None = field(default=None, compare=False)
    most_tokens: int = ANSWER_TOKENS


@dataclass(frozen=True, slots=True)
class Completion:
    """Answer of a model, with the tokens and the price that the other side counted (None if not reported)."""

    text: str
    input_tokens: int | None = None
    output_tokens: int | None = None
    usd: float | None = None


def counted(value: object) -> int | None:
    """Return a plausible number of tokens, or None."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 100_000_000 else None


class LanguageModel(Protocol):
    """Interface of a model."""

    @property
    def provider(self) -> str:
        """Return the provider; it determines together with ``model`` the price of a call."""

    @property
    def model(self) -> str:
        """Return the name of the model."""

    @property
    def most_output_tokens(self) -> int:
        """Return the maximum length of an answer, for the estimate of its price."""

    def complete(self, prompt: Prompt) -> Completion:
        """Send one prompt.

        Raises:
            ModelUnavailableError: No answer at the moment.
            DeniedError: The server refuses the key.
            NotConfiguredError: The key is missing, or the model is unknown.
        """


def fenced(name: str, data: str) -> str:
    """Return untrusted data between two marks.

    The mark is the hash of the data, so no data can hold its own.
    """
    mark = hashlib.sha256(data.encode("utf-8", "replace")).hexdigest()[:20]
    return f"Mark: {mark}\n--- {name} {mark}\n{data}\n--- end of {name} {mark}\n"


def estimated_tokens(text: str) -> int:
    """Estimate the tokens of a text, erring high: four ASCII characters per token, one of any other."""
    ascii_characters = len(text.encode("ascii", "ignore"))
    return -(-ascii_characters // 4) + len(text) - ascii_characters


# --------------------------------------------------------------------------------------------------------- answers


def body_of(answer: str) -> str:
    """Return the answer without reasoning before it and without a code fence around it."""
    text = _THOUGHT.sub("", answer, count=3).strip()
    inside = None if text.startswith(("{", "[")) else _FENCED.search(text)
    return (inside[1] if inside else text).strip()


def parse_json(answer: str, schema: dict[str, Any]) -> Any:
    """Return the JSON value of an answer; a code fence or a thought before it is accepted, nothing else.

    Raises:
        InvalidAnswerError: It is no JSON, or not of the schema. The message holds nothing of the answer.
    """
    try:
        value = orjson.loads(body_of(answer))
    except orjson.JSONDecodeError as error:
        raise InvalidAnswerError(f"the model's answer of {len(answer)} characters is not JSON") from error
    wrong = _misfit(value, schema, "the answer")
    if wrong:
        raise InvalidAnswerError(f"the model's answer is not of the requested form: {wrong}")
    return value


def _misfit(value: Any, schema: dict[str, Any], name: str) -> str | None:
    """Return what of a value does not fit the parts of JSON Schema that prompts here use; None if all does."""
    kind = schema.get("type")
    if kind is not None and (not isinstance(value, _TYPES[kind]) or (isinstance(value, bool) and kind != "boolean")):
        return f"{name} is not of the type {kind}"
    if value not in schema.get("enum", [value]):
        return f"{name} is none of the allowed values"
    if kind == "object":
        missing = [key for key in schema.get("required", ()) if key not in value]
        if missing:
            return f"{name} lacks {missing[0]}"
        if schema.get("additionalProperties") is False and value.keys() - schema["properties"].keys():
            return f"{name} has more than was asked for"
    return next(filter(None, (_misfit(one, form, part) for part, one, form in _inside(value, schema, name))), None)


def _inside(value: Any, schema: dict[str, Any], name: str) -> list[tuple[str, Any, dict[str, Any]]]:
    """Return the items or fields of a value, each with its name and schema."""
    if schema.get("type") == "array":
        return [(f"an item of {name}", one, schema.get("items", {})) for one in value]
    fields = schema.get("properties", {}) if schema.get("type") == "object" else {}
    return [(key, value[key], one) for key, one in fields.items() if key in value]


# ---------------------------------------------------------------------------------------------------------- paying


@dataclass(frozen=True, slots=True)
class PaidModel:
    """A model with what may be spent on it.

    Attributes:
        store: The ledger, open for writing, in no transaction.
        model: The model.
        purpose: What the calls are for; each purpose has its own cap.
        daily_cap_usd: Maximum cost of the purpose in a UTC day.
    """

    store: Store
    model: LanguageModel
    purpose: str
    daily_cap_usd: float

    def ask(self, prompt: Prompt, now: int, keep: Callable[[Completion], None] = lambda _: None) -> Completion:
        """Reserve the price, call the model, settle. Holds no transaction during the call.

        Args:
            prompt: The prompt.
            now: The time, ms.
            keep: Stores the answer in the transaction that settles its price.

        Raises:
            CostCapError: The cap is reached; the model was not called.
            CrystalError: Any error of ``complete``.
        """
        model, most = self.model, self.model.most_output_tokens
        price = price_of(model.provider, model.model)
        # A fifth more than is likely, and the longest answer.
        tokens = estimated_tokens(prompt.system + prompt.user) * 6 // 5 + 20
        estimate = Cost(now, self.purpose, model.provider, model.model, tokens, most, price.usd(tokens, most))
        ident = reserve(self.store, estimate, daily_cap_usd=self.daily_cap_usd)
        if ident is None:
            raise CostCapError(
                f"the daily cap of ${self.daily_cap_usd:g} leaves no room for another {self.purpose} by {model.model}"
            )
        try:
            found = model.complete(prompt)
        except CrystalError as error:
            if not (isinstance(error, ModelUnavailableError) and error.may_be_billed):
                release(self.store, ident)
            raise
        used_in = tokens if found.input_tokens is None else found.input_tokens
        used_out = most if found.output_tokens is None else found.output_tokens
        usd = price.usd(used_in, used_out) if found.usd is None else found.usd
        with self.store.transaction():
            settle(self.store, ident, input_tokens=used_in, output_tokens=used_out, usd=usd)
            keep(found)
        return replace(found, usd=usd)


FIRST_WAIT_MS = 60_000
MAX_WAIT_MS = 3_600_000


def retry_at(store: Store, part: str, error: CrystalError, now: int) -> int:
    """Return when a model that failed is asked again; ``part`` is its row in ``problems``.

    After one minute, doubled with each failure up to an hour; over the cap, at the start of the next UTC day.
    """
    if isinstance(error, CostCapError):
        return day_start(now) + DAY_MS
    before = find_problem(store, part)
    return now + rest_ms(error, before.tries + 1 if before else 1, FIRST_WAIT_MS, MAX_WAIT_MS)
