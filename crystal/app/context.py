"""This machine: its settings, its open store, its clock, and the models and keys that the settings choose."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from crystal.app.mirror import OpenMirror, open_mirror
from crystal.app.open_store import refuse_links, refuse_lost
from crystal.capture.safe_open import Folders, escape_pattern
from crystal.config.harnesses import reader_versions, usual_roots
from crystal.config.load import load_config
from crystal.config.paths import MEMORY_RECORD, Places, make_private_dir, resolve_places
from crystal.config.providers import needs_key, runs_here
from crystal.config.table import Config
from crystal.embedding.chosen_embedder import make_embedder
from crystal.embedding.embedder import Embedder
from crystal.errors import CrystalError, NotConfiguredError, StoreDamagedError
from crystal.model.capture import Memory
from crystal.store import Store
from crystal.store.capture.privacy import store_key
from crystal.store.notes import MEMORY_RECORD_SIZE, READERS, read_note, write_note
from crystal.store.private_record import RECORD_FILE
from crystal.store.search.vectors import serving_generation

if TYPE_CHECKING:
    from crystal.llm.ask import LanguageModel, PaidModel
    from crystal.model.granted import GrantedProject
    from crystal.redact import Redactor


def now_ms() -> int:
    """Return the current time, ms since the epoch, UTC."""
    return time.time_ns() // 1_000_000


def this_home() -> Path:
    """Return the user's home folder."""
    return Path.home()


def current_folder() -> str | None:
    """Return the current folder, None if it is gone."""
    with contextlib.suppress(OSError):
        return os.getcwd()  # noqa: PTH109 - a name is wanted
    return None


def default_paths() -> Places:
    """Return where crystal's files are on this machine; cheap."""
    return resolve_places(os.environ, this_home())


def this_config(overrides: Mapping[str, object] | None = None) -> Config:
    """Return the settings in effect on this machine."""
    return load_config(os.environ, this_home(), overrides=overrides or {})


def api_key(config: Config, provider: str) -> str | None:
    """Return the API key of a provider, or None; always None for a provider that runs on this machine.

    Raises:
        NotConfiguredError: A place that the user has set up for keys fails.
    """
    from crystal.credentials.api_keys import key_for  # noqa: PLC0415 - only where a provider is asked

    if not needs_key(provider):
        return None
    found = key_for(config, provider, os.environ)
    return None if found is None else found.reveal()


def embedder_for(
    config: Config, provider: str, model: str | None, dimension: int | None, base_url: str | None
) -> Embedder:
    """Return the embedder of a model; its key is fetched, and its parts are loaded, when it is first used."""
    return make_embedder(
        provider,
        model,
        dimension,
        base_url,
        lambda: api_key(config, provider),
        models=config.places.models,
        threads=config.embedding_threads,
    )


def chosen_model(config: Config, table: str, mode: str = "llm") -> LanguageModel | None:
    """Return the model that a table of settings names; None if ``mode`` asks none, see ``choose_model``."""
    from crystal.llm.choose import MissingModel, choose_model  # noqa: PLC0415 - brings httpx, 0.1 s

    names = ("provider", "model", "base_url", "consent")
    provider, model, url, consent = (config.value(f"{table}.{name}") for name in names)
    try:
        key = api_key(config, provider)
    except CrystalError as error:
        return MissingModel(error)
    return choose_model(mode, provider, model=model, base_url=url, key=key, consent=consent, environ=os.environ)


def agreed_model(config: Config, table: str) -> LanguageModel:
    """Return the model that a table of settings names, for text that leaves the machine only with consent.

    If it may not be asked, the model returned raises the reason when called.
    """
    from crystal.llm.choose import MissingModel  # noqa: PLC0415 - the same
    from crystal.provider_http.post import stays_here  # noqa: PLC0415 - the same

    provider, model, url = (config.value(f"{table}.{name}") for name in ("provider", "model", "base_url"))
    if not config.value(f"{table}.consent") and not stays_here(provider, url, model):
        command = f"crystal config set {table}.consent true"
        return MissingModel(NotConfiguredError(f"{provider} may not receive your text yet; run: {command}"))
    found = chosen_model(config, table)
    return found or MissingModel(NotConfiguredError("no model is chosen"))


