"""TOML of every kind: the server is put in and comes out again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from crystal.config.settings_file import parse_fragment
from crystal.errors import DamagedError
from crystal.install.clients.entry_text import document_of, with_server, without_server
from crystal.install.clients.known import Client, ServerCommand
from tests.support.client_entries import ENTRY, OLDER
from tests.support.examples import examples
from tests.support.table import each_row

# --- TOML of every kind


CODEX = Client("codex", "Codex", Path("config.toml"), Path(), "toml", "mcp_servers")
KEYS = st.sampled_from(["a", "b-c", '"quoted = # key"', "d.e", "'x'"])
VALUES = st.sampled_from(
    ['"text"', "1", "1.5", "true", "[1, 2]", "[\n  1, # one\n  2,\n]", '"""\n[mcp_servers.crystal]\n"""', "'''\n# x\n'''",
     "{ x = 1, y = { z = 2 } }", "2026-11-21T10:00:00Z", "10:00:00", "inf", '"a # b" # comment']
)  # fmt: skip
TABLES = st.sampled_from(
    ["[t]", "[[list]]", "[mcp_servers.docs]", "[ mcp_servers . other ] # c", "[mcp_servers]", "[p.q]"]
)


@st.composite
def toml_documents(draw: st.DrawFn) -> str:
    """A document of statements, comments and blank lines; only those that are TOML."""
    lines: list[str] = []

    def fill() -> None:
        for key in draw(st.lists(KEYS, max_size=2, unique=True)):
            lines.extend(draw(st.sampled_from([[], [""], ["# a comment"]])))
            lines.append(f"{key} = {draw(VALUES)}")

    fill()
    for header in draw(st.lists(TABLES, max_size=4)):
        lines.extend(draw(st.sampled_from([[], [""], ["", "# of the table"]])))
        lines.append(header)
        fill()
    text = "\n".join(lines).replace("\n", draw(st.sampled_from(["\n", "\r\n"])))
    return text + (draw(st.sampled_from(["", "\n", "\n\n", "\r\n", "\n# end"])) if text else "")


def said(tables: Any) -> str:
    return json.dumps({key: value for key, value in tables.items() if value or key != "mcp_servers"}, default=repr)


@pytest.mark.slow
@examples(80)
@given(toml_documents().filter(lambda text: parse_fragment(text) is not None))
@example("")
@example("\n")
@example("[mcp_servers]")
@example('mcp_servers.docs.command = "x"')
def test_toml_any_document_is_kept_twice_is_once_and_out_is_as_before(text: str) -> None:
    old = document_of(CODEX, text)
    if isinstance(old.get("mcp_servers"), list):
        return
    after = with_server(CODEX, text, ENTRY)
    new = document_of(CODEX, after)
    assert new["mcp_servers"]["crystal"] == ENTRY.as_document()
    assert with_server(CODEX, after, ENTRY) == after
    assert without_server(CODEX, after, group_too=True) == text
    older = with_server(CODEX, text, OLDER)
    brought_up = with_server(CODEX, older, ENTRY)
    assert said(document_of(CODEX, brought_up)) == said(new)
    assert without_server(CODEX, brought_up, group_too=True) == text


CODEX_WROTE = """\
model = "gpt-5"  # mine

[mcp_servers.docs]
command = "docs"

[mcp_servers.crystal]
command = "/old/bin/crystal"
# a comment in it
args = ["mcp"]
startup_timeout_sec = 20

[mcp_servers.crystal.env]
LDM_HOME = "/old"
MINE = "1"

[mcp_servers.crystal.tools.crystal_search]
approval_mode = "approve"

# about the screen
[tui]
theme = "x"
"""


def test_toml_an_entry_that_codex_has_rewritten_is_brought_up_and_goes_with_its_tables() -> None:
    after = with_server(CODEX, CODEX_WROTE, ServerCommand("/new/crystal", ("mcp",), {"CRYSTAL_CONFIG": "/c"}))
    expected = CODEX_WROTE.replace("/old/bin", "/new").replace(
        'LDM_HOME = "/old"\nMINE = "1"\n', 'MINE = "1"\nCRYSTAL_CONFIG = "/c"\n'
    )
    assert after == expected
    left = without_server(CODEX, after, group_too=True)
    assert (
        left
        == CODEX_WROTE[: CODEX_WROTE.index("\n[mcp_servers.crystal]")] + CODEX_WROTE[CODEX_WROTE.index("\n# about") :]
    )


@each_row(("text", "left"), [
        ('[mcp_servers]\ncrystal = { command = "/a/crystal", args = ["mcp"] }\nx = { command = "y" }\n', '[mcp_servers]\nx = { command = "y" }\n'),
        ('mcp_servers.crystal.command = "/a/crystal"\nmcp_servers.crystal.args = ["mcp"]\n', ""),
        ('mcp_servers = { crystal = { command = "/a/crystal", args = ["mcp"] } }\na = 1\n', "mcp_servers = {  }\na = 1\n"),
    ])  # fmt: skip
def test_toml_other_ways_to_write_the_entry_are_understood(text: str, left: str) -> None:
    entry = ServerCommand("/new/crystal")
    after = with_server(CODEX, text, entry)
    assert document_of(CODEX, after)["mcp_servers"]["crystal"]["command"] == "/new/crystal"
    assert without_server(CODEX, after, group_too=True) == left


def test_toml_servers_in_braces_are_not_rewritten() -> None:
    with pytest.raises(DamagedError):
        with_server(CODEX, 'mcp_servers = { x = { command = "y" } }\n', ENTRY)
