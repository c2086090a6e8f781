"""What a person at a terminal gets: hits by place, a pager, wrapped lines, a guess at what was mistyped, completion."""

from __future__ import annotations

import builtins
import fcntl
import io
import os
import pty
import re
import shlex
import struct
import subprocess
import sys
import termios

import pytest

from crystal import __main__ as program
from crystal.cli import last_search, render
from crystal.cli.confirm import confirm
from crystal.cli.pager import pager_command
from crystal.cli.sessions import _title
from crystal.config.harnesses import CLAUDE_CODE
from crystal.errors import NotFoundError, UsageError
from crystal.sessions.reading import SessionSummary
from tests.support.capture_machine import keep_transcript, line
from tests.support.command import Terminal, crystal
from tests.support.table import each_row

PYTHON = shlex.quote(sys.executable)


# ------------------------------------------------------------------------------------------------------------ places


def test_a_place_of_the_last_search_is_a_hit(tmp_path):
    last_search.remember_hits(tmp_path, ["h40", "mem-0123456789ab", "m7"])
    assert last_search.named_by_place(tmp_path, "1") == "h40"
    assert last_search.named_by_place(tmp_path, " @2 ") == "mem-0123456789ab"
    assert last_search.named_by_place(tmp_path, "h2") == "h2"
    assert last_search.named_by_place(tmp_path, "5b1f") == "5b1f"
    assert last_search.named_by_place(tmp_path, "5012") == "5012"  # the beginning of a session's id
    for place in ("@4", "4", "99", "@0", "0", "123", "@99999999999"):
        with pytest.raises(NotFoundError, match=f"there is no hit {place}: the last search here had 3 hits"):
            last_search.named_by_place(tmp_path, place)
    with pytest.raises(UsageError):
        last_search.named_by_place(tmp_path, "@x")
    last_search.remember_hits(tmp_path, [])
    with pytest.raises(NotFoundError, match="the last search here had no hits"):
        last_search.named_by_place(tmp_path, "@1")


@pytest.mark.slow
def test_a_search_whose_output_is_cut_has_places_too(home, monkeypatch):
    crystal("init", "--yes")
    crystal("remember", "we deploy on Fridays")

    def cut(*_, **__):
        raise BrokenPipeError

    monkeypatch.setattr("crystal.cli.run_search._print", cut)
    with pytest.raises(BrokenPipeError):
        crystal("search", "deploy")
    assert "we deploy on Fridays" in crystal("show", "@1").out


def test_each_terminal_has_its_own_last_search(tmp_path, monkeypatch):
    for terminal in range(40):
        monkeypatch.setattr(last_search.os, "getsid", lambda _, number=terminal: number)
        last_search.remember_hits(tmp_path, [f"h{terminal}"])
    assert last_search.named_by_place(tmp_path, "1") == "h39"
    monkeypatch.setattr(last_search.os, "getsid", lambda _: 30)
    assert last_search.named_by_place(tmp_path, "@1") == "h30"
    monkeypatch.setattr(last_search.os, "getsid", lambda _: 1)  # the oldest are dropped
    assert last_search.named_by_place(tmp_path, "1") == "1"  # a script means a hit's number, a person a place
    with pytest.raises(NotFoundError, match="no search in this terminal has found"):
        last_search.named_by_place(tmp_path, "1", by_person=True)
    with pytest.raises(NotFoundError, match="no search in this terminal has found"):
        last_search.named_by_place(tmp_path, "@1")


@each_row("content", [b"", b"[]", b'{"1": 2}', b"\xff"])
def test_a_broken_list_of_hits_is_as_none(tmp_path, content):
    (tmp_path / last_search.FILE).write_bytes(content)
    assert last_search.named_by_place(tmp_path, "1") == "1"
    last_search.remember_hits(tmp_path, ["h1"])
    assert last_search.named_by_place(tmp_path, "@1") == "h1"


def test_the_list_of_hits_is_private_and_says_that_it_cannot_be_written(tmp_path):
    last_search.remember_hits(tmp_path, ["h1"])
    assert (tmp_path / last_search.FILE).stat().st_mode & 0o777 == 0o600
    with pytest.raises(FileNotFoundError):
        last_search.remember_hits(tmp_path / "gone", ["h1"])


