"""Models on this machine: what there is, which is used, changing it, trying one on the memory, filling its vectors."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from crystal.app.context import Machine, api_key, embedder_for, open_machine, open_reader, this_config
from crystal.app.maintenance import index
from crystal.app.model_texts import SendingRule, rule_for, sending_rule
from crystal.app.search import prepare_search
from crystal.capture.lock import ENRICH_LOCK, try_lock
from crystal.config.edit import set_values
from crystal.config.prices import price_of
from crystal.config.providers import EMBEDDING_PROVIDERS, NO_PROVIDER, ProviderKind, needs_key, runs_here
from crystal.config.table import Config
from crystal.embedding.chosen_embedder import make_embedder
from crystal.embedding.embedded import DATA
from crystal.embedding.embedder import Embedder
from crystal.embedding.local.known_models import KNOWN
from crystal.embedding.local.manifest import ModelManifest, checked_name, installed_models, read_manifest
from crystal.embedding.pending import EmbedReport, embed_pending
from crystal.errors import CrystalError, DamagedError, NotConfiguredError, NotFoundError, UnavailableError, UsageError
from crystal.model.recall import Filters
from crystal.store.costs import Cost, add_cost
from crystal.store.health import stats
from crystal.store.problems import clear_problem
from crystal.store.search import vectors
from crystal.store.search.trials import sample_turns
from crystal.store.search.vectors import Generation, serving_generation

if TYPE_CHECKING:
    from crystal.evaluate.trial import Size, Trial


@dataclass(frozen=True, slots=True)
class ModelRow:
    """A model in the list.

    Attributes:
        name: What ``crystal models use`` takes.
        state: ``serving``, ``filling``, ``chosen`` (and not begun), ``installed``, ``available`` or ``damaged``.
        about: What it is, in a line; what is wrong, of a damaged one.
        dimension: Numbers in a vector, None where that is not known here.
        size: Bytes on disk, or that would be fetched (about); 0 for what is not on this machine.
        weights: ``int8``, ``float32`` or ``as given``; empty where that says nothing.
        licence: Of the model.
        origin: Where it came from; empty for what is not installed.
        verified: What its files were compared with.
        chosen: Whether the settings choose it.
        done: Chunks that have its vector.
        chunks: Chunks that shall have one, 0 where none do.
    """

    name: str
    state: str
    about: str
    dimension: int | None = None
    size: int = 0
    weights: str = ""
    licence: str = ""
    origin: str = ""
    verified: str = ""
    chosen: bool = False
    done: int = 0
    chunks: int = 0


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """A model as an argument of ``crystal models use``: a provider, and its name there (None: the default)."""

    provider: str
    model: str | None

    @property
    def name(self) -> str:
        """Return the name as the user writes it."""
        if self.provider == "local":
            return str(self.model)
        return self.provider if self.model is None else f"{self.provider}:{self.model}"

    def embedder(self) -> Embedder | None:
        """Return its embedder, with the settings that apply once it is chosen; None for ``none``.

        Raises:
            NotConfiguredError: Something that it needs is missing.
        """
        config = this_config()
        if self.provider == "none":
            return None
        return embedder_for(config, self.provider, self.model, None, self._base_url(config))

    def check_key(self) -> None:
        """Check that its provider has a key, if it needs one.

        Raises:
            NotConfiguredError: It has none.
        """
        config = this_config()
        if not needs_key(self.provider) or self._base_url(config) is not None:
            return
        if api_key(config, self.provider) is None:
            raise NotConfiguredError(
                f"there is no API key for {self.provider}", hint="docs/reference/configuration.md, API keys"
            )

    def leaves_the_machine(self) -> str | None:
        """Return, in words, the address that texts are sent to once it is chosen; None if they stay here."""
        if not _is_remote(self.provider):
            return None
        from crystal.provider_http.post import stays_here  # noqa: PLC0415 - brings httpx, 0.1 s

        url = self._base_url(this_config())
        if stays_here(self.provider, url, self.model):
            return None
        return f"{self.provider} at {url}" if url else self.provider

    def _base_url(self, config: Config) -> str | None:
        """Return the address that applies once it is chosen; None for the provider's own."""
        is_same, source = self.provider == config.embedding_provider, config.origin("embedding.base_url")
        return config.embedding_base_url if is_same or source.startswith("environment") else None

    def choose(self) -> tuple[str, ...]:
        """Write it into the settings file; return the variables that override the file, so that this has no effect.

        The other settings of the present provider (its dimension, its address) go with it.
        """
        config = this_config()
        values: dict[str, object] = {"embedding.provider": self.provider, "embedding.model": self.model}
        if self.provider != config.embedding_provider:
            values["embedding.base_url"] = None
        values["embedding.dimension"] = None
        set_values(config.places.config_file, values)
        now = this_config()
        return tuple(
            now.origin(key).removeprefix("environment ")
            for key in ("embedding.provider", "embedding.model", "embedding.dimension")
            if now.origin(key).startswith("environment")
        )

    def waiting_for(self, machine: Machine) -> int:
        """Return how many chunks will need a new vector when it is chosen."""
        embedder = self.embedder()
        if embedder is None:
            return 0
        found = vectors.find_generation(machine.store, embedder.provider, embedder.model, embedder.dimension)
        known = vectors.generations(machine.store)
        if found is None or not (found.serving or found == known[-1]):
            return stats.counts(machine.store)["chunks"]
        return vectors.count_pending(machine.store, found.id)

    def try_on_memory(self, size: Size, progress: Callable[[int, int], None]) -> Trial:
        """Compare it with the model that serves, on a sample of the memory; nothing of the memory is changed.

        Raises:
            UsageError: There is no model to try.
        """
        from crystal.evaluate.questions import MIN_CHARACTERS  # noqa: PLC0415 - the same
        from crystal.evaluate.trial import try_model  # noqa: PLC0415 - brings the search: only a trial needs it

        new = self.embedder()
        if new is None:
            raise UsageError("without a model there is nothing to try", hint="crystal models list")
        with open_reader() as machine, tempfile.TemporaryDirectory(prefix="crystal-trial-") as scratch:
            present, why_not = None, "no model serves yet"
            try:
                if serving_generation(machine.store) is not None:
                    present = machine.asking_embedder()
            except CrystalError as error:
                why_not = error.message
            url, now = self._base_url(machine.config), machine.config.embedding_base_url
            asked = [(new, url)] if present is None else [(new, url), (present, now)]
            is_here = all(rule_for(machine, one.provider, where, one.model).is_here for one, where in asked)
            rule = SendingRule(machine, is_here)
            sample = rule.sendable_sample(sample_turns(machine.store, size.turns, least=MIN_CHARACTERS))
            try:
                return try_model(
                    machine.store,
                    None if present is None else rule.guard(present, sample),
                    rule.guard(new, sample),
                    sample=sample,
                    scratch=Path(scratch),
                    size=size,
                    now=machine.now(),
                    why_no_present=why_not,
                    progress=progress,
                    how=prepare_search(machine, "", 1, Filters())[1].how,
                )
            finally:
                book_tokens([one for one in (present, new) if one is not None])


