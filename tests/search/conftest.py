import pytest

from tests.support.index_store import IndexStore


@pytest.fixture
def world(tmp_path):
    """A store with its index."""
    one = IndexStore(tmp_path)
    yield one
    one.close()
