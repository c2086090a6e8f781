"""List the prices of paid models, in US dollars, with a rule for models that are not in the table.

Prices are list prices per million tokens, without discounts for cached or batched input, so that an estimate errs
upwards. Prices change; the ledger keeps what was computed at the time of the call.

Source: the providers' public price lists, as of November 2026.
"""

import re
from types import MappingProxyType

from crystal.config.providers import EMBEDDING_PROVIDERS, PROGRAMS, needs_key
from crystal.model.named_tuple import NamedTuple


class Price(NamedTuple):
    """US dollars per million tokens."""

    input: float
    output: float = 0.0

    def usd(self, input_tokens: int, output_tokens: int = 0) -> float:
        """Return the price of one call in US dollars."""
        return (input_tokens * self.input + output_tokens * self.output) / 1_000_000


FREE = Price(0.0)
UNKNOWN = Price(5.0, 20.0)
"""Price of a model that is not in the table: higher than any small model's, so that the daily cap holds."""

PRICES = MappingProxyType(
    {
        "gpt-4o-mini": Price(0.15, 0.60),
        "gpt-4o": Price(2.50, 10.00),
        "gpt-4.1": Price(2.00, 8.00),
        "gpt-4.1-mini": Price(0.40, 1.60),
        "gpt-4.1-nano": Price(0.10, 0.40),
        "gpt-5": Price(1.25, 10.00),
        "gpt-5-mini": Price(0.25, 2.00),
        "gpt-5-nano": Price(0.05, 0.40),
        "gpt-5.4": Price(2.50, 15.00),
        "gpt-5.4-mini": Price(0.75, 4.50),
        "gpt-5.4-nano": Price(0.20, 1.25),
        "o3-mini": Price(1.10, 4.40),
        "o4-mini": Price(1.10, 4.40),
        "gemini-2.0-flash": Price(0.10, 0.40),
        "gemini-2.5-flash": Price(0.30, 2.50),
        "gemini-2.5-flash-lite": Price(0.10, 0.40),
        **{model: Price(usd) for row in EMBEDDING_PROVIDERS.values() for model, usd in row.usd_per_million.items()},
    }
)
"""Prices by model name, without a date at its end: models that write, and embedding models of the registry."""

_DATED = r"[-@](?:20\d\d-\d\d-\d\d|20\d{6}|latest)$"


def price_of(provider: str, model: str) -> Price:
    """Return the price of a model; ``UNKNOWN``, never zero, if the table lacks it.

    A provider's prefix (``models/``, ``openai/``) and a date at the end of the name are ignored.
    """
    if not needs_key(provider) and provider not in PROGRAMS:
        return FREE
    name = model.strip().lower().rpartition("/")[2]
    return PRICES.get(name) or PRICES.get(re.sub(_DATED, "", name)) or UNKNOWN