# ------------------------------------------------------------------------------------------------------------- list


@dataclass(frozen=True, slots=True)
class _Filled:
    """Number of chunks, and by provider and model each generation with the number of its vectors."""

    chunks: int = 0
    generations: Mapping[tuple[str, str], tuple[Generation, int]] = field(default_factory=dict)


def list_models() -> list[ModelRow]:
    """Return every model: the embedded one, installed and installable ones, and the provider in use if another."""
    config = this_config()
    size = sum(one.stat().st_size for one in DATA.iterdir() if one.is_file())
    model, dimension = next(iter(EMBEDDING_PROVIDERS["embedded"].dimensions.items()))
    about = "part of crystal; English; very fast"
    embedded = ModelRow("embedded", "installed", about, dimension, size, "int8", "Apache-2.0")
    filled = _filled()
    rows = [_with_progress(config, filled, embedded, "embedded", model)]
    for found in installed_models(config.places.models):
        if isinstance(found, DamagedError):
            name = found.message.removeprefix("the model ").partition(" ")[0]
            chosen = config.embedding_provider == "local" and config.embedding_model in (name, None)
            rows.append(ModelRow(name, "damaged", found.message, chosen=chosen))
        else:
            rows.append(_with_progress(config, filled, _row_of(found), "local", found.full_name))
    names = {row.name for row in rows}
    rows += [
        ModelRow(one.name, "available", one.about, one.dimension, one.megabytes * 1_000_000, licence=one.licence)
        for one in KNOWN.values()
        if one.name not in names
    ]
    if _is_remote(config.embedding_provider):
        rows.append(_row_of_provider(config, filled))
    return rows


def _row_of(found: ModelManifest) -> ModelRow:
    known = KNOWN.get(found.name)
    about = known.about if known else f"at most {found.most_tokens} tokens of a text"
    files = found.dimension, found.size, found.weights, found.licence, found.origin, found.verified
    return ModelRow(found.name, "installed", about, *files)


def _row_of_provider(config: Config, filled: _Filled) -> ModelRow:
    provider = config.embedding_provider
    try:
        chosen = make_embedder(provider, config.embedding_model, config.embedding_dimension)
    except CrystalError as error:
        return ModelRow(provider, "damaged", error.message, chosen=True)
    row = ModelRow(f"{provider}:{chosen.model}", "installed", "not on this machine", chosen.dimension)
    return _with_progress(config, filled, row, provider, chosen.model)


