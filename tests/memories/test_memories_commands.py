"""Memories through the commands and through Python."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from crystal import Crystal
from tests.support.command import crystal

SECRET = "ghp_0123456789abcdefghijklmnopqrstuvwxyz"


@pytest.mark.slow
def test_the_commands_remember_find_change_hide_and_bring_back(home: Path) -> None:
    assert crystal("get", "--key", "user_name").code == 3
    done = crystal("remember", "--key", "user_name", "Alice", "--json")
    ident = json.loads(done.out)["memory"]["id"]
    assert crystal("get", "--key", "user_name").out == "Alice\n"
    assert crystal("get", ident[:8], "--json").out == done.out
    missing = crystal("get", "--key", "nobody")
    assert (missing.code, missing.out) == (1, "")
    assert "no memory has the key 'nobody'" in missing.err
    assert crystal("get").code == crystal("get", ident, "--key", "x").code == 2
    assert "already known" in crystal("remember", "--key", "user_name", "Bob").out
    assert [was["text"] for was in json.loads(crystal("show", ident, "--json").out)["history"]] == ["Alice"]
    hits = json.loads(crystal("search", "user_name", "--source", "memory", "--json").out)["hits"]
    assert [(hit["text"], hit["key"], hit["uuid"]) for hit in hits] == [("Bob", "user_name", ident)]
    assert f"crystal show {ident}" in crystal("search", "Bob").out
    assert crystal("show", f"h{hits[0]['id']}").out == crystal("show", ident).out
    assert crystal("memories", "edit", ident, "Carol", "--category", "opinion").code == 0
    said = "caf\0 ghp_0123456789abcdefghijklmnopqrstuvwxyz"
    assert "were removed" in crystal("memories", "edit", ident, said).err
    assert "were removed" not in crystal("memories", "edit", ident, "Carol").err
    assert crystal("memories", "deprecate", "user_name").code == 0
    assert crystal("memories").out == ""
    assert "restore" in crystal("get", "--key", "user_name").err
    assert crystal("memories", "restore", ident).code == 0
    assert crystal("get", "--key", "user_name").out == "Carol\n"
    assert crystal("memories", "--status", "nonsense").code == crystal("memories", "-n", "0").code == 2
    assert "no project 'nowhere'" in crystal("memories", "--project", "nowhere").err
    assert crystal("verify").code == 0


@pytest.mark.parametrize("words", [(), ("-",)])
def test_a_text_is_read_from_standard_input(home, monkeypatch, words):
    from crystal.cli import memories

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("über \n zwei Zeilen\n".encode())))
    assert memories.read_words(list(words)) == "über \n zwei Zeilen\n"


@pytest.mark.slow
def test_what_a_terminal_is_shown_moves_no_cursor(home: Path) -> None:
    crystal("remember", "red \x1b[31m\u202e text")
    assert "\x1b" not in crystal("memories").out + crystal("search", "red").out


@pytest.mark.slow
def test_python_does_what_the_commands_do(home: Path) -> None:
    with Crystal(create=True) as memory:
        one = memory.remember("Alice", key="user_name", session="s-1")
        assert (one.source, one.session_id) == ("python", "s-1")
        assert memory.get(key="user_name") == memory.get(one.id) == one
        assert memory.get(key="nobody") is None
        assert memory.edit(one.id, text="Bob").text == "Bob"
        assert [was.text for was in memory.memory_history(one.id)] == ["Alice"]
        assert memory.deprecate(one.id).status == "deprecated"
        assert list(memory.memories()) == []
        assert memory.status()["counts"]["memories"] == 0
        assert memory.revive(one.id).status == "active"
        assert [found.text for found in memory.memories(key="user_*")] == ["Bob"]
        assert memory.search("Bob").hits[0].category == "fact"
        assert "vectors" in memory.search("Bob").hits[0].ranks
        assert [turn.text for turn in memory.show(one.id).turns] == ["Bob"]
        assert memory.status()["counts"]["memories"] == 1
