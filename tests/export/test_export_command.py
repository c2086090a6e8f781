"""Claims of ``crystal export``: what it chooses, that it writes all or nothing, privately, and what it refuses."""

import errno
import io
import json
import stat
import sys

import pytest

from crystal.export import jsonl
from tests.support.command import crystal
from tests.support.exports import SESSION, exported, records, remember
from tests.support.table import each_row

OTHER = "11111111-5b0e-4d6e-9d19-1a3c1c1d1a11"


@pytest.fixture
def memory(home):
    remember(home, ["Which port?", "4711."])
    remember(home, ["What is for lunch?", "Soup."], session=OTHER, cwd="/home/me/kitchen")


def names(folder):
    return [one["id"] for one in records(folder / "export.jsonl") if one["type"] == "session"]


@each_row(
    ("words", "chosen"),
    [
        (["--all"], {SESSION, OTHER}),
        (["--session", SESSION[:6]], {SESSION}),
        (["--project", "kitchen"], {OTHER}),
        (["--project", "shop", "--since", "2026-11-20"], {SESSION}),
    ],
)
def test_the_filters_choose_whole_sessions(memory, tmp_path, words, chosen):
    folder = tmp_path / "".join(words)
    exported(folder, "jsonl", *words)
    assert set(names(folder)) == chosen


def test_only_the_owner_can_read_what_is_written(memory, tmp_path):
    for form in ("jsonl", "markdown", "html"):
        exported(tmp_path / form, form)
        assert stat.S_IMODE((tmp_path / form).stat().st_mode) == 0o700
        assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / form).iterdir()} == {0o600}


def test_json_says_what_was_written(memory, tmp_path):
    done = json.loads(exported(tmp_path / "out", "html", "--all", "--json").out)
    size = (tmp_path / "out" / "crystal.html").stat().st_size
    assert done == {
        "schema": 1, "folder": str(tmp_path / "out"), "form": "html", "sealed": False, "sessions": 2, "turns": 4,
        "files": 1, "bytes": size, "notes": [],
    }  # fmt: skip


@each_row(
    ("words", "message"),
    [
        (["--as", "jsonl"], "nothing is chosen to export"),
        (["--as", "pdf", "--all"], "--as is 'pdf'"),
        (["--as", "jsonl", "--all", "--project", "shop"], "do not go together"),
        (["--as", "jsonl", "--all", "--sealed"], "--sealed does not go with --as jsonl"),
        (["--as", "html", "--all", "--sealed"], "the passphrase is missing"),
        (["--as", "jsonl", "--since", "never"], "--since"),
    ],
)
def test_a_wrong_request_is_refused_and_nothing_written(memory, tmp_path, words, message):
    done = crystal("export", *words, "--to", str(tmp_path / "out"))
    assert done.code == 2
    assert message in done.err
    assert not list(tmp_path.glob("out*"))


def test_what_is_not_there_is_said(memory, tmp_path):
    done = crystal("export", "--as", "jsonl", "--project", "nowhere", "--to", str(tmp_path / "out"))
    assert done.code == 1
    assert "no session is chosen" in done.err
    assert not (tmp_path / "out").exists()


def test_a_folder_with_something_in_it_is_not_touched_an_empty_one_is_filled(memory, tmp_path):
    (tmp_path / "out").mkdir()
    exported(tmp_path / "out", "jsonl")
    before = (tmp_path / "out" / "export.jsonl").read_bytes()
    done = crystal("export", "--all", "--as", "markdown", "--to", str(tmp_path / "out"))
    assert (done.code, "exists already" in done.err) == (2, True)
    assert (tmp_path / "out" / "export.jsonl").read_bytes() == before


def test_a_full_disk_leaves_nothing_half(memory, tmp_path, monkeypatch):
    written = []

    def put(file, record):
        written.append(record)
        if len(written) == 5:
            raise OSError(errno.ENOSPC, "No space left on device")
        file.write(json.dumps(record).encode() + b"\n")

    monkeypatch.setattr(jsonl, "_put", put)
    done = crystal("export", "--all", "--as", "jsonl", "--to", str(tmp_path / "out"))
    assert done.code == 4
    assert "no space left" in done.err
    assert not list(tmp_path.glob("out*"))


def test_another_export_to_the_same_folder_is_noticed(memory, tmp_path):
    (tmp_path / "out.partial").mkdir()
    done = crystal("export", "--all", "--as", "jsonl", "--to", str(tmp_path / "out"))
    assert (done.code, "delete it" in done.err) == (2, True)
    assert (tmp_path / "out.partial").exists()


def test_the_passphrase_comes_by_standard_input_and_a_short_one_is_remarked(monkeypatch, capsys):
    from crystal.cli.export import _read_passphrase

    monkeypatch.setattr(sys, "stdin", io.StringIO(" with spaces \nmore\n"))
    assert _read_passphrase() == " with spaces "
    assert not capsys.readouterr().err
    monkeypatch.setattr(sys, "stdin", io.StringIO("short\n"))
    assert _read_passphrase() == "short"
    assert "can be guessed" in capsys.readouterr().err
