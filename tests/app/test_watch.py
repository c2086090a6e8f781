"""The real watcher on real files: what is written is found at once, whenever its folder appears."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from crystal.app import watch
from crystal.app.context import default_paths
from crystal.capture.lock import try_lock
from crystal.sources import watch as changes
from tests.support.agent_samples import lay_out
from tests.support.command import crystal
from tests.support.whole_memory import wait_until

pytest.importorskip("watchfiles")


@pytest.fixture
def watching(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """A watcher that looks for new folders often; the bytes that it captured."""
    for name, value in (("LOOK_MS", 200), ("DEBOUNCE_MS", 50)):
        monkeypatch.setattr(changes, name, value)
    monkeypatch.setattr(watch, "start_worker", lambda _: None)
    assert crystal("init", "--yes", "--no-import").code == 0
    captured: list[int] = []
    stop = threading.Event()
    thread = threading.Thread(
        target=watch.watch_agents, args=(lambda tally: captured.append(tally.bytes_captured), stop)
    )
    thread.start()
    yield captured
    stop.set()
    thread.join(60)
    assert not thread.is_alive()


def test_a_database_in_a_folder_that_appears_later_and_a_history_that_grows(watching: list[int], home: Path) -> None:
    lay_out("zed", home)
    wait_until(lambda: any(watching), "the new folder")
    history = home / ".aider.chat.history.md"
    history.write_text("# aider chat started at 2026-11-20 10:00:00\n\n#### what is quartz\n\n", "utf-8")
    wait_until(lambda: crystal("search", "quartz").out.count("what is quartz") == 1, "the new file")
    with history.open("a", encoding="utf-8") as file:
        file.write("A mineral of silicon.\n\n#### what is basalt\n\n")
    wait_until(lambda: "what is basalt" in crystal("search", "basalt").out, "its growth")


@pytest.mark.slow
def test_the_process_is_one_costs_nothing_while_nothing_happens_and_ends_cleanly(home: Path, ready: None) -> None:
    lay_out("zed", home)
    command = [sys.executable, "-m", "crystal", "watch"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "captured" in process.stdout.readline()
        second = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert (second.returncode, "crystal watch runs already" in second.stderr) == (4, True)
        wait_until(lambda: spent_in(1, process.pid) == 0, "the end of its first work")
        assert spent_in(5, process.pid) <= 0.05
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0


def test_what_runs_and_what_is_installed_is_told(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert crystal("watch", "--install").code == 3  # no memory yet
    assert crystal("init", "--yes", "--no-import").code == 0
    lay_out("zed", home)
    crystal("sync")
    assert "Zed: captured only when crystal sync runs\n      fix: crystal watch --install" in crystal("doctor").out
    assert "watching" not in crystal("status").out
    (tmp_path / "systemctl").write_text("#!/bin/sh\nexit 0\n")
    (tmp_path / "systemctl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    installed = crystal("watch", "--install")
    assert installed.out == "crystal watch runs now and after each login (systemd)\n"
    assert "FAIL  live: crystal watch is installed, but does not run" in crystal("doctor").out
    assert "does not run (fix: crystal watch --install)" in crystal("status").out
    with try_lock(default_paths().data_dir / "watch.lock"):
        assert "Zed: captured as soon as they write, by crystal watch" in crystal("doctor").out
        assert "agents without a hook: captured as soon as they write" in crystal("status").out
        assert "captured by crystal watch: Zed" in crystal("agents").out
    assert "the timer or watcher is removed" in crystal("uninstall").out
    assert crystal("watch", "--remove").out == "there is no crystal watcher\n"


@pytest.mark.parametrize("words", [("watch", "install", "remove"), ("sync", "install-timer", "remove-timer"),
                                   ("relay poll", "install-timer", "remove-timer")])  # fmt: skip
def test_a_dry_run_of_nothing_and_two_opposites_are_refused(words: tuple[str, str, str], home: Path) -> None:
    command, install, remove = words
    for options in (["--dry-run"], [f"--{install}", f"--{remove}"]):
        told = crystal(*command.split(), *options)
        assert (told.code, told.out) == (2, ""), options
        assert f"--{install} or --{remove}" in told.err
    assert not (home / ".ldm").exists()


def spent_in(seconds: float, process: int) -> float:
    """Return the processor time that a process spends in the next seconds."""
    before = processor_seconds(process)
    time.sleep(seconds)
    return processor_seconds(process) - before


def processor_seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text("utf-8").rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")
