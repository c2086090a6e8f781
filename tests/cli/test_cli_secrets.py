"""``crystal secrets``: where secrets stand in transcripts, and nothing of what they are."""

from __future__ import annotations

import json
import os
import uuid
from pathlib import Path
from typing import Any

import pytest

from crystal.config.edit import set_value
from crystal.integrity.exposed_secrets import KeptSecret
from crystal.redact.prefilter import private_prefilter
from tests.support import redact_samples as samples
from tests.support.capture_machine import keep_transcript
from tests.support.command import crystal
from tests.support.forgetting_machine import said

TOKEN = samples.FORMATS["github-token"](3)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder of transcripts of a user who has never set crystal up."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("LDM_HOME", str(tmp_path / ".ldm"))
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    folder = tmp_path / ".claude" / "projects" / "-home-you-shop"
    folder.mkdir(parents=True)
    return folder


def line_of(text: str) -> bytes:
    return json.dumps({"type": "user", "message": {"content": text}}).encode() + b"\n"


def test_it_names_file_line_byte_kind_and_count_but_no_value(project: Path, tmp_path: Path) -> None:
    file = project / "5b1f0000-0000-4000-8000-000000000000.jsonl"
    lines = [line_of("hello"), line_of(f"see {TOKEN} and {TOKEN}"), line_of("password=hunter2"), b"password=hunter2"]
    file.write_bytes(b"".join(lines))
    (project / "5b1f0000-0000-4000-8000-000000000000" / "subagents").mkdir(parents=True)
    agent = project / "5b1f0000-0000-4000-8000-000000000000" / "subagents" / "agent-1.jsonl"
    agent.write_bytes(line_of("password: hunter2\n"))
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}

    done = crystal("secrets", "--json")

    assert done.code == 1
    answer = json.loads(done.out)
    whole = file.read_bytes()
    first, again = whole.index(TOKEN.encode()), whole.index(b"hunter2")
    assert [(row["line"], row["offset"], row["kind"], row["count"]) for row in answer["found"][:3]] == [
        (2, first, "github-token", 2),
        (3, again, "password", 1),
        (4, whole.rindex(b"hunter2"), "password", 1),
    ]
    assert (answer["transcripts"], answer["secrets"], answer["found"][3]["path"]) == (2, 5, str(agent))
    plain = crystal("secrets")
    assert "line 2, byte" in plain.out
    assert "github-token  x2" in plain.out
    for secret in (TOKEN, TOKEN[:8], "hunter"):
        assert secret not in done.out + plain.out + plain.err
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}


def test_without_a_secret_it_ends_with_0_and_private_spans_are_none(project: Path) -> None:
    (project / "a.jsonl").write_bytes(line_of("hello <private>4711</private>"))
    assert crystal("secrets").code == 0
    assert crystal("secrets").out == "no secrets in 1 transcript\n"


def test_what_cannot_be_read_is_named_and_ends_with_4(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "a.jsonl").write_bytes(line_of("hello"))
    opened = os.open

    def refusing(path: str | Path, *args: Any, **more: Any) -> int:
        if Path(path).name == "a.jsonl":
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, *args, **more)

    monkeypatch.setattr(os, "open", refusing)
    done = crystal("secrets")
    assert done.code == 4
    assert "a.jsonl" in done.err


def test_other_folders_are_read_when_named_and_a_missing_one_is_refused(project: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "b.jsonl").write_bytes(line_of("password=hunter2"))
    assert crystal("secrets", str(tmp_path / "other")).code == 1
    assert crystal("secrets").code == 0
    assert project.is_dir()
    assert "nowhere does not exist" in crystal("secrets", str(tmp_path / "nowhere")).err


@pytest.mark.slow
def test_a_secret_that_older_rules_let_through_is_found_in_the_memory_and_gone_after_the_advice(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = samples.FORMATS["gitlab-token"](4)
    crystal("init", "--yes")
    set_value(home / ".config" / "crystal" / "config.toml", "embedding.provider", "none")
    keep_transcript(home, str(uuid.UUID(int=1)), said("what stands before it stays"), said(f"deploy with {TOKEN} now"))
    with monkeypatch.context() as older:
        older.setattr("crystal.redact.prefilter._LOOKING", ())
        older.setattr("crystal.redact.redactor.secret_prefilter", private_prefilter)
        crystal("sync")
        crystal("remember", f"the runner has {other}")

    done = crystal("secrets", "--kept", "--json")
    answer = json.loads(done.out)
    assert (done.code, answer["secrets"]) == (1, 2)
    assert [(row["kind"], row["count"], bool(row["session"])) for row in answer["found"]] == [
        ("github-token", 1, True),
        ("gitlab-token", 1, False),
    ]
    plain = crystal("secrets", "--kept")
    assert not any(secret in done.out + plain.out + plain.err for secret in (TOKEN, other, TOKEN[4:12]))
    advice = plain.err.partition("then run: crystal ")[2].split()
    assert advice[-1] == "--prove"
    forgotten = crystal(*advice, "--yes")
    assert (forgotten.code, "proved" in forgotten.out) == (0, True), forgotten
    assert crystal("secrets", "--kept").out == "no secrets in the memory\n"
    assert "what stands before it stays" in crystal("search", "stands before").out
    assert crystal("secrets", "--kept", ".").code == 2


def test_the_advice_for_thousands_of_secrets_is_one_short_command(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    crystal("init", "--yes")
    rows = [KeptSecret(f"id-{at // 2}", "s", "github-token", 1) for at in range(4_000)]
    monkeypatch.setattr("crystal.cli.secrets.find_kept", lambda *_: iter(rows))
    first, advice = crystal("secrets", "--kept").err.splitlines()
    assert first.endswith("the first 50 of 2,000 ids; then once more: crystal secrets --kept")
    words = advice.partition("then run: crystal ")[2].split()
    assert words == ["forget", *(f"id-{at}" for at in range(50)), "--prove"]


@pytest.mark.slow
def test_an_archive_that_cannot_be_read_is_named(home: Path) -> None:
    crystal("init", "--yes")
    keep_transcript(home, str(uuid.UUID(int=1)), said("hello"))
    crystal("sync")
    (archived,) = home.glob(".ldm/agents/*/memory/transcripts/*.jsonl.zst")
    archived.write_bytes(b"\0" * archived.stat().st_size)
    done = crystal("secrets", "--kept")
    assert (done.code, done.out) == (4, "no secrets in what can be read of the memory\n")
    assert archived.name in done.err
