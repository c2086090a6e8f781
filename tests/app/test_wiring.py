"""The machine joined together: which model answers questions, and who starts what again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from crystal.app.context import default_paths, open_machine, open_reader
from crystal.store.problems import find_problem, record_problem
from tests.support.capture_machine import keep_transcript, line
from tests.support.command import crystal
from tests.support.providers_server import serve_providers


@pytest.mark.slow
def test_the_old_model_answers_while_a_new_one_fills(home: Path) -> None:
    keep_transcript(home, "s", line("quartz"))
    crystal("init", "--yes", "--import")
    with serve_providers() as server:
        crystal("config", "set", "embedding.provider", "ollama")
        crystal("config", "set", "embedding.base_url", server.ollama)
        with open_reader() as machine:
            chosen, asking = machine.embedder(), machine.asking_embedder()
            assert (chosen.provider, asking.provider) == ("ollama", "embedded")
        assert json.loads(crystal("search", "quartz", "--json").out)["mode"] == "hybrid"
        done = crystal("sync")
        assert (done.code, done.err) == (0, "")
        with open_reader() as machine:
            assert machine.asking_embedder().provider == "ollama"
        assert json.loads(crystal("search", "quartz", "--json").out)["mode"] == "hybrid"


@pytest.mark.slow
def test_a_sync_by_hand_tries_again_what_rests(home: Path) -> None:
    keep_transcript(home, "s", line("quartz"))
    crystal("init", "--yes")
    with open_machine() as machine:
        record_problem(machine.store, "embedding", "it failed", machine.now(), machine.now() + 3_600_000)
    crystal("backfill")
    crystal("sync")
    with open_reader() as machine:
        assert find_problem(machine.store, "embedding") is None
    assert json.loads(crystal("status", "--json").out)["queues"]["chunks_without_vector"] == 0


def test_a_key_that_cannot_be_fetched_leaves_summaries_simple(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep_transcript(home, "s", line("quartz", at=1_700_000_000_000))
    crystal("init", "--yes")
    crystal("config", "set", "summary.mode", "llm")
    crystal("config", "set", "summary.consent", "true")
    monkeypatch.setenv("CRYSTAL_KEY_COMMAND", "/nonexistent/key")
    done = crystal("backfill", "--json")
    assert done.code == 0, done.err
    (page,) = (home / ".ldm" / "agents").rglob("sessions/*.md")
    assert "mode: simple" in page.read_text().replace('"', "")
    assert "/nonexistent/key" in crystal("status").out
    assert crystal("sync").code == 0


@pytest.mark.slow
def test_a_database_beyond_repair_is_made_again_from_the_archive(home: Path) -> None:
    keep_transcript(home, "s", line("basalt"))
    crystal("init", "--yes", "--import")
    folder = default_paths().data_dir
    whole = (folder / "crystal.db").read_bytes()
    (folder / "crystal.db").write_bytes(whole[:4096] + b"\x55" * (len(whole) - 4096))
    done = crystal("search", "basalt")
    assert (done.code, "crystal verify --repair" in done.err) == (6, True)
    assert crystal("verify", "--repair").code == 0
    assert [path.stat().st_size for path in folder.glob("crystal.db.damaged-*[0-9]")] == [len(whole)]
    assert json.loads(crystal("search", "basalt", "--json").out)["hits"][0]["text"] == "basalt"


@pytest.mark.slow
def test_who_goes_back_to_the_embedded_model_asks_the_network_no_more(home: Path) -> None:
    keep_transcript(home, "s", line("quartz"))
    with serve_providers() as server:
        crystal("config", "set", "embedding.provider", "ollama")
        crystal("config", "set", "embedding.base_url", server.ollama)
        crystal("init", "--yes", "--import")
        crystal("config", "unset", "embedding.base_url")
        crystal("config", "set", "embedding.provider", "embedded")
        with open_reader() as machine:
            asking = machine.asking_embedder()
            assert asking is not None
            assert asking.provider == "embedded"
        found = json.loads(crystal("search", "quartz", "--json").out)
        assert (found["mode"], len(found["hits"])) == ("keywords", 1)
        assert "ollama nomic-embed-text" in found["notes"][0]
