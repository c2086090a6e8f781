"""What ``crystal doctor`` finds, and that the fix it names is one."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from crystal.app.context import default_paths, open_machine
from crystal.capture import finder
from crystal.config.harnesses import Root
from tests.support.capture_machine import keep_transcript, line
from tests.support.command import crystal
from tests.support.examples import part_of

KEY = "sk-test-0123456789abcdefghijklmnopqrstuvwxyz"


@pytest.fixture(autouse=True)
def _memory(home: Path) -> None:
    keep_transcript(home, "s", line("quartz"))
    assert crystal("init", "--yes", "--import").code == 0


def checks(name: str, code: int = 0) -> list[dict[str, Any]]:
    done = crystal("doctor", "--json")
    assert done.code == code, done.out + done.err
    return [check for check in json.loads(done.out)["checks"] if check["name"] == name]


@pytest.mark.parametrize("command", part_of(["status", "doctor"]))
def test_each_folder_of_transcripts_is_listed_once(monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    listed, listing = list[Root](), finder._in_root

    def noting(root: Root, *values: Any) -> Any:
        listed.append(root)
        return listing(root, *values)

    monkeypatch.setattr(finder, "_in_root", noting)
    assert crystal(command).code == 0
    assert len(listed) == len(set(listed)) > 0


@pytest.mark.slow
def test_all_is_well() -> None:
    assert [check["verdict"] for check in checks("embedding")] == ["ok"]
    assert checks("API key") == []


def test_a_data_folder_that_is_a_link_has_its_size(home: Path, tmp_path: Path) -> None:
    def sizes() -> tuple[int, int]:
        found = json.loads(crystal("status", "--json").out)["sizes"]
        return found["database"], found["index"]

    before, folder = sizes(), home / ".ldm" / "memory"
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    assert sizes() == before
    assert before[0] > 0


def test_a_memory_without_a_text_needs_no_search_index(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LDM_HOME", str(tmp_path / "new"))
    assert crystal("init", "--yes", "--no-import").code == 0
    (check,) = checks("search index")
    assert (check["verdict"], check["message"]) == ("ok", "there is nothing to search yet")


@pytest.mark.slow
def test_a_new_provider_has_everything_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    crystal("config", "set", "embedding.provider", "openai")
    (check,) = checks("embedding")
    assert (check["verdict"], check["fix"]) == ("note", "crystal sync")
    assert "1 chunk waits for its vector (openai)" in check["message"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("provider", "fix"), [("ollama", "embedding.dimension"), ("embedded", "crystal models use embedded")]
)
def test_an_unusable_choice_is_told_once_and_stops_no_other_work(provider: str, fix: str, home: Path) -> None:
    crystal("config", "set", "embedding.provider", provider)
    crystal("config", "set", "embedding.model", "of-nobody")
    keep_transcript(home, "t", line("opal"))
    done = crystal("sync")
    assert (done.code, "captured" in done.out, "of-nobody" in done.err) == (0, True, True)
    assert crystal("reflect", "--now").code == 0
    (check,) = checks("embedding", code=1)
    assert check["verdict"] == "failure"
    assert "of-nobody" in check["message"]
    assert fix in check["fix"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "provider", "variable"),
    [
        ({"embedding.provider": "voyage"}, "voyage", "VOYAGE_API_KEY"),
        ({"summary.mode": "llm", "summary.provider": "google"}, "google", "GOOGLE_API_KEY"),
        ({"summary.consent": "true"}, "openai", "OPENAI_API_KEY"),
    ],
)
def test_a_missing_key_is_told_with_where_to_put_it(
    settings: dict[str, str], provider: str, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key, value in settings.items():
        crystal("config", "set", key, value)
    (check,) = checks("API key")
    assert check["verdict"] == "warning"
    assert provider in check["message"]
    assert variable in check["fix"]
    assert str(default_paths().data_dir / ".env") in check["fix"]
    monkeypatch.setenv(variable, KEY)
    (check,) = checks("API key")
    assert check["verdict"] == "ok"
    assert KEY not in json.dumps(check)


@pytest.mark.slow
def test_a_key_command_that_fails_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    crystal("config", "set", "embedding.provider", "voyage")
    monkeypatch.setenv("CRYSTAL_KEY_COMMAND", "/nonexistent/key")
    (check,) = checks("API key")
    assert check["verdict"] == "warning"
    assert "/nonexistent/key" in check["message"]


@pytest.mark.slow
def test_a_server_of_ones_own_needs_no_key() -> None:
    crystal("config", "set", "summary.mode", "llm")
    crystal("config", "set", "summary.base_url", "http://127.0.0.1:9/v1")
    assert checks("API key") == []


def test_a_missing_package_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *more: None if name == "onnxruntime" else find(name, *more)
    )
    assert checks("software")[0]["verdict"] == "ok"
    crystal("config", "set", "embedding.provider", "local")
    well, missing = checks("software", code=1)
    assert well["verdict"] == "ok"
    assert missing["verdict"] == "failure"
    assert "-m pip install" in missing["fix"]


@pytest.mark.slow
def test_settings_that_cannot_be_read_are_a_finding_like_others(home: Path) -> None:
    path = default_paths().config_file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("broken = [\n")
    done = crystal("doctor", "--json")
    assert done.code == 1, done.err
    (check,) = [check for check in json.loads(done.out)["checks"] if check["verdict"] == "failure"]
    assert (check["name"], check["fix"]) == ("settings", f"correct the file: {path}")
    shown = crystal("doctor")
    assert (shown.code, shown.err) == (1, "")
    assert "FAIL  settings" in shown.out


@pytest.mark.slow
def test_a_large_database_is_not_read_to_its_end_unless_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crystal.app.memory_checks.BRIEF_SECONDS", 0.0)
    monkeypatch.setattr("crystal.store.health.checks.PROGRESS_STEPS", 1)
    (brief,) = checks("memory")
    assert "crystal doctor --deep" in brief["message"]
    deep = crystal("doctor", "--deep")
    assert deep.code == 0
    assert "is sound" in deep.out


PROBE = """
import sys
from crystal.cli.app import main
try:
    main()
finally:
    assert "numpy" not in sys.modules
"""


@pytest.mark.slow
def test_a_usual_look_does_not_load_what_takes_longest(home: Path) -> None:
    crystal("sync")
    done = subprocess.run([sys.executable, "-c", PROBE, "doctor"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done
    assert "search index: searches use it" in done.stdout


@pytest.mark.slow
def test_a_refused_path_is_named_and_nobody_is_told_to_allow_it() -> None:
    with open_machine() as machine:
        note = {"v": 1, "at": 1, "event": "Stop", "session_id": "s", "transcript_path": "/etc/passwd"}
        machine.places.spool.mkdir(exist_ok=True)
        (machine.places.spool / "1.json").write_text(json.dumps(note))
    crystal("sync")
    (check,) = checks("refused transcripts")
    assert check["message"].startswith("/etc/passwd ")
    assert check["fix"].startswith("nothing")
    assert "config set" not in json.dumps(check)