def _with_progress(config: Config, filled: _Filled, row: ModelRow, provider: str, model: str) -> ModelRow:
    """Return a row completed with what the store and the settings say of the model."""
    row_of_provider = EMBEDDING_PROVIDERS.get(config.embedding_provider)
    named = config.embedding_model or (row_of_provider and row_of_provider.default_model)
    is_chosen = config.embedding_provider == provider and named in (model, model.partition("@")[0])
    generation, done = filled.generations.get((provider, model), (None, 0))
    chunks = filled.chunks
    if generation is not None and (generation.serving or is_chosen):
        state = "serving" if generation.serving else "filling"
        return replace(row, state=state, chosen=is_chosen, done=done, chunks=chunks)
    return replace(row, state="chosen" if is_chosen else row.state, chosen=is_chosen, chunks=chunks if is_chosen else 0)


def _filled() -> _Filled:
    """Return how many vectors the memory has; zeros if there is no memory."""
    try:
        with open_reader() as machine, machine.store.reading():
            store = machine.store
            chunks = stats.counts(store)["chunks"]
            generations: dict[tuple[str, str], tuple[Generation, int]] = {}
            for one in vectors.generations(store):
                generations.setdefault((one.provider, one.model), (one, chunks - vectors.count_pending(store, one.id)))
            return _Filled(chunks, generations)
    except NotConfiguredError:
        return _Filled()


# -------------------------------------------------------------------------------------------------------------- use


def target_of(name: str) -> ModelChoice:
    """Parse a name: ``embedded``, ``none``, an installed model, or ``PROVIDER`` or ``PROVIDER:MODEL``.

    Raises:
        NotConfiguredError: It is none of these, but could be installed.
        UsageError: It is nothing that crystal knows.
    """
    provider, colon, model = name.partition(":")
    if name in ("embedded", NO_PROVIDER):
        return ModelChoice(name, None)
    if _is_remote(provider) and bool(colon) == bool(model):
        return ModelChoice(provider, model or None)
    try:
        return ModelChoice("local", read_manifest(this_config().places.models, checked_name(name)).name)
    except NotConfiguredError as error:
        if name in KNOWN:
            raise
        known = ", ".join(filter(_is_remote, EMBEDDING_PROVIDERS))
        hint = f"crystal models list; or a provider ({known}), or PROVIDER:MODEL"
        raise NotFoundError(f"there is no model {name!r}", hint=hint) from error


def _is_remote(provider: str) -> bool:
    """Return True for a provider that is asked over HTTP."""
    return provider in EMBEDDING_PROVIDERS and not runs_here(provider)


def in_use(name: str) -> str | None:
    """Return why an installed model is needed, in words, or None."""
    config = this_config()
    row = EMBEDDING_PROVIDERS.get(config.embedding_provider)
    chosen = config.embedding_model or (row.default_model if row else "")
    if row is not None and row.kind is ProviderKind.INSTALLED and chosen.partition("@")[0] == name:
        return "the settings choose it"
    try:
        with open_reader() as machine:
            for one in vectors.generations(machine.store):
                if one.provider == "local" and one.model.partition("@")[0] == name and one.serving:
                    return "its vectors serve until another model's are complete"
    except NotConfiguredError:
        pass
    return None


# ------------------------------------------------------------------------------------------------- filling and trying


def fill_now(machine: Machine, progress: Callable[[int], None], *, seconds: float) -> EmbedReport | None:
    """Embed all pending chunks with the chosen model. Return None if another process does, or none is chosen."""
    clear_problem(machine.store, "embedding")  # a retry is delayed after a failure; the user asks for it now
    embedder = machine.embedder()
    with try_lock(machine.places.data_dir / ENRICH_LOCK) as held:
        if not held or embedder is None:
            return None
        rule = sending_rule(machine, "embedding")
        rule.release()
        report = embed_pending(
            machine.store,
            embedder,
            now=machine.now,
            budget_seconds=seconds,
            batch=32,
            progress=progress,
            may_send=rule.sendable,
        )
        with contextlib.suppress(UnavailableError):  # the index is derived: the next run brings it up to date
            index(machine.store, machine.now(), time.monotonic() + seconds)
        return report


def book_tokens(embedders: Sequence[Embedder]) -> None:
    """Record what a test of search was charged."""
    for one in embedders:
        if tokens := one.take_tokens():
            with open_machine() as machine:
                usd = price_of(one.provider, one.model).usd(tokens)
                add_cost(machine.store, Cost(machine.now(), "embedding", one.provider, one.model, tokens, 0, usd))
