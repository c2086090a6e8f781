"""Deep search on this machine: the model that the settings choose, and whether it may be shown anything."""

from __future__ import annotations

from crystal.app.context import api_key
from crystal.config.table import Config
from crystal.errors import CrystalError
from crystal.search.deep import Asker, ChatAsker, Deep
from crystal.store import Store
from crystal.summarize.models import choose_model, stays_here


def deep_search(config: Config, *, now: int) -> Deep:
    """Return what ``--deep`` uses. If no model may be asked, it holds the reason and the search continues without."""
    provider, base_url = config.deep_provider, config.deep_base_url
    if provider == "none":
        return Deep(None, now, ["deep search is not set up; run: crystal config set deep.provider ollama"])
    if not config.deep_consent and not stays_here(provider, base_url):
        return Deep(None, now, [f"{provider} may not be shown passages; run: crystal config set deep.consent true"])
    try:
        key = api_key(config, provider)
    except CrystalError as error:
        return Deep(None, now, [error.message])
    model = choose_model("llm", provider, model=config.deep_model, base_url=base_url, key=key, consent=True)
    if model is None:
        return Deep(None, now, ["deep search is not set up"])

    def asker(seconds: float) -> Asker:
        return ChatAsker(model, lambda: Store.open(config.places.db), config.deep_daily_cap_usd, now, seconds)

    return Deep(asker, now)
