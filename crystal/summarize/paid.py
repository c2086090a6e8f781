"""Call a model under a cap: the price is reserved before the call and corrected after it."""

from __future__ import annotations

from crystal.config.prices import price_of
from crystal.errors import CrystalError, ModelUnavailableError
from crystal.store import Store
from crystal.store.costs import Cost, release, reserve, settle
from crystal.summarize.condense import estimated_tokens
from crystal.summarize.llm import Completion, Prompt, SummaryModel


class CostCapError(CrystalError):
    """The next call would exceed the daily cap."""


def ask_paid(
    store: Store, model: SummaryModel, prompt: Prompt, *, purpose: str, daily_cap_usd: float, now: int
) -> Completion:
    """Reserve the price, call the model, settle. Holds no transaction during the call.

    Args:
        store: The ledger, open for writing, in no transaction.
        model: The model.
        prompt: The prompt.
        purpose: The purpose of the call; each purpose has its own cap.
        daily_cap_usd: Maximum cost of the purpose in a UTC day.
        now: The time, ms.

    Raises:
        CostCapError: The cap is reached; the model was not called.
        CrystalError: Any error of ``complete``.
    """
    estimate = _estimate(model, prompt, purpose, now)
    ident = reserve(store, estimate, daily_cap_usd=daily_cap_usd)
    if ident is None:
        raise CostCapError(f"the daily cap of ${daily_cap_usd:g} leaves no room for another {purpose} by {model.model}")
    try:
        completion = model.complete(prompt)
    except CrystalError as error:
        if not (isinstance(error, ModelUnavailableError) and error.may_be_billed):
            release(store, ident)
        raise
    actual = _actual(estimate, model, completion)
    settle(store, ident, input_tokens=actual.input_tokens, output_tokens=actual.output_tokens, usd=actual.usd)
    return completion


def _estimate(model: SummaryModel, prompt: Prompt, purpose: str, now: int) -> Cost:
    """Estimate the maximum cost of the call: a fifth more than is likely, and the longest answer."""
    tokens = estimated_tokens(prompt.system + prompt.user) * 6 // 5 + 20
    usd = price_of(model.provider, model.model).usd(tokens, model.most_output_tokens)
    return Cost(now, purpose, model.provider, model.model, tokens, model.most_output_tokens, usd)


def _actual(estimate: Cost, model: SummaryModel, completion: Completion) -> Cost:
    """Return the cost by the server's token count, or the estimate if it reports none."""
    used_in = estimate.input_tokens if completion.input_tokens is None else completion.input_tokens
    used_out = estimate.output_tokens if completion.output_tokens is None else completion.output_tokens
    usd = price_of(model.provider, model.model).usd(used_in, used_out)
    return estimate._replace(input_tokens=used_in, output_tokens=used_out, usd=usd)
