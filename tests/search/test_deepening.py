from __future__ import annotations

from pathlib import Path

import pytest

from crystal.app.context import Machine
from crystal.app.search import deep_search
from crystal.config.load import load_config
from crystal.store import Store
from tests.support.chat_server import Reply, chat_server, ollama_reply
from tests.support.costs import totals

NOW = 1_795_219_200_000


def deep(tmp_path: Path, **env: str):
    home = tmp_path / "home"
    home.mkdir(exist_ok=True)
    config = load_config(
        {"CRYSTAL_DATA_DIR": str(tmp_path / "data"), "CRYSTAL_CREDENTIALS_KEYRING": "false", **env}, home
    )
    with Store.open(tmp_path / "data" / "crystal.db") as store:
        return deep_search(Machine(config, store), now=NOW)


def test_nobody_is_asked_by_default(tmp_path):
    found = deep(tmp_path)
    assert found.asker is None
    assert "deep.provider" in found.reasons[0]


@pytest.mark.parametrize(
    "env",
    [
        {"CRYSTAL_DEEP_PROVIDER": "openai", "OPENAI_API_KEY": "sk-x"},
        {"CRYSTAL_DEEP_PROVIDER": "google"},
        {"CRYSTAL_DEEP_PROVIDER": "ollama", "CRYSTAL_DEEP_BASE_URL": "https://ollama.example.org"},
        {"CRYSTAL_DEEP_PROVIDER": "openai", "CRYSTAL_DEEP_BASE_URL": "http://localhost.example.org/v1"},
        {"CRYSTAL_DEEP_PROVIDER": "openai", "CRYSTAL_SUMMARY_CONSENT": "true"},
    ],
)
def test_nothing_leaves_this_machine_without_consent(tmp_path, env):
    found = deep(tmp_path, **env)
    assert found.asker is None
    assert "deep.consent" in found.reasons[0]


def test_with_consent_a_missing_key_is_said_when_it_is_needed(tmp_path, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    Store.open(tmp_path / "data" / "crystal.db").close()
    found = deep(tmp_path, CRYSTAL_DEEP_PROVIDER="openai", CRYSTAL_DEEP_CONSENT="true")
    assert found.expand("what was it") == ("what was it",)
    assert "no API key for openai" in found.reasons[0]


def test_a_model_on_this_machine_needs_no_consent_and_its_calls_are_booked(tmp_path):
    Store.open(tmp_path / "data" / "crystal.db").close()
    with chat_server(Reply(ollama_reply('["the other wording"]'))) as server:
        found = deep(
            tmp_path, CRYSTAL_DEEP_PROVIDER="ollama", CRYSTAL_DEEP_BASE_URL=server.url, CRYSTAL_DEEP_MODEL="tiny"
        )
        assert found.expand("what was it") == ("what was it", "the other wording")
        assert server.requests[0]["body"]["model"] == "tiny"
    with Store.open(tmp_path / "data" / "crystal.db") as store:
        (total,) = totals(store)
        assert (total.purpose, total.model, total.usd) == ("search", "tiny", 0)
