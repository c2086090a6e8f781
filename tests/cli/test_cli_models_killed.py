"""A change of the model that is killed at any statement leaves one whole model in use."""

import pytest

from crystal.store.search import vectors
from tests.embedding.test_embedding_pending import run as embed
from tests.support.embedding_store import Dice
from tests.support.killed import killed_at


@pytest.mark.slow
def test_at_whatever_statement_a_change_over_is_killed_one_whole_model_serves(tmp_path):
    from tests.support.embedding_store import add_chunk, open_store, stored, vectors_by_chunk

    statement, served, is_done = 1, set(), False
    while not is_done:
        folder = tmp_path / str(statement)
        folder.mkdir()
        with open_store(folder) as store:
            for n in range(3):
                add_chunk(store, str(n))
            embed(store, Dice("old"))
            with killed_at(store, statement) as killed:
                embed(store, Dice("new"), batch=2)
            is_done = not killed.is_killed
        with open_store(folder) as store:
            serving = vectors.serving_generation(store)
            kept = vectors_by_chunk(store, serving.id)
            wanted = {n + 1: stored(Dice(serving.model).embed_query(str(n))) for n in range(3)}
            assert kept == wanted
            served.add(serving.model)
        statement += 1
    assert served == {"old", "new"}
