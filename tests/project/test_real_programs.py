"""A real program that cannot be had, or never answers, costs its end-to-end tests its patience once; not each of them."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e import programs
from tests.e2e.programs import NoAnswer, NoClient, cache_folder, installed, run_to_end
from tests.support.whole_memory import ROOT, wait_until

FOR_EVER = f"#!/bin/sh\necho $$ >> {{calls}}\n'{sys.executable}' -c 'import time; time.sleep(600)'\n"
INSTALLS = """#!/bin/sh
echo $$ >> {calls}
[ "$1" = install ] || exit 0
mkdir -p "$3/node_modules/.bin"
printf '#!/bin/sh\\nexit 3\\n' > "$3/node_modules/.bin/stone"
chmod +x "$3/node_modules/.bin/stone"
"""


@pytest.fixture
def calls(tmp_path: Path) -> Path:
    return tmp_path / "calls"


def play_npm(text: str, calls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    npm = calls.with_name("bin") / "npm"
    npm.parent.mkdir()
    npm.write_text(text.format(calls=calls))
    npm.chmod(0o755)
    monkeypatch.setattr(programs, "ENVIRON", {"PATH": f"{npm.parent}{os.pathsep}{os.environ['PATH']}"})


def ask(program: Path) -> None:
    done = run_to_end([program], 0.5, program.parent, os.environ)
    assert done.returncode == 0, f"it ended with {done.returncode}"


def test_programs_are_installed_outside_every_tests_home(home: Path) -> None:
    assert cache_folder({"HOME": "/home/me"}) == Path("/home/me/.cache/crystal-e2e")
    assert cache_folder({"HOME": "/home/me", "XDG_CACHE_HOME": "/caches"}) == Path("/caches/crystal-e2e")
    assert cache_folder({"HOME": "/home/me", "CRYSTAL_E2E_CACHE": "/there"}) == Path("/there")
    assert not cache_folder().is_relative_to(home)


@pytest.mark.slow
def test_an_npm_that_hangs_is_waited_for_once_and_killed_with_its_children(calls, tmp_path, monkeypatch):
    play_npm(FOR_EVER, calls, monkeypatch)
    monkeypatch.setattr(programs, "NPM_SECONDS", 2.0)
    for _ in range(3):
        with pytest.raises(NoClient, match=r"npm could not install stone@1: npm view .* did not end within 2 s"):
            installed("stone", ["stone@1"], "stone", tmp_path / "cache", ask)
    (leader,) = calls.read_text().split()
    wait_until(lambda: subprocess.run(["pgrep", "-g", leader], check=False, stdout=-3).returncode, "its end")
    assert not (tmp_path / "cache" / "stone-1").exists()


def test_a_program_that_gives_no_answer_is_asked_once_until_that_is_old(calls, tmp_path, monkeypatch):
    play_npm(INSTALLS, calls, monkeypatch)
    for _ in range(3):
        with pytest.raises(NoAnswer, match="stone@1 does not answer: it ended with 3"):
            installed("stone", ["stone@1"], "stone", tmp_path / "cache", ask)
    program = tmp_path / "cache/stone-1/node_modules/.bin/stone"
    program.write_text(FOR_EVER.format(calls=calls))
    note = tmp_path / "cache/stone-1.lock"
    os.utime(note, (0, 0))
    with pytest.raises(NoAnswer, match="does not answer: stone  did not end within"):
        installed("stone", ["stone@1"], "stone", tmp_path / "cache", ask)
    program.write_text("#!/bin/sh\n")
    note.unlink()
    assert installed("stone", ["stone@1"], "stone", tmp_path / "cache", ask) == program


@pytest.mark.slow
def test_why_a_test_failed_is_printed_while_others_run(tmp_path: Path) -> None:
    (tmp_path / "test_two.py").write_text(
        "import time\ndef test_bad():\n    assert 1 == 2, 'because of the moon'\ndef test_long():\n    time.sleep(60)\n"
    )
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "tests.conftest",
        "-n",
        "2",
        "--rootdir",
        str(tmp_path),
        str(tmp_path),
    ]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, cwd=ROOT, text=True, start_new_session=True, **pipes) as process:
        assert process.stdout
        printed = list(itertools.takewhile(lambda line: "because of the moon" not in line, process.stdout))
        os.killpg(process.pid, signal.SIGKILL)
    assert any("test_bad, call, 0 s:" in line for line in printed), printed
    assert not any("FAILURES" in line for line in printed), printed