@pytest.mark.slow
def test_show_opens_the_hit_at_a_place(home):
    crystal("init", "--yes")
    crystal("remember", "the lift is out of order")
    assert crystal("show", "@1").code == 1
    assert crystal("search", "lift").code == 0
    assert "the lift is out of order" in crystal("show", "1").out
    assert "the lift is out of order" in crystal("show", "@1").out


def test_what_is_deleted_is_never_guessed_from_a_bare_number(tmp_path):
    assert last_search.named_to_delete(tmp_path, "2") == "2"  # a hit's number, where nothing was searched
    last_search.remember_hits(tmp_path, ["h7", "h9"])
    assert last_search.named_to_delete(tmp_path, "@2") == "h9"
    assert [last_search.named_to_delete(tmp_path, name) for name in ("h2", "mem-1", "1234")] == ["h2", "mem-1", "1234"]
    with pytest.raises(UsageError, match="2 may be a place in the last search, or a hit's number") as refused:
        last_search.named_to_delete(tmp_path, " 2 ")
    assert refused.value.hint == "the place: crystal forget @2; the number: crystal forget h2"


@pytest.mark.slow
def test_restore_takes_the_place_of_a_hit_as_show_and_handoff_do(home):
    """Not the one session whose id begins with that digit."""
    other, meant = "1ecba475-5b18-4058-a0cb-e87703f6f792", "5b1f8c2e-6d0a-4c55-9e5f-0d1c2b3a4f50"
    files = keep_transcript(home, other, line("a marble quarry")), keep_transcript(home, meant, line("a basalt quarry"))
    assert crystal("init", "--yes", "--import", "--wait").code == 0
    for file in files:
        file.unlink()
    hit = re.search(r"crystal show (h\d+)", crystal("search", "basalt").out)
    assert hit
    for wanted in ("1", "@1", hit[1], "5b1f"):
        done = crystal("restore", wanted, "--dry-run")
        assert (done.code, meant in done.out, other in done.out) == (0, True, False), (wanted, done)


def test_a_person_who_names_a_place_that_is_not_there_is_told_how_many_there_are(tmp_path):
    last_search.remember_hits(tmp_path, ["h7", "h9"])
    with pytest.raises(NotFoundError, match="there is no hit 99: the last search here had 2 hits") as refused:
        last_search.named_by_place(tmp_path, "99", by_person=True)
    assert refused.value.hint == "hits are 1 to 2; try: crystal show 2; by its number in the memory: crystal show h99"
    for place in ("@3", "@0", "@00"):
        with pytest.raises(NotFoundError) as refused:
            last_search.named_by_place(tmp_path, place)
        assert refused.value.hint == "hits are @1 to @2; try: crystal show @2"
    assert last_search.named_by_place(tmp_path, "2", by_person=True) == "h9"


def test_the_head_of_a_session_loses_neither_its_time_nor_its_turns_on_a_narrow_terminal():
    session = SessionSummary("5" * 36, "A title", "shop", "/shop", "main", "cc", CLAUDE_CODE, "vm", 0, 0, 13)
    title, *facts = _title(session, 0, render.Look(44, colour=False, is_terminal=True))
    assert (title, len(facts)) == ("A title", 2)
    assert facts[-1].endswith("13 turns")
    assert all(len(line) <= 44 for line in facts)


# ------------------------------------------------------------------------------------------------------------- pager