class Machine:
    """Settings, open store and mirror of this machine. The caller closes them."""

    def __init__(self, config: Config, store: Store, mirror: OpenMirror | None = None) -> None:
        self.config, self.store, self.mirror = config, store, mirror
        store.before_commit = self._record_changes  # copies changed memories of this store to the record

    def with_mirror(self, mirror: OpenMirror | None) -> Machine:
        """Return the same with another mirror."""
        return Machine(self.config, self.store, mirror)

    @property
    def places(self) -> Places:
        """Return where crystal's files are."""
        return self.config.places

    @property
    def mirror_store(self) -> Store | None:
        """Return the store of the mirror, or None if no mirror can be read."""
        return None if self.mirror is None else self.mirror.store

    @property
    def stores(self) -> list[Store]:
        """Return this machine's own store, and the mirror's if it exists and can be read."""
        mirror = self.mirror_store
        return [self.store] if mirror is None else [self.store, mirror]

    def memory_of(self, store: Store) -> Memory:
        """Return which memory one of ``stores`` holds."""
        return "local" if store is self.store else "mirror"

    def now(self) -> int:
        """Return the current time, ms since the epoch, UTC."""
        return now_ms()

    def agent_folder(self) -> Path:
        """Return the folder of this machine's agent."""
        return self.places.agent_folder(self.config.agent_id)

    def memory_record(self) -> Path:
        """Return the path of the memory record, see crystal/memories."""
        return self.agent_folder() / MEMORY_RECORD

    def _record_changes(self) -> None:
        """Append to the record, within the same transaction, the memories that the transaction changed."""
        if self.store.changed_memories or self.store.deleted_memories:
            from crystal.memories.reconcile import record_changes  # noqa: PLC0415 - only where a memory has changed

            record_changes(self.store, self.memory_record())

    def settle_memories(self) -> None:
        """Reconcile record and database if the record's size shows that they differ."""
        path = self.memory_record()
        size = str(path.stat().st_size) if path.exists() else None
        if size is not None and read_note(self.store, MEMORY_RECORD_SIZE) == size:
            return
        from crystal.store.health.stats import newest_memory  # noqa: PLC0415 - most commands change none

        if size is not None or newest_memory(self.store):
            from crystal.memories.reconcile import reconcile  # noqa: PLC0415 - the same

            reconcile(self.store, path)

    def embedder(self) -> Embedder | None:
        """Return the embedder that the settings choose, or None. It loads its parts when first used.

        Raises:
            NotConfiguredError: The chosen provider lacks something, such as a key.
        """
        config = self.config
        provider, base_url = config.embedding_provider, config.embedding_base_url
        if provider == "none":
            return None
        return embedder_for(config, provider, config.embedding_model, config.embedding_dimension, base_url)

    def asking_embedder(self, store: Store | None = None) -> Embedder | None:
        """Return the embedder for questions: that of the serving vectors, also while another model is being filled.

        ``store`` is the one that is asked, None for this machine's own.

        A question is never sent to a network provider that the settings no longer name: the user may not want it, and
        its former address is not known. Until the new vectors are complete, only keywords are searched then.

        Raises:
            NotConfiguredError: As for ``embedder``.
        """
        serving = serving_generation(store or self.store)
        is_local = serving is not None and runs_here(serving.provider)
        try:
            chosen = self.embedder()
        except CrystalError:  # what is chosen cannot be asked; the vectors that are there may be
            if serving is None or not is_local:
                raise
        else:
            if chosen is None or serving is None or not (is_local or chosen.provider == serving.provider):
                return chosen
            if (chosen.provider, chosen.model) == (serving.provider, serving.model) and (
                chosen.dimension == serving.dimension
            ):
                return chosen
        base_url = self.config.embedding_base_url
        return embedder_for(self.config, serving.provider, serving.model, serving.dimension, base_url)

    def summary_model(self) -> PaidModel | None:
        """Return the summary model that the settings choose, with its cap; None for simple summaries.

        If its key cannot be fetched, the model returned raises that error when called.
        """
        config = self.config
        if config.summary_mode == "simple" or (config.summary_mode == "auto" and not config.summary_consent):
            return None
        from crystal.llm.ask import PaidModel  # noqa: PLC0415 - where a model writes

        is_asked = config.summary_mode == "llm"
        model = agreed_model(config, "summary") if is_asked else chosen_model(config, "summary", config.summary_mode)
        return None if model is None else PaidModel(self.store, model, "summary", config.summary_daily_cap_usd)

    def redaction_key(self) -> bytes:
        """Return the key of the hashes that stand for secrets in this store."""
        return hashlib.blake2b(b"redaction", key=store_key(self.store)).digest()

    def redactor(self, *, keeps_lines: bool = False) -> Redactor:
        """Return the redactor that removes secrets and private spans from text, as the settings say."""
        from crystal.redact import Redactor  # noqa: PLC0415 - compiles its rules: who stores no new text needs none

        return Redactor(self.redaction_key(), secrets=self.config.redact_enabled, keeps_lines=keeps_lines)

    @property
    def transcript_folders(self) -> Folders:
        """Return the folders to read transcripts from: the agents' own, and those that the settings allow."""
        own = [root.folder for root in usual_roots(this_home()) if not root.place.in_projects]
        usual = [escape_pattern(str(folder)) for folder in own]
        return Folders(self.places.transcript_roots, (*self.config.capture_transcript_folders, *usual))


