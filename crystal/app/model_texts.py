"""Decide which texts may be sent to a model on another machine: none that is private, isolated or forgotten now.

Whatever sends text of the memory to a model asks here, just before each request: vectors, summaries, the reflector,
deep search, and the tests of models and of search. A text with several places may be sent if it may go from each.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Sequence
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any

from crystal.app.context import Machine
from crystal.capture.privacy import policy_of
from crystal.config.providers import runs_here
from crystal.embedding.embedder import Embedder
from crystal.errors import UnavailableError
from crystal.model.named_tuple import NamedTuple
from crystal.store import Store
from crystal.store.capture.privacy import marks, store_key
from crystal.store.notes import read_note, write_note
from crystal.store.search.vectors import ask_again, refused_chunks, serving_generation

if TYPE_CHECKING:
    from crystal.store.search.text_places import TextKind, TextPlace
    from crystal.store.search.trials import Sampled

NOTE = "sending rule"
"""Key of the note that tells by which rule chunks were kept here."""
ASKED = ("embed_documents", "embed_query")


class SendingRule(NamedTuple):
    """The rule for one model. ``is_here``: it runs on this machine, and may be sent everything."""

    machine: Machine
    is_here: bool

    def sendable(self, ids: Collection[int], kind: TextKind = "chunk", store: Store | None = None) -> set[int]:
        """Return the rows of texts that may be sent now: those that are still stored, and may go from each place.

        Args:
            ids: Rows of chunks, turns or sessions.
            kind: Which of these.
            store: Where they are: this machine's store if None, or the mirror's.

        Raises:
            CrystalError: The settings cannot be read, so that nothing may be sent.
        """
        if self.is_here:
            return set(ids)
        # A worker that sends nothing loads neither.
        from crystal.store.search.isolated import isolated_projects, isolated_sessions  # noqa: PLC0415
        from crystal.store.search.text_places import places_of  # noqa: PLC0415

        store, config = store or self.machine.store, self.machine.config.reload()
        policy, found = policy_of(self.machine.store, config), places_of(store, kind, ids)
        sessions = isolated_sessions(store, config.isolated_projects, {one.session_id for one in found})
        projects = isolated_projects([store], config.isolated_projects)

        def stays(one: TextPlace) -> bool:
            is_isolated = one.harness in config.isolated or one.session_id in sessions or projects.at(one.folder)
            return bool(is_isolated) or policy.why_private(one.session_id, one.at, one.folder) is not None

        return {one.ident for one in found} - {one.ident for one in found if one.is_forgotten or stays(one)}

    def sendable_sample(self, sample: Sequence[Sampled]) -> list[Sampled]:
        """Return what may be sent of a sample of turns."""
        from dataclasses import replace  # noqa: PLC0415 - it loads ``inspect``, and every turn asks for a rule

        known = self.sendable(_chunks_of(sample))
        some = [one for one in sample if one.id in known]
        return [one if one.before_id in known else replace(one, before=None, before_id=None) for one in some]

    def guard(self, embedder: Embedder, sample: Sequence[Sampled]) -> Embedder:
        """Return an embedder that fails once something of a sample may not be sent any more."""
        if self.is_here:
            return embedder
        guarded, idents = copy(embedder), _chunks_of(sample)

        def checked(ask: Callable[[Any], Any], given: Any) -> Any:
            if not idents <= self.sendable(idents):
                raise UnavailableError("a text of the test was forgotten or became private", hint="run it again")
            return ask(given)

        vars(guarded).update({name: partial(checked, getattr(embedder, name)) for name in ASKED})
        return guarded

    def release(self) -> None:
        """Queue texts for a vector again that were withheld, if the reason may have changed."""
        store = self.machine.store
        keeps: tuple[Any, ...] = ()
        if not self.is_here:  # a model here may be sent everything: nothing has to be read at each turn
            config, open_marks = self.machine.config.reload(), [one for one in marks(store) if one.until_at is None]
            named = config.private_projects, config.private_sessions, config.isolated_projects, sorted(config.isolated)
            keeps = open_marks, named
        rule = hashlib.blake2b(repr(keeps).encode(), key=store_key(store), digest_size=16).hexdigest()
        if read_note(store, NOTE) != rule:
            with store.transaction():
                ask_again(store)
                write_note(store, NOTE, rule)


def sending_rule(machine: Machine, table: str) -> SendingRule:
    """Return the rule for the model that a table of settings names."""
    provider, url, model = (machine.config.value(f"{table}.{name}") for name in ("provider", "base_url", "model"))
    return rule_for(machine, provider, url, model)


def rule_for(machine: Machine, provider: str, base_url: str | None, model: str | None) -> SendingRule:
    """Return the rule for a model by its provider's name."""
    if runs_here(provider):
        return SendingRule(machine, is_here=True)
    from crystal.provider_http.post import stays_here  # noqa: PLC0415 - brings httpx, 0.1 s

    return SendingRule(machine, is_here=stays_here(provider, base_url, model))


def count_kept_here(machine: Machine) -> int:
    """Return how many chunks have no vector because the embedding model may not be sent them."""
    rule, serving = sending_rule(machine, "embedding"), serving_generation(machine.store)
    idents = [] if rule.is_here or serving is None else refused_chunks(machine.store, serving.id)
    return len(idents) - len(rule.sendable(idents))


def _chunks_of(sample: Sequence[Sampled]) -> set[int]:
    return {ident for one in sample for ident in (one.id, one.before_id) if ident is not None}
