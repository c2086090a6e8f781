"""Search in every way that a store may be asked: by the store's own engines, and by the index in its states.

A module that imports ``each_way`` and whose tests use the fixture ``ranked_by`` runs them all in each way; its stores come from
``store_factory``, and its questions go through ``search`` and ``search_home_first`` of this module, or follow
``prepare``.
"""

from __future__ import annotations

import functools
from dataclasses import replace

import pytest

import crystal.search.engine
from crystal.embedding.late import StaticLate
from crystal.embedding.static import static_model
from crystal.search.index import bring_up_to_date, folder_of
from crystal.search.index.reader import Absent, open_index
from tests.support import store_factory
from tests.support.store_factory import NOW

WAYS = ("engines", "index", "tail", "late")
"""No index; all of it in files; some in files and some in the log; and the default of the doors: late interaction."""

_way = "engines"


@pytest.fixture(params=WAYS, name="ranked_by")
def each_way(request, monkeypatch):
    """Run the test in every way; gives the way."""
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
        if store is None or _way == "engines" or store.value("PRAGMA query_only"):
            continue
        if _way in ("index", "late") or store.value("SELECT count(*) FROM index_state") == 0:
            bring_up_to_date(store, now=NOW, budget_seconds=60)
        with store.reading():
            found = open_index(store, folder_of(store.path))
        assert not isinstance(found, Absent), found.reason


def search(store, embedder, query, **options):
    """As crystal's, in the way of the test."""
    return crystal.search.engine.search(store, embedder, query, **_ready(store, options))


def search_home_first(store, embedder, query, **options):
    """As crystal's, in the way of the test."""
    return crystal.search.engine.search_home_first(store, embedder, query, **_ready(store, options))


def _ready(store, options):
    mirror = options.get("mirror")
    prepare(store, None if mirror is None else mirror.store)
    if _way == "late":
        how = options.get("how") or crystal.search.engine.How()
        options = {**options, "how": replace(how, late=late_model)}
    return options


@functools.cache
def late_model():
    return StaticLate(static_model())