def open_store(places: Places) -> Store:
    """Open this machine's store for writing, and follow what becomes private in it; make it if there never was one.

    Raises:
        StoreLostError: It is gone, and can be made again.
    """
    refuse_links(places)
    refuse_lost(places)
    make_private_dir(places.data_dir)
    is_new = not places.db.exists()
    store = Store.open(places.db, places.ldm_home / RECORD_FILE)
    if is_new:  # an older store without this note was read by the first readers
        write_note(store, READERS, json.dumps(reader_versions()))
    return store


@contextlib.contextmanager
def open_machine(overrides: Mapping[str, object] | None = None) -> Iterator[Machine]:
    """Open this machine's memory for writing; make it if it does not exist."""
    config = this_config(overrides)
    with open_store(config.places) as store:
        machine = Machine(config, store)
        with contextlib.suppress(CrystalError):  # a command that changes a memory raises it
            machine.settle_memories()
        yield machine


@contextlib.contextmanager
def open_kept_machine() -> Iterator[Machine]:
    """Open this machine's memory for writing, if there is one.

    Raises:
        NotConfiguredError: It does not exist. Nothing is made.
    """
    places = default_paths()
    refuse_lost(places)
    if not places.db.exists():
        raise NotConfiguredError(f"there is no memory at {places.db} yet", hint="run: crystal init")
    config = this_config()
    with open_store(config.places) as store:
        yield Machine(config, store)


@contextlib.contextmanager
def open_writer() -> Iterator[Machine]:
    """Open this machine's existing memory for writing.

    Raises:
        NotConfiguredError, StoreLostError: As ``open_reader``. Nothing is created.
    """
    with open_reader():
        pass
    with open_machine() as machine:
        yield machine


@contextlib.contextmanager
def open_reader(overrides: Mapping[str, object] | None = None) -> Iterator[Machine]:
    """Open this machine's memory for reading, and the mirror of home's if there is one.

    Raises:
        NotConfiguredError: There is none yet.
        StoreLostError: It is gone, and can be made again.
    """
    config = this_config(overrides)
    refuse_lost(config.places)
    with Store.open_existing(config.places.db) as store, open_mirror(config.places, config.role) as mirror:
        yield Machine(config, store, mirror)


@contextlib.contextmanager
def open_reader_for(
    agent: str | None,
    folder: str | None,
    overrides: Mapping[str, object] | None = None,
    projects: Sequence[GrantedProject] | None = None,
) -> Iterator[Machine]:
    """Open this machine's memory as ``open_reader`` does, without what is isolated from an agent that asks.

    Args:
        agent: Its name in crystal/config/harnesses.py; None, or another name, is an agent that is not known.
        folder: Where it works, None if that is not known.
        overrides: As for ``open_reader``.
        projects: The projects that it may see, and nothing else; None if it may see all.
    """
    from crystal.store.hidden import Hidden  # noqa: PLC0415 - not for each turn: an agent that asks alone
    from crystal.store.isolation import hide  # noqa: PLC0415 - the same
    from crystal.store.search.isolated import granted_folders, isolated_projects  # noqa: PLC0415 - the same

    with open_reader(overrides) as machine:
        agents, patterns = machine.config.hidden_from(agent), machine.config.isolated_projects
        isolated = isolated_projects(machine.stores, patterns)
        here = isolated.at(folder)
        others = frozenset(cwd for cwd, found in isolated.folders.items() if found != here) if patterns else None
        for store in machine.stores:
            only = None if projects is None else granted_folders(store, projects)
            hide(store, Hidden(agents, others, only) if agents or patterns or only is not None else None)
        yield machine


def damage_here() -> CrystalError | None:
    """Return what is wrong with this machine's database, or None. Called to explain another error."""
    from crystal.store.health.checks import damage  # noqa: PLC0415 - after an error alone

    places = default_paths()
    try:
        found = damage(places.db) if places.db.exists() else None
    except CrystalError as error:
        return error
    if found is None:
        return None
    return StoreDamagedError(f"{places.db} is damaged: {found}", hint="run: crystal verify --repair")


@contextlib.contextmanager
def damage_explained() -> Iterator[None]:
    """Raise what is wrong with the database instead of an unexpected error that it caused."""
    try:
        yield
    except CrystalError:
        raise
    except Exception as error:
        found = damage_here()
        if found is None:
            raise
        raise found from error