def test_a_pager_is_used_on_a_terminal_only_and_if_it_is_there():
    assert pager_command({}, io.StringIO()) is None
    assert pager_command({"PAGER": PYTHON + " -c 'x y'"}, Terminal()) == [sys.executable, "-c", "x y"]
    assert pager_command({"PAGER": PYTHON, "CRYSTAL_PAGER": "cat"}, Terminal()) is None
    for env in ({"PAGER": ""}, {"PAGER": "no-such-pager"}, {"PAGER": "'"}, {"TERM": "dumb", "PAGER": PYTHON}):
        assert pager_command(env, Terminal()) is None, env


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pager", "code", "expected"),
    [
        ("sys.stdout.write(sys.stdin.read().upper())", 0, "LINE 1999"),
        ("sys.stdin.readline()", 0, ""),
        ("sys.exit(3)", 0, ""),
    ],
)
def test_a_pager_may_end_early(tmp_path, pager, code, expected):
    script = tmp_path / "pager.py"
    script.write_text(f"import sys\n{pager}\n")
    program = "from crystal.cli.pager import say_paged\nsay_paged((f'line {n}' for n in range(2000)), enabled=True)"
    env = {
        **os.environ,
        "PAGER": f"{PYTHON} {shlex.quote(str(script))}",
        "TERM": "xterm",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    leader, follower = pty.openpty()
    with subprocess.Popen([sys.executable, "-c", program], stdout=follower, stderr=subprocess.PIPE, env=env) as process:
        os.close(follower)
        shown = bytearray()
        while True:
            try:
                piece = os.read(leader, 65536)
            except OSError:  # Linux says so when the last writer has closed
                break
            if not piece:
                break
            shown += piece
        assert process.stderr is not None
        assert (process.wait(), process.stderr.read()) == (code, b"")
    os.close(leader)
    assert expected in shown.decode()


# ------------------------------------------------------------------------------------------------------------- lines


def test_items_are_wrapped_between_words_on_a_terminal_and_whole_elsewhere(capsys):
    text = "one two three four five six seven eight nine ten"
    render.say(
        *render.item("FAIL ", text, render.Look(30, colour=True, is_terminal=True), style=lambda label: f"<{label}>")
    )
    assert capsys.readouterr().out == "<FAIL >one two three four five\n     six seven eight nine ten\n"
    render.say(
        *render.item("ok ", "in /a/path/longer/than/the/line/is.db", render.Look(30, colour=False, is_terminal=True))
    )
    assert capsys.readouterr().out == "ok in\n   /a/path/longer/than/the/line/is.db\n"
    render.say(
        *render.item("", "2 wait (run: crystal sources sync && crystal sync); mend", render.Look(30, False, True))
    )
    assert capsys.readouterr().out == "2 wait (run:\ncrystal sources sync && crystal sync);\nmend\n"
    render.say(*render.item("FAIL ", text, render.Look(30, colour=False), style=lambda label: f"<{label}>"))
    assert capsys.readouterr().out == f"FAIL {text}\n"


def test_an_error_is_wrapped_between_words_on_a_terminal_and_one_line_in_a_pipe(home, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    words = [sys.executable, "-m", "crystal", "config", "set", "deep.provider", "nonsense"]
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 50, 0, 0))
    subprocess.run(words, stdout=subprocess.DEVNULL, stderr=follower, check=False)
    os.close(follower)
    shown = os.read(leader, 65536).decode().splitlines()
    os.close(leader)
    assert max(map(len, shown)) <= 50, shown
    piped = subprocess.run(words, capture_output=True, text=True, check=False).stderr.splitlines()
    assert (len(piped), len(piped[0]) > 80) == (1, True)
    assert " ".join(" ".join(shown).split()) == " ".join(piped)


def test_a_command_in_a_hint_stays_whole(capsys, monkeypatch):
    monkeypatch.setattr(render, "look_of", lambda _: render.Look(40, colour=False, is_terminal=True))
    render.hint("sudo chown -R me /a/folder/of/somebody (it belongs to root)")
    render.hint("crystal cannot read them; once it can, run: crystal verify --repair")
    assert capsys.readouterr().err == (
        "crystal: hint: sudo chown -R me /a/folder/of/somebody\n"
        "               (it belongs to root)\n"
        "crystal: hint: crystal cannot read them;\n"
        "               once it can, run:\n"
        "               crystal verify --repair\n"
    )


def test_a_coloured_name_is_not_counted_wider_than_it_is(home, tmp_path, monkeypatch):
    (tmp_path / "notes").mkdir()
    crystal("init", "--yes")
    crystal("sources", "add", str(tmp_path / "notes"))
    monkeypatch.setattr(io, "StringIO", Terminal)
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    coloured = crystal("sources").out
    monkeypatch.setenv("NO_COLOR", "1")
    plain = crystal("sources").out
    assert "\x1b[" in coloured
    assert len(plain.splitlines()) > 1
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == plain


