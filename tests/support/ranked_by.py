"""Search in every way that a store may be asked: by an index made in memory, and by the index in its states.

A module that imports ``each_way`` and whose tests use the fixture ``ranked_by`` runs them all in each way; its stores come from
``store_factory``, and its questions go through ``search`` and ``search_home_first`` of this module, or follow
``prepare``.
"""

import functools
from dataclasses import replace

import pytest

from crystal.embedding.late import TokenComparer
from crystal.embedding.static import static_model
from crystal.model.recall import Filters
from crystal.search import engine
from crystal.search.index import bring_up_to_date, folder_of
from crystal.search.index.open_index import Absent, open_index
from crystal.search.request import MemorySource, SearchOptions, SearchRequest
from tests.support import store_factory
from tests.support.store_factory import NOW

NO_EMBEDDER = "no embedding model is configured"
WAYS = ("memory", "index", "tail", "late")
"""No index; all of it in files; some in files and some in the log; and the default of the doors: late interaction."""

_way = "memory"


def _params(*fast):
    return [way if way in fast else pytest.param(way, marks=pytest.mark.slow) for way in WAYS]


PARAMS = _params("memory")
"""All ways share one ranking: the fast suite asks the one without files, and where the order matters the default."""


@pytest.fixture(params=PARAMS, name="ranked_by")
def each_way(request, monkeypatch):
    """Run the test in every way; gives the way."""
    with using(request.param, monkeypatch):
        yield request.param


@pytest.fixture(params=_params("memory", "late"), name="ranked_by")
def by_default_too(request, monkeypatch):
    """Run the test in every way, in the fast suite in the way that users search as well."""
    with using(request.param, monkeypatch):
        yield request.param


class using:  # noqa: N801 - reads as a statement
    """The way in which questions are asked inside; for fixtures of a wider scope than a test."""

    def __init__(self, way, monkeypatch):
        self.way, self.monkeypatch = way, monkeypatch

    def __enter__(self):
        self.monkeypatch.setattr("tests.support.ranked_by._way", self.way)
        if self.way == "tail":
            self.monkeypatch.setattr(store_factory, "after_turn", _some_into_files)
        return self.way

    def __exit__(self, *_):
        pass


def _some_into_files(store, number):
    """Bring up to date after the 1st, 4th, 16th ... turn: what comes between is in the log."""
    if number & (number - 1) == 0 and number.bit_length() % 2:
        bring_up_to_date(store, now=NOW, budget_seconds=60)


def prepare(*stores):
    """Bring what is needed into place for the way, and make sure that it is what answers."""
    for store in stores:
        if store is None or _way == "memory" or store.value("PRAGMA query_only"):
            continue
        if _way in ("index", "late") or store.value("SELECT count(*) FROM index_state") == 0:
            bring_up_to_date(store, now=NOW, budget_seconds=60)
        with store.reading():
            found = open_index(store, folder_of(store.path))
        assert not isinstance(found, Absent), found.reason


def search(store, embedder, query, **options):
    """As crystal's, in the way of the test."""
    return engine.search(*_asked(store, embedder, query, **options))


def search_home_first(store, embedder, query, *, home, **options):
    """As crystal's, in the way of the test."""
    return engine.search_project_first(*_asked(store, embedder, query, **options), home)


def _asked(store, embedder, query, *, mirror=None, without_embedder=NO_EMBEDDER, how=None, filters=None, **options):
    prepare(store, None if mirror is None else mirror.store)
    how = how or SearchOptions()
    how = replace(how, late=late_model) if _way == "late" else how
    own = MemorySource(store, "local", embedder, without_embedder)
    request = SearchRequest(query, filters=filters or Filters(), how=how, **options)
    return (own,) if mirror is None else (own, mirror), request


@functools.cache
def late_model():
    return TokenComparer(static_model())
