"""Claims of the open form: nothing is lost, another crystal imports it exactly, once, and what is private stays so."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal.errors import DamagedError, UsageError
from crystal.model.capture import Origin
from crystal.store.capture import ledger
from tests.support import agent_samples as samples
from tests.support.command import crystal
from tests.support.examples import examples
from tests.support.exports import (
    SESSION,
    exported,
    kept_sessions,
    records,
    remember,
    remember_samples,
    take,
    transcript_line,
)
from tests.support.homes import live_in

SCHEMA = Path(__file__).parents[2] / "docs" / "spec" / "export-format.schema.json"


def other_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str = "other") -> None:
    home = tmp_path / name
    home.mkdir()
    live_in(home, monkeypatch)


def sessions_by_id() -> dict[str, object]:
    found = json.loads(crystal("sessions", "-n", "500", "--json").out)["sessions"]
    return {session["id"]: session for session in found}


def body(path: Path) -> bytes:
    return path.read_bytes().partition(b"\n")[2]


@pytest.mark.slow
def test_every_agents_memory_survives_export_and_import_byte_for_byte(home, tmp_path, monkeypatch):
    remember_samples(home, samples.sampled())
    exported(tmp_path / "a", "jsonl")
    shown = sessions_by_id()
    other_home(tmp_path, monkeypatch)
    first = take(tmp_path / "a" / "export.jsonl")
    assert first.turns > 200
    assert (again := take(tmp_path / "a" / "export.jsonl")).turns == again.bytes_captured == 0
    exported(tmp_path / "b", "jsonl")
    assert body(tmp_path / "a" / "export.jsonl") == body(tmp_path / "b" / "export.jsonl")
    assert sessions_by_id() == shown
    assert crystal("sync").code == 0, "it meets the folder of a project that it did not know"
    proved = json.loads(crystal("verify", "--json").out)
    assert (proved["faults"], proved["percent"]) == ([], 100)


@pytest.mark.slow
def test_every_line_follows_the_schema_the_end_counts_them_and_importing_them_here_adds_nothing(home, tmp_path):
    remember_samples(home)
    exported(tmp_path / "a", "jsonl")
    judge = jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text("utf-8")))
    of_type = {form["properties"]["type"]["const"]: judge.evolve(schema=form) for form in judge.schema["oneOf"]}
    assert len(of_type) == len(judge.schema["oneOf"])  # so a line is right if it is right for its type
    found = records(tmp_path / "a" / "export.jsonl")
    for one in found:
        of_type[one["type"]].validate(one)
    lines = [one for one in found if one["type"] == "line"]
    assert found[-1] == {"type": "end", "sessions": kept_sessions(), "lines": len(lines)}
    said = {(turn["uuid"], turn["part"]) for line in lines for turn in line["turns"]}
    sessions = [one["id"] for one in found if one["type"] == "session"]
    shown = [json.loads(crystal("show", one, "--json").out)["turns"] for one in sessions]
    assert {(turn["uuid"], turn["part"]) for turns in shown for turn in turns} <= said
    tally = take(tmp_path / "a" / "export.jsonl")
    assert (tally.turns, tally.bytes_captured, tally.bytes_private) == (0, 0, 0)


def test_a_newer_export_adds_only_what_is_new(home, tmp_path, monkeypatch):
    remember(home, ["one", "two"])
    exported(tmp_path / "a", "jsonl")
    remember(home, ["one", "two", "three"])
    exported(tmp_path / "b", "jsonl")
    other_home(tmp_path, monkeypatch)
    assert take(tmp_path / "a" / "export.jsonl").turns == 2
    assert take(tmp_path / "b" / "export.jsonl").turns == 1
    exported(tmp_path / "c", "jsonl")
    assert body(tmp_path / "b" / "export.jsonl") == body(tmp_path / "c" / "export.jsonl")


def test_what_is_still_on_the_disk_is_not_imported_twice(home, tmp_path):
    remember(home, ["one", "two"])
    exported(tmp_path / "a", "jsonl")
    shutil.rmtree(home / ".ldm")
    assert crystal("init", "--yes", "--no-import").code == 0  # its transcript counts as there before crystal
    assert take(tmp_path / "a" / "export.jsonl").turns == 2
    with (home / ".claude" / "projects" / "w" / f"{SESSION}.jsonl").open("a", encoding="utf-8") as file:
        file.write(transcript_line("three", 2))
    assert crystal("sync").code == crystal("backfill", "--no-embed").code == 0
    shown = json.loads(crystal("show", SESSION, "--json").out)["turns"]
    assert [turn["text"] for turn in shown] == ["one", "two", "three"]
    assert crystal("verify").code == 0


def test_a_long_tool_result_is_whole(home, tmp_path):
    text = "x".join(str(number) for number in range(20_000))
    path = home / ".claude" / "projects" / "w" / f"{SESSION}.jsonl"
    path.parent.mkdir(parents=True)
    content = [{"type": "tool_result", "tool_use_id": "c", "content": text}]
    path.write_text(
        json.dumps(
            {
                "type": "user",
                "uuid": "u",
                "sessionId": SESSION,
                "cwd": "/w",
                "message": {"role": "user", "content": content},
            }
        )
        + "\n"
    )
    assert crystal("init", "--yes", "--no-import").code == 0
    assert crystal("backfill", "--no-embed").code == 0
    exported(tmp_path / "a", "jsonl")
    [line] = [one for one in records(tmp_path / "a" / "export.jsonl") if one["type"] == "line"]
    assert line["turns"][0]["text"] == text
    [shown] = json.loads(crystal("show", SESSION, "--json").out)["turns"]
    assert len(shown["text"]) < shown["full_length"] == len(text)


def test_what_was_forgotten_is_in_no_export_and_does_not_come_back(home, tmp_path):
    remember(home, ["keep this", "kept", "the word is xylophonium", "kept too"])
    exported(tmp_path / "before", "jsonl")
    done = crystal("forget", "--query", "xylophonium", "--yes")
    assert done.code == 0, done.err
    for form in ("jsonl", "markdown"):
        exported(tmp_path / form, form)
        assert all(b"xylophonium" not in path.read_bytes() for path in (tmp_path / form).iterdir())
    for _ in range(2):
        assert take(tmp_path / "before" / "export.jsonl").turns == 0
    assert "xylophonium" not in crystal("show", SESSION, "--full").out
    exported(tmp_path / "after", "jsonl")
    assert body(tmp_path / "jsonl" / "export.jsonl") == body(tmp_path / "after" / "export.jsonl")


def test_a_folder_that_is_private_here_is_left_out_and_secrets_are_removed_again(home, tmp_path, monkeypatch):
    remember(home, ["the port is 4711", "noted"])
    exported(tmp_path / "a", "jsonl")
    path = tmp_path / "a" / "export.jsonl"
    token = "ghp_" + "A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8"
    path.write_text(path.read_text("utf-8").replace("4711", token), "utf-8")
    other_home(tmp_path, monkeypatch)
    assert take(path).turns == 2
    assert token not in crystal("show", SESSION).out
    other_home(tmp_path, monkeypatch, "third")
    monkeypatch.setenv("CRYSTAL_PRIVATE_PROJECTS", "/home/me/shop")
    assert take(path).turns == 0


def test_two_machines_of_one_name_keep_both_continuations(home, tmp_path, monkeypatch):
    remember(home, ["one", "left"])
    exported(tmp_path / "a", "jsonl")
    text = (tmp_path / "a" / "export.jsonl").read_text("utf-8")
    other = [line.replace('"left\\"', '"rite\\"').replace('"left"', '"rite"') for line in text.splitlines()]
    ids = [one["turns"][0]["uuid"] for one in records(tmp_path / "a" / "export.jsonl") if one["type"] == "line"]
    (tmp_path / "b.jsonl").write_text("\n".join(line.replace(ids[1], ids[1][:-1] + "x") for line in other) + "\n")
    other_home(tmp_path, monkeypatch)
    assert take(tmp_path / "a" / "export.jsonl").turns == 2
    assert take(tmp_path / "b.jsonl").turns == 1
    assert take(tmp_path / "b.jsonl").turns == take(tmp_path / "a" / "export.jsonl").turns == 0
    shown = crystal("show", SESSION).out
    assert "left" in shown
    assert "rite" in shown
    assert crystal("verify").code == 0


def test_a_file_that_is_cut_off_or_no_export_says_so_and_keeps_what_came_before(home, tmp_path, monkeypatch):
    remember(home, ["one", "two"])
    remember(home, ["three", "four"], session=SESSION[:-1] + "2")
    exported(tmp_path / "a", "jsonl")
    path = tmp_path / "a" / "export.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    other_home(tmp_path, monkeypatch)
    (tmp_path / "cut").write_bytes(b"".join(lines[:-3]))
    with pytest.raises(DamagedError, match="is cut off"):
        take(tmp_path / "cut")
    assert len(json.loads(crystal("sessions", "--json").out)["sessions"]) == 1
    assert take(path).turns == 2
    (tmp_path / "torn").write_bytes(b"".join(lines)[:-80])
    with pytest.raises(DamagedError, match="line 11"):
        take(tmp_path / "torn")
    (tmp_path / "none").write_text("{}\n")
    with pytest.raises(UsageError, match="is no export"):
        take(tmp_path / "none")
    (tmp_path / "newer").write_bytes(lines[0].replace(b'"version":1', b'"version":2'))
    with pytest.raises(UsageError, match="version 2"):
        take(tmp_path / "newer")
    (tmp_path / "agent").write_bytes(b"".join(lines).replace(b'"agent":"cc', b'"agent":"../cc'))
    with pytest.raises(UsageError, match="agent id"):
        take(tmp_path / "agent")


def test_an_agent_that_this_version_does_not_know_is_named_and_the_rest_imported(home, tmp_path, monkeypatch):
    remember(home, ["one", "two"])
    exported(tmp_path / "a", "jsonl")
    path = tmp_path / "a" / "export.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    strange = [
        line.replace(b'"claude-code"', b'"abacus"').replace(b'"key":"', b'"key":"abacus/') for line in lines[1:-1]
    ]
    end = json.dumps({"type": "end", "sessions": 2, "lines": 4}).encode() + b"\n"
    path.write_bytes(b"".join([lines[0], *strange, *lines[1:-1], end]))
    other_home(tmp_path, monkeypatch)
    tally = take(path)
    assert tally.turns == 2
    assert "abacus cannot be read here" in str(tally.problems)


ANY = st.text(st.characters() | st.sampled_from('\ud800\0\u2028\r\n`<>\\"')) | st.sampled_from(
    ["</script>", "<!--", "```\n", "\ud83d", "\0", "\u2028", "> ", "---\n"]
)


@examples(3)
@given(st.lists(ANY.map(lambda text: "say " + text), min_size=20, max_size=60))
def test_any_text_survives_exactly(texts: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        other_home(Path(folder), patch, "here")
        remember(Path(folder, "here"), texts)
        exported(Path(folder, "a"), "jsonl")
        lines = [one for one in records(Path(folder, "a", "export.jsonl")) if one["type"] == "line"]
        shown = json.loads(crystal("show", SESSION, "--json").out)["turns"]
        # What the store keeps, exactly; the archived line has lone surrogates and NUL as they were said.
        assert [turn["text"] for line in lines for turn in line["turns"]] == [turn["text"] for turn in shown]
        raw = [json.loads(line["raw"])["message"]["content"] for line in lines]
        archived = [json.loads(line)["message"]["content"] for line in crystal_raw()]
        assert raw == archived
        other_home(Path(folder), patch, "there")
        take(Path(folder, "a", "export.jsonl"))
        exported(Path(folder, "b"), "jsonl")
        assert body(Path(folder, "a", "export.jsonl")) == body(Path(folder, "b", "export.jsonl"))


def crystal_raw() -> list[bytes]:
    from crystal.app.context import open_reader
    from crystal.integrity.restore import archived_lines

    with open_reader() as machine:
        [state] = ledger.all_states(machine.store)
        assert isinstance(state.origin, Origin)
        return list(archived_lines(machine.store, state, machine.places.ldm_home))