def test_the_agent_id_is_asked_for_once(home, monkeypatch):
    asked = []
    monkeypatch.setattr("crystal.cli.init.typer.prompt", lambda words, default, **_: asked.append(words) or default)
    monkeypatch.setattr("crystal.cli.init.typer.confirm", lambda *_, **__: False)
    monkeypatch.setattr(io, "StringIO", Terminal)
    assert crystal("init").code == 0
    assert crystal("init", "--client", "claude-code").code == 0
    assert asked == ["agent id of this machine"]


def test_ctrl_c_while_the_command_line_loads_is_no_traceback(monkeypatch):
    def interrupted(name, *rest):
        if name == "crystal.cli.app":
            raise KeyboardInterrupt
        return original(name, *rest)

    original = builtins.__import__
    monkeypatch.setattr(builtins, "__import__", interrupted)
    monkeypatch.setattr("sys.argv", ["crystal", "backfill"])
    with pytest.raises(SystemExit) as end:
        program.main()
    assert end.value.code == 130


def test_ctrl_c_before_the_import_says_what_is_done(home, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("crystal.cli.init.plan_import", interrupted)
    done = crystal("init", "--yes", "--import")
    assert (done.code, done.err) == (
        130, "crystal: note: stopped: crystal is set up, and imported nothing; to import: crystal backfill\n"
    )  # fmt: skip


def test_what_would_happen_is_shown_line_by_line_where_nobody_can_be_asked(capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO())
    with pytest.raises(UsageError, match=r"no terminal$"):
        confirm("write?", yes=False, consequence="AGENTS.md\n+ a line")
    assert capsys.readouterr().err == "AGENTS.md\n+ a line\n"


# ------------------------------------------------------------------------------------------------------------ guesses


@each_row("group", ["access", "assist", "files", "recall", "vault"])
def test_a_group_without_a_command_shows_its_help(group):
    done = crystal(group)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"Usage: crystal {group} [OPTIONS] COMMAND")
    assert "\nCommands:\n" in done.err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (["serach"], "no such command 'serach'", "did you mean: crystal search"),
        (["projects", "list"], "no such command 'list'", "did you mean: crystal projects"),
        (["devices", "renam"], "no such command 'renam'", "did you mean: crystal devices rename"),
        (["why does it fail"], "no such command 'why does it fail'", 'to search: crystal search "why does it fail"'),
        (["xyzzy"], "no such command 'xyzzy'", "run: crystal --help"),
        (["day"], "no such command 'day'", "run: crystal --help"),
        (["completion"], "missing argument 'SHELL'. Choose from: bash, zsh, fish", "run: crystal completion --help"),
        (["import", "/dev/zero"], "/dev/zero is no regular file and no folder", "give a .zip or conversations.json"),
        (["completion", "tcsh"], "'tcsh' is not one of", "run: crystal completion --help"),
        (
            ["init", "--client", "vscode"],
            "crystal does not know the client 'vscode'",
            "Any other: crystal init --print",
        ),
        (["search", "x", "--role", "human"], "--role is 'human', which is not a role", "use user, assistant, thinking"),
    ],
)
def test_a_mistake_is_told_with_what_was_probably_meant(home, words, message, hint):
    crystal("init", "--yes")
    done = crystal(*words)
    assert (done.code, done.out) == (2, "")
    assert message in done.err
    assert hint in done.err


@each_row("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_is_printed(shell):
    done = crystal("completion", shell)
    assert done.code == 0
    assert "_CRYSTAL_COMPLETE=complete_" + shell in done.out


@pytest.mark.slow
def test_the_shell_is_told_commands_and_options(home):
    def complete(words: str, at: int) -> list[str]:
        env = {**os.environ, "_CRYSTAL_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(at)}
        done = subprocess.run([sys.executable, "-m", "crystal"], env=env, capture_output=True, text=True, check=True)
        return done.stdout.split()

    assert set(complete("crystal se", 1)) == {"search", "secrets", "sessions"}
    assert complete("crystal search --l", 2) == ["--limit"]
