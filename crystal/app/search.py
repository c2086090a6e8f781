"""Search the memory of this machine: the use case behind the command, the API and the MCP tool."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from crystal.app.context import Machine
from crystal.app.mirror import Mirrored, mirror_notes
from crystal.config.providers import EMBEDDING_PROVIDERS, Kind
from crystal.errors import CrystalError
from crystal.search.engine import How, MemorySource
from crystal.store.search.vectors import serving_generation
from crystal.timewords.parse import end_of

if TYPE_CHECKING:
    from crystal.embedding import Embedder
    from crystal.model.recall import Filters
    from crystal.search.ranking.late import LateModel

NO_EMBEDDER = "no embedding model is configured"


def asking(
    machine: Machine,
    mirrored: Mirrored | None,
    filters: Filters,
    *,
    recency: str | None = None,
    fusion: str | None = None,
    as_of: int | str | None = None,
    deep: bool = False,
) -> dict[str, Any]:
    """Return the named arguments of ``search`` except the number of hits: sources, filters, reference time.

    Args:
        machine: This machine.
        mirrored: The mirror of home's memory, if there is one.
        filters: What the user narrows the search to.
        recency: ``off``, ``light`` or ``strong``; None for what the settings say.
        fusion: ``weighted``, ``rrf`` or ``similarity``; None for what the settings say.
        as_of: Search the memory as it was then, the whole of a day: ms since the epoch, or words like ``2026-05-01``.
        deep: Whether a model may be asked for other wordings, and for the order of the best hits.

    Raises:
        UsageProblem: A value that cannot be used.
    """
    embedder, why_not = None, NO_EMBEDDER
    try:
        embedder = machine.asking_embedder()
    except CrystalError as error:
        why_not = error.message
    now = machine.now()
    if as_of is not None:
        then = end_of(as_of, now=now, name="as-of") if isinstance(as_of, str) else as_of
        end = then if filters.before is None else min(then, filters.before)
        filters, now = replace(filters, before=end), min(now, then - 1)  # the end of a day is the next one
    config = machine.config
    how = How(
        recency=recency or config.search_recency,  # type: ignore[arg-type] # How refuses what is no choice
        fusion=fusion or config.search_fusion,  # type: ignore[arg-type]
        deep=_deep(machine, now) if deep else None,
        late=lambda: _late(embedder),
    )
    return {
        "embedder": embedder, "filters": filters, "now": now, "without_embedder": why_not,
        "mirror": _mirror_side(machine, mirrored), "how": how,
    }  # fmt: skip


def _mirror_side(machine: Machine, mirrored: Mirrored | None) -> MemorySource | None:
    """Return the mirror as a source for search; None if there is none that can be read."""
    if mirrored is None or mirrored.store is None:
        return None

    embedder, why_not = None, "no embedding model is configured"
    try:
        embedder = machine.asking_embedder(mirrored.store)
    except CrystalError as error:
        why_not = error.message
    serving = serving_generation(mirrored.store)
    if embedder is not None and serving is not None:
        asked = (embedder.provider, embedder.model, embedder.dimension)
        if asked != (serving.provider, serving.model, serving.dimension):
            theirs = f"{serving.provider} {serving.model}"
            embedder, why_not = None, f"its vectors come from {theirs}, which this machine is not set up to ask"
    return MemorySource(mirrored.store, "mirror", embedder, why_not, mirror_notes(mirrored, machine.now()))


def _deep(machine: Machine, now: int) -> Any:
    from crystal.app.deep_search import deep_search  # noqa: PLC0415 - brings httpx, 0.1 s: only --deep asks a model

    return deep_search(machine.config, now=now)


def _late(embedder: Embedder | None) -> LateModel:
    """Return the model that compares token by token: the embedded table, or a transformer if one is used."""
    from crystal.embedding.choice import ChosenEmbedder  # noqa: PLC0415 - NumPy, 0.1 s: only where vectors rank
    from crystal.embedding.late import StaticLate, TransformerLate  # noqa: PLC0415 - the same
    from crystal.embedding.static import static_model  # noqa: PLC0415 - the same

    provider = None if embedder is None else EMBEDDING_PROVIDERS.get(embedder.provider)
    is_installed = provider is not None and provider.kind is Kind.INSTALLED
    if is_installed and isinstance(embedder, ChosenEmbedder) and embedder.has_token_vectors:
        return TransformerLate(embedder, static_model())
    return StaticLate(static_model())
