"""Search the memory of this machine: the use case behind the command, the API and the MCP tool."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from crystal.app.context import Machine, agreed_model
from crystal.app.mirror import mirror_notes
from crystal.config.providers import EMBEDDING_PROVIDERS, ProviderKind
from crystal.errors import CrystalError, UsageError
from crystal.model.capture import Memory
from crystal.model.quick_dataclass import replace
from crystal.search.request import MemorySource, SearchOptions, SearchRequest
from crystal.store import Store
from crystal.store.health.stats import counts
from crystal.store.search.scope import role_words, roles_named
from crystal.store.search.vectors import serving_generation
from crystal.timewords.parse import end_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from crystal.embedding.embedder import Embedder
    from crystal.embedding.late import TokenComparer
    from crystal.model.recall import Filters
    from crystal.search.deep import Deep


def prepare_search(  # noqa: PLR0913 - what a search needs, by name
    machine: Machine,
    query: str,
    limit: int,
    filters: Filters,
    *,
    recency: str | None = None,
    fusion: str | None = None,
    as_of: int | str | None = None,
    deep: bool = False,
    wordings: Sequence[str] = (),
) -> tuple[tuple[MemorySource, ...], SearchRequest]:
    """Return what ``search`` takes: the memories, and the question with the user's choices and the reference time.

    Args:
        machine: This machine, with the mirror of home's memory if that is to be searched too.
        query: The question.
        limit: How many hits at most.
        filters: What the user narrows the search to.
        recency: ``off``, ``light`` or ``strong``; None for what the settings say.
        fusion: ``weighted``, ``rrf`` or ``similarity``; None for what the settings say.
        as_of: Search the memory as it was then, the whole of a day: ms since the epoch, or words like ``2026-05-01``.
        deep: Whether a model may be asked for other wordings, and for the order of the best hits.
        wordings: Other ways to put the question, searched together with it.

    Raises:
        UsageError: A value that cannot be used.
    """
    own = _source(machine, machine.store, "local")
    now = machine.now()
    if as_of is not None:
        then = end_of(as_of, now=now, name="as-of") if isinstance(as_of, str) else as_of
        end = then if filters.before is None else min(then, filters.before)
        filters, now = replace(filters, before=end), min(now, then - 1)  # the end of a day is the next one
    config = machine.config
    how = SearchOptions(
        recency=recency or config.search_recency,  # type: ignore[arg-type] # SearchOptions refuses other values
        fusion=fusion or config.search_fusion,  # type: ignore[arg-type]
        deep=deep_search(machine, now=now) if deep else None,
        late=lambda: _late(own.embedder),
    )
    request = SearchRequest(query, now, limit, filters, how, tuple(wordings))
    return (own, *map(partial(_mirror_source, machine), machine.stores[1:])), request


def checked_role(role: str | None, name: str = "role") -> str | None:
    """Return the roles of a filter, if it names roles.

    Raises:
        UsageError: It names something else.
    """
    if role is not None and not roles_named(role):
        hint = f"use {role_words()}, or several with commas"
        raise UsageError(f"{name} is {role!r}, which is not a role", hint=hint)
    return role


EMPTY_MEMORY = "Nothing is remembered yet. Use a coding agent for one turn, then search again."


def is_memory_empty(machine: Machine) -> bool:
    """Return True if neither this machine nor the mirror of home has anything to find."""
    known = [counts(store) for store in machine.stores]
    return not any(each["turns"] or each["memories"] or each["chunks"] for each in known)


def unreadable_mirror_notes(machine: Machine) -> tuple[str, ...]:
    """Return what to say of a mirror that is expected and cannot be read."""
    if machine.mirror is None or machine.mirror.store is not None:
        return ()
    return mirror_notes(machine.mirror, machine.now())


def _source(machine: Machine, store: Store, memory: Memory, notes: tuple[str, ...] = ()) -> MemorySource:
    try:
        embedder = machine.asking_embedder() if memory == "local" else machine.asking_embedder(store)
    except CrystalError as error:
        return MemorySource(store, memory, None, error.message, notes)
    return MemorySource(store, memory, embedder, notes=notes)


def _mirror_source(machine: Machine, store: Store) -> MemorySource:
    """Return the mirror as a source for search, without an embedder if its vectors come from another model."""
    source = _source(machine, store, "mirror", mirror_notes(machine.mirror, machine.now()))
    embedder, serving = source.embedder, serving_generation(store)
    if embedder is None or serving is None:
        return source
    if (embedder.provider, embedder.model, embedder.dimension) == (serving.provider, serving.model, serving.dimension):
        return source
    theirs = f"{serving.provider} {serving.model}"
    why_not = f"its vectors come from {theirs}, and this machine does not use that model"
    return replace(source, embedder=None, without_embedder=why_not)


def deep_search(machine: Machine, *, now: int) -> Deep:
    """Return what ``--deep`` uses. If no model may be asked, it holds the reason and the search continues without."""
    from crystal.app.model_texts import sending_rule  # noqa: PLC0415 - only --deep sends texts
    from crystal.llm.choose import MissingModel  # noqa: PLC0415 - brings httpx, 0.1 s: only --deep asks a model
    from crystal.search.deep import ChatAsker, Deep  # noqa: PLC0415 - the same

    config = machine.config
    if config.deep_provider == "none":
        return Deep(None, now, ["deep search is not set up; run: crystal config set deep.provider ollama"])
    model = agreed_model(config, "deep")
    if isinstance(model, MissingModel):
        return Deep(None, now, [model.problem.message])

    cap, ledger = config.deep_daily_cap_usd, lambda: Store.open(config.places.db)
    rule = sending_rule(machine, "deep")
    return Deep(
        lambda seconds: ChatAsker(model, ledger, cap, now, seconds),
        now,
        may_send=lambda chunks, store: rule.sendable(chunks, store=store),
    )


def _late(embedder: Embedder | None) -> TokenComparer:
    """Return the model that compares token by token: the embedded table, or a transformer if one is used."""
    from crystal.embedding.chosen_embedder import ChosenEmbedder  # noqa: PLC0415 - NumPy, 0.1 s: only where vectors rank
    from crystal.embedding.late import TokenComparer  # noqa: PLC0415 - the same
    from crystal.embedding.static import static_model  # noqa: PLC0415 - the same

    provider = None if embedder is None else EMBEDDING_PROVIDERS.get(embedder.provider)
    is_installed = provider is not None and provider.kind is ProviderKind.INSTALLED
    if is_installed and isinstance(embedder, ChosenEmbedder) and embedder.has_token_vectors:
        return TokenComparer(static_model(), embedder)
    return TokenComparer(static_model())
