from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from crystal.cli.app import load_command
from crystal.config.load import load_config
from crystal.config.table import SETTINGS
from crystal.errors import CrystalError, UsageError
from tests.support.table import each_row

KEY = "sk-test-0123456789abcdefghijWXYZ"


@pytest.fixture
def file(home: Path) -> Path:
    path = load_config(os.environ, home).places.config_file
    path.parent.mkdir(parents=True)
    return path


class Run:
    """Runs ``crystal config ...`` in this process; errors come out as they are raised."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys

    def __call__(self, *arguments: str) -> tuple[str, str]:
        load_command("config")(list(arguments), prog_name="crystal config", standalone_mode=False)
        said = self.capsys.readouterr()
        return said.out, said.err

    def json(self, *arguments: str) -> Any:
        out, _ = self(*arguments, "--json")
        return json.loads(out)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return Run(capsys)


def rows(out: str) -> dict[str, tuple[str, str]]:
    return {key: (value, source) for key, value, source in (line.split("\t") for line in out.splitlines())}


def test_every_value_is_listed_with_its_source(run: Run, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text('[search]\nlimit = 20\n[private]\nprojects = ["~/a", "/b"]\n')
    monkeypatch.setenv("CRYSTAL_AGENT_ID", "cc-x")
    out, err = run()
    found = rows(out)
    assert set(SETTINGS) <= set(found)
    assert found["search.limit"] == ("20", f"file {file}")
    assert found["private.projects"] == (f"{file.parents[2]}/a, /b", f"file {file}")
    assert found["agent_id"] == ("cc-x", "environment CRYSTAL_AGENT_ID")
    assert found["embedding.provider"] == ("embedded", "default")
    assert found["config_file"] == (str(file), "default")
    assert found["claude_dir"][1] == "environment CLAUDE_CONFIG_DIR"
    assert found["openai API key"] == ("not found", "not needed")
    assert err == ""
    assert run("list") == (out, "")


def test_listing_makes_nothing(run: Run, home: Path) -> None:
    run()
    run("path")
    run("get", "agent_id")
    assert list(home.iterdir()) == []


def test_json_tells_the_same(run: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRYSTAL_PRIVATE_SESSIONS", "a*:b")
    found = run.json()
    assert found["schema"] == 1
    assert found["config_file"] == str(home / ".config/crystal/config.toml")
    assert found["config_file_exists"] is False
    settings = {entry["key"]: (entry["value"], entry["source"]) for entry in found["settings"]}
    assert list(settings) == list(SETTINGS)
    assert settings["private.sessions"] == (["a*", "b"], "environment CRYSTAL_PRIVATE_SESSIONS")
    assert settings["embedding.model"] == (None, "default")
    assert settings["redact.enabled"] == (True, "default")
    assert found["places"]["data_dir"] == {"value": str(home / ".ldm/memory"), "source": "default"}
    assert {"openai", "google", "voyage"} <= {entry["provider"] for entry in found["api_keys"]}
    assert run.json("list") == found
    assert json.loads(run("--json", "list")[0]) == found


def test_keys_are_told_but_never_shown(run: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("GOOGLE_API_KEY", "tiny")
    monkeypatch.setenv("CRYSTAL_SUMMARY_BASE_URL", "https://me:hunter2@x.test/v1")
    monkeypatch.setenv("CRYSTAL_KEY_COMMAND", f"echo {KEY}")
    (home / ".ldm/memory").mkdir(parents=True)
    (home / ".ldm/memory/.env").write_text(f"VOYAGE_API_KEY={KEY}\n")
    (home / ".ldm/memory/.env").chmod(0o644)
    out, err = run()
    found = rows(out)
    assert found["openai API key"] == ("found, ends with WXYZ", "environment OPENAI_API_KEY")
    assert found["google API key"] == ("found", "environment GOOGLE_API_KEY")
    assert found["voyage API key"] == ("found, ends with WXYZ", f"{home}/.ldm/memory/.env: VOYAGE_API_KEY")
    assert found["summary.base_url"][0] == "https://***@x.test/v1"
    assert "chmod 600" in err
    told = (
        out
        + err
        + json.dumps(run.json())
        + "".join(run("get", "summary.base_url") + run("get", "credentials.key_command"))
    )
    assert KEY not in told
    assert "hunter2" not in told
    assert "tiny" not in told


@pytest.mark.slow
def test_the_keyring_and_the_command_are_asked_only_for_a_key_that_is_used(run, home, monkeypatch):
    asked = home / "asked"
    script = home / "getkey.py"
    script.write_text(f"import sys; open({str(asked)!r}, 'a').write(sys.argv[1] + ' '); print({KEY!r})")
    monkeypatch.setenv("CRYSTAL_KEY_COMMAND", f"'{sys.executable}' -I -S '{script}' {{provider}}")
    assert rows(run()[0])["openai API key"] == ("not found", "not needed")
    assert not asked.exists()
    monkeypatch.setenv("CRYSTAL_EMBEDDING_PROVIDER", "voyage")
    assert rows(run()[0])["voyage API key"] == ("found, ends with WXYZ", f"command {sys.executable}")
    assert asked.read_text() == "voyage "
    monkeypatch.setenv("CRYSTAL_SUMMARY_CONSENT", "1")
    run()
    assert asked.read_text() == "voyage openai voyage "


def test_a_place_of_keys_that_fails_is_told_and_the_rest_is_listed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRYSTAL_EMBEDDING_PROVIDER", "openai")
    monkeypatch.setenv("CRYSTAL_KEY_COMMAND", "/no/such/program")
    found = rows(run()[0])
    assert found["openai API key"][0] == "failed"
    assert "/no/such/program" in found["openai API key"][1]
    assert run.json()["api_keys"][0]["problem"].startswith("CRYSTAL_KEY_COMMAND")


def test_a_needed_key_that_is_missing_says_so(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRYSTAL_EMBEDDING_PROVIDER", "openai")
    assert rows(run()[0])["openai API key"] == ("not found", "needed")


def test_what_looks_like_a_mistake_is_noted(run: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRYSTAL_SEARCH_LIMITS", "3")
    (home / ".ldm/memory").mkdir(parents=True)
    (home / ".ldm/memory/.env").write_text("CRYSTAL_EMBEDDING_PROVIDER=openai\n")
    _, err = run()
    assert "crystal: note: CRYSTAL_SEARCH_LIMITS is not a crystal variable; did you mean CRYSTAL_SEARCH_LIMIT?" in err
    assert ".env sets CRYSTAL_EMBEDDING_PROVIDER, but only API keys are read from it" in err
    assert len(run.json()["notes"]) == 2


def test_get_prints_the_value_alone(run: Run, file: Path) -> None:
    file.write_text('[private]\nprojects = ["/a b", "/c"]\n')
    assert run("get", "search.limit") == ("10\n", "")
    assert run("get", "redact.enabled") == ("true\n", "")
    assert run("get", "embedding.model") == ("", "")
    assert run("get", "private.projects") == ("/a b\n/c\n", "")
    assert run("get", "data_dir")[0].endswith("/.ldm/memory\n")
    assert run.json("get", "private.projects") == {
        "schema": 1,
        "key": "private.projects",
        "value": ["/a b", "/c"],
        "source": f"file {file}",
    }


def test_set_writes_the_file_and_get_reads_it(run: Run, home: Path) -> None:
    assert run("set", "search.limit", "20") == ("search.limit = 20\n", "")
    assert run("set", "private.projects", "~/a", "/b/*") == ("private.projects = ~/a, /b/*\n", "")
    assert run("get", "private.projects")[0] == f"{home}/a\n/b/*\n"
    path = run("path")[0].strip()
    assert Path(path).read_text().count("\n[") == 2
    assert run("unset", "search.limit") == (f"search.limit is no longer in {path}\n", "")
    assert run("unset", "search.limit") == (f"search.limit is not in {path}\n", "")
    assert run("get", "search.limit")[0] == "10\n"


def test_set_says_what_it_takes_out_of_a_list(run: Run, home: Path, file: Path) -> None:
    file.write_text(f'[private]\nprojects = ["{home}/a"]\n')
    assert run("set", "private.projects", f"{home}/a", "/b") == ("private.projects = ~/a, /b\n", "")
    assert run("set", "private.projects", "/a", "/b") == (
        "private.projects = /a, /b\n",
        "crystal: note: no longer in the list: ~/a\n",
    )
    assert run("set", "private.projects", "/b", "/c") == (
        "private.projects = /b, /c\n",
        "crystal: note: no longer in the list: /a\n",
    )


def test_a_setting_that_is_no_more_can_be_taken_out_as_the_hint_says(run: Run, file: Path) -> None:
    file.write_text("[relay]\nquarantine_mb = 32\n")
    with pytest.raises(UsageError, match="there is no setting") as raised:
        run("get", "search.limit")
    assert raised.value.hint == "remove it: crystal config unset relay.quarantine_mb"
    run("unset", "relay.quarantine_mb")
    assert run("get", "search.limit")[0] == "10\n"


def test_set_refuses_a_list_in_a_table_that_is_none(run: Run, file: Path) -> None:
    file.write_text("private = 3\n")
    with pytest.raises(UsageError, match=r"private\.projects cannot be changed"):
        run("set", "private.projects", "/a")


def test_set_says_when_a_variable_wins(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRYSTAL_SEARCH_LIMIT", "5")
    assert "CRYSTAL_SEARCH_LIMIT is set and wins over the file" in run("set", "search.limit", "20")[1]


@each_row(
    ("arguments", "words"),
    [
        (["get", "privat.projects"], "no setting 'privat.projects'"),
        (["set", "nope", "1"], "no setting 'nope'"),
        (["unset", "nope"], "no setting 'nope'"),
        (["set", "search.limit", "many"], "search.limit is 'many'; accepted: a whole number from 1 to 1000"),
        (["set", "search.limit", "-5"], "search.limit is '-5'"),
        (["set", "search.limit", "3", "4"], "search.limit takes one value, 2 were given"),
        (["set", "hook.wait", "1"], "hook.wait cannot be set in a file"),
    ],
)
def test_what_cannot_be_done_is_refused_and_nothing_is_written(arguments, words, run, home):
    with pytest.raises(UsageError) as caught:
        run(*arguments)
    assert words in caught.value.message
    assert list(home.iterdir()) == []


def test_a_broken_file_can_be_found_and_mended_from_here(run: Run, file: Path) -> None:
    file.write_text('[search]\nlimit = "many"\n[serch]\nlimit = 1\n')
    with pytest.raises(CrystalError):
        run()
    assert run("path")[0].strip() == str(file)
    run("set", "search.limit", "3")
    run("unset", "serch.limit")
    assert run("get", "search.limit")[0] == "3\n"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no terminals of this kind there")
def test_a_terminal_gets_aligned_rows(home: Path) -> None:
    import pty

    code = "from crystal.cli.app import load_command; load_command('config')([])"
    env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "120", "OPENAI_API_KEY": KEY}
    ours, theirs = pty.openpty()
    process = subprocess.Popen([sys.executable, "-c", code], stdout=theirs, stderr=theirs, stdin=theirs, env=env)
    os.close(theirs)
    said = b""
    try:
        while piece := os.read(ours, 65536):
            said += piece
    except OSError:
        pass  # a terminal that nobody holds any more ends like this
    assert process.wait() == 0
    os.close(ours)
    text = said.decode()
    assert "\x1b[" in text
    assert "~/.ldm/memory" in text
    assert str(home) not in text
    assert "found, ends with WXYZ" in text
    assert KEY not in text


def test_a_group_that_has_a_mode_may_be_named_alone(run: Run, file: Path) -> None:
    assert run("set", "assist", "on")[0] == "assist.mode = on\n"
    assert run("get", "assist")[0] == "on\n"
    run("unset", "assist")
    assert "mode" not in file.read_text()
