"""The timer: texts that systemd, launchd and cron understand, and a machine that is as before when it is gone."""

from __future__ import annotations

import plistlib
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal.cli import timer as cli_timer
from crystal.errors import NotConfiguredError, UnavailableError, UsageError
from crystal.install import timer
from crystal.install.timer import Host, Job, Ran
from tests.support.table import each_row

AWKWARD = '/home/it\'s "me" 100% $HOME \\ ünï/python'
JOB = Job((AWKWARD, "-I", "-m", "crystal", "sync", "--quiet"), {"LDM_HOME": "/a b/50%$x"})
LATIN = "# t\xe4glich, in no encoding that we know\n"
WATCH = Job((AWKWARD, "-I", "-m", "crystal", "watch", "--quiet"), JOB.environment, timer.WATCH)
CRONTAB = "# mine\nMAILTO=me\n\n0 3 * * * backup  \n"


def ran(code: int, stdout: str = "", stderr: str = "") -> Ran:
    return Ran((), code, stdout, stderr)


class Machine:
    """A machine with the schedulers that the test gives it; it remembers what was run."""

    def __init__(self, *, systemd: bool = False, crontab: str | None = None, cron: bool = False) -> None:
        self.systemd, self.cron, self.crontab = systemd, cron or crontab is not None, crontab
        self.ran: list[str] = []
        self.failing = ""

    def run(self, words: Sequence[str], text: str | None) -> Ran:
        line = shlex.join(words)
        if line not in ("crontab -l", "systemctl --user show-environment"):
            self.ran.append(line)
        if self.failing and self.failing in line:
            return ran(1, "", "it does not work\nmore\n")
        if words[0] == "crontab":
            return self._crontab(words[1], text) if self.cron else ran(127, "", "not found")
        if words[0] == "systemctl":
            return ran(0) if self.systemd else ran(1, "", "Failed to connect to bus")
        return ran(0)

    def _crontab(self, how: str, text: str | None) -> Ran:
        if how == "-l":
            return ran(1, "", "no crontab for user\n") if self.crontab is None else ran(0, self.crontab)
        self.crontab = None if how == "-r" else text
        return ran(0)


@pytest.fixture
def linux(home: Path) -> Host:
    return Host("linux", home, home / ".config", 1000)


def files(home: Path) -> set[str]:
    return {str(path.relative_to(home)) for path in home.rglob("*") if path.is_file()}


# --- which


def test_systemd_comes_before_cron(linux: Host) -> None:
    assert timer.find_kind(linux, Machine(systemd=True, crontab="").run) == "systemd"
    assert timer.find_kind(linux, Machine(crontab="").run) == "cron"
    assert timer.find_kind(linux, Machine(cron=True).run) == "cron"  # no crontab yet


def test_a_mac_has_launchd(home: Path) -> None:
    assert timer.find_kind(Host("darwin", home, home / ".config", 501), Machine().run) == "launchd"


@each_row("platform", ["linux", "win32", "freebsd14"])
def test_no_scheduler_is_told_with_what_to_do_instead(home: Path, platform: str) -> None:
    with pytest.raises(NotConfiguredError) as told:
        timer.find_kind(Host(platform, home, home, 0), Machine().run)
    assert "crystal sync" in (told.value.hint or "")


# --- systemd


def test_systemd_gets_two_units_and_is_as_before_afterwards(linux: Host) -> None:
    machine = Machine(systemd=True)
    plan = timer.plan_install("systemd", JOB, linux, machine.run)
    assert (files(linux.home), machine.ran) == (set(), [])  # a plan does nothing
    timer.apply(plan, machine.run)
    units = {".config/systemd/user/crystal-sync.service", ".config/systemd/user/crystal-sync.timer"}
    assert files(linux.home) == units
    assert machine.ran == ["systemctl --user daemon-reload", "systemctl --user enable --now crystal-sync.timer"]
    timer.apply(timer.plan_install("systemd", JOB, linux, machine.run), machine.run)  # again
    machine.ran.clear()
    timer.apply(timer.plan_remove(linux, machine.run), machine.run)
    assert files(linux.home) == set()
    assert machine.ran == [
        "systemctl --user disable --now crystal-sync.timer",
        "systemctl --user stop crystal-sync.service",
        "systemctl --user daemon-reload",
    ]


def test_the_service_escapes_what_systemd_would_expand() -> None:
    service = timer.systemd_service(JOB)
    assert 'Environment="LDM_HOME=/a b/50%%$x"\n' in service
    escaped = '"/home/it\'s \\"me\\" 100%% $$HOME \\\\ ünï/python"'
    shell = '"/bin/sh" "-c" "exec \\"$$0\\" \\"$$@\\""'
    assert f'ExecStart={shell} {escaped} "-I" "-m" "crystal" "sync" "--quiet"\n' in service
    plain = timer.systemd_service(Job(("/a 100%/ü/python", "sync"), {}))
    assert 'ExecStart="/a 100%%/ü/python" "sync"\n' in plain


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize("name", ["plain", "a 100% ü", "a 100% \"b\" $HOME 'c' \\ d"])
def test_systemd_itself_understands_the_units(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    python = folder / "python"
    python.write_text("#!/bin/sh\n")
    python.chmod(0o755)
    (tmp_path / "crystal-sync.service").write_text(timer.systemd_service(Job((str(python), "sync"), JOB.environment)))
    (tmp_path / "crystal-sync.timer").write_text(timer.systemd_timer())
    watch = Job((str(python), "watch"), JOB.environment, timer.WATCH)
    (tmp_path / "crystal-watch.service").write_text(timer.systemd_service(watch))
    units = [str(tmp_path / name) for name in ("crystal-sync.service", "crystal-sync.timer", "crystal-watch.service")]
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *units], capture_output=True, text=True, check=False, timeout=60
    )
    ours = [line for line in done.stderr.splitlines() if "crystal" in line or str(tmp_path) in line]
    assert ours == []


# --- what runs all the time


def test_the_watcher_is_a_service_that_starts_at_login_and_is_as_before_afterwards(linux: Host) -> None:
    machine = Machine(systemd=True, crontab=CRONTAB)
    assert timer.find_kind(linux, machine.run, timer.WATCH) == "systemd"
    timer.apply(timer.plan_install("systemd", WATCH, linux, machine.run), machine.run)
    (unit,) = linux.files_of(timer.WATCH)
    text = unit.read_text("utf-8")
    assert unit.name == "crystal-watch.service"
    assert ("Restart=on-failure\n" in text, "WantedBy=default.target\n" in text, "oneshot" in text) == (
        True,
        True,
        False,
    )
    words = ("daemon-reload", "enable --now crystal-watch.service", "restart crystal-watch.service")
    assert machine.ran == [f"systemctl --user {one}" for one in words]
    assert timer.plan_remove(linux, machine.run, (timer.SWEEP, timer.POLL)) == ()
    timer.apply(timer.plan_remove(linux, machine.run, timer.SCHEDULES), machine.run)
    assert (files(linux.home), machine.crontab) == (set(), CRONTAB)


def test_launchd_starts_the_watcher_again_after_a_failure_alone(home: Path) -> None:
    host, machine = Host("darwin", home, home / ".config", 501), Machine()
    timer.apply(timer.plan_install("launchd", WATCH, host, machine.run), machine.run)
    job = plistlib.loads(host.plist_of(timer.WATCH).read_bytes())
    assert (job["KeepAlive"], job["RunAtLoad"], "StartInterval" in job) == ({"SuccessfulExit": False}, True, False)
    timer.apply(timer.plan_remove(host, machine.run, timer.SCHEDULES), machine.run)
    assert files(home) == set()


def test_cron_cannot_run_the_watcher_and_the_error_says_what_can(home: Path) -> None:
    for host in (Host(one, home, home, 0) for one in ("linux", "win32", "freebsd14")):
        with pytest.raises(NotConfiguredError, match="cannot run crystal watch by itself") as told:
            timer.find_kind(host, Machine(crontab=CRONTAB).run, timer.WATCH)
        assert "crystal watch --quiet; or capture every 15 minutes: crystal sync --install-timer" in (
            told.value.hint or ""
        )


# --- launchd


def test_launchd_gets_a_job_and_is_as_before_afterwards(home: Path) -> None:
    host, machine = Host("darwin", home, home / ".config", 501), Machine()
    timer.apply(timer.plan_install("launchd", JOB, host, machine.run), machine.run)
    job = plistlib.loads(host.plist_of(timer.SWEEP).read_bytes())
    assert job["ProgramArguments"] == list(JOB.words)
    assert job["EnvironmentVariables"] == JOB.environment
    assert (job["Label"], job["StartInterval"], job["RunAtLoad"]) == (timer.SWEEP.label, 900, True)
    assert machine.ran == [
        f"launchctl bootout gui/501/{timer.SWEEP.label}",
        f"launchctl bootstrap gui/501 {host.plist_of(timer.SWEEP)}",
    ]
    timer.apply(timer.plan_remove(host, machine.run), machine.run)
    assert files(home) == set()


# --- cron


def test_cron_gets_a_line_and_is_as_before_afterwards(linux: Host) -> None:
    machine = Machine(crontab=CRONTAB)
    timer.apply(timer.plan_install("cron", JOB, linux, machine.run), machine.run)
    assert machine.crontab == CRONTAB + timer.cron_line(JOB)
    assert timer.plan_install("cron", JOB, linux, machine.run) == ()
    newer = Job(("/new/python", "sync"), {})
    machine.crontab += "* * * * * later\n"
    timer.apply(timer.plan_install("cron", newer, linux, machine.run), machine.run)
    assert machine.crontab == CRONTAB + timer.cron_line(newer) + "* * * * * later\n"
    timer.apply(timer.plan_remove(linux, machine.run), machine.run)
    assert machine.crontab == CRONTAB + "* * * * * later\n"


def test_a_crontab_that_was_not_there_goes_again(linux: Host) -> None:
    machine = Machine(cron=True)
    timer.apply(timer.plan_install("cron", JOB, linux, machine.run), machine.run)
    assert machine.crontab == timer.cron_line(JOB)
    timer.apply(timer.plan_remove(linux, machine.run), machine.run)
    assert machine.crontab is None


def test_the_line_means_to_cron_and_its_shell_what_was_meant(tmp_path: Path) -> None:
    program = tmp_path / 'it\'s 100% "p" $HOME \\ ü'
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$LDM_HOME" "$@" > "$OUT"\n')
    program.chmod(0o755)
    job = Job((str(program), "-m", "a b"), {"LDM_HOME": "/x y/50%$z", "OUT": str(tmp_path / "out")})
    line = timer.cron_line(job)
    assert line.startswith("*/15 * * * * ")
    assert line.count("\n") == 1
    command = line.removeprefix("*/15 * * * * ").replace("\\%", "%")  # as cron reads it
    assert "%" not in line.replace("\\%", "")
    subprocess.run(["/bin/sh", "-c", command], check=True, timeout=60)
    assert (tmp_path / "out").read_text() == "/x y/50%$z\n-m\na b\n"


@pytest.mark.slow
@given(st.lists(st.text(st.characters(exclude_characters="\r\n\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"), max_size=9)))
def test_every_other_line_of_a_crontab_stays(lines: list[str]) -> None:
    before = "".join(f"{line}\n" for line in lines)
    line = timer.cron_line(JOB)
    after = timer.crontab_with(before, line)
    assert timer.crontab_with(after, line) == after
    assert timer.crontab_with(after, "") == before


@pytest.mark.skipif(shutil.which("crontab") is None, reason="cron is not installed")
def test_the_real_crontab_takes_the_line(tmp_path: Path) -> None:
    file = tmp_path / "crontab"
    file.write_text(timer.cron_line(JOB))
    done = subprocess.run(["crontab", "-T", str(file)], capture_output=True, text=True, check=False, timeout=60)
    if "invalid option" in done.stderr or "usage" in done.stderr.lower():
        pytest.skip("this crontab cannot check without installing")
    assert done.returncode == 0


def test_a_crontab_that_cannot_be_read_is_not_written(linux: Host) -> None:
    with pytest.raises(NotConfiguredError):
        timer.plan_install("cron", JOB, linux, Machine().run)


# --- bad luck


def test_the_plan_tells_everything_before_it_is_done(linux: Host) -> None:
    text = timer.describe(timer.plan_install("systemd", JOB, linux, Machine(systemd=True).run))
    assert text.startswith(f"write {linux.systemd_folder}/crystal-sync.service\n      [Unit]\n")
    assert "run   systemctl --user enable --now crystal-sync.timer\n" in text
    assert timer.describe(timer.plan_remove(linux, Machine().run)) == "nothing to do\n"


def test_a_failing_command_is_told_with_its_first_words(linux: Host) -> None:
    machine = Machine(systemd=True)
    machine.failing = "enable"
    with pytest.raises(UnavailableError, match=r"enable --now crystal-sync\.timer: it does not work$"):
        timer.apply(timer.plan_install("systemd", JOB, linux, machine.run), machine.run)
    machine.failing = "systemctl"
    timer.apply(timer.plan_remove(linux, machine.run), machine.run)  # a broken systemd hinders no removal
    assert files(linux.home) == set()


def test_a_line_break_in_a_path_is_refused(linux: Host) -> None:
    with pytest.raises(UsageError, match="line break"):
        timer.plan_install("cron", Job(("/a\nb",), {}), linux, Machine(crontab="").run)


# --- this machine, as the commands see it


@pytest.fixture
def crontab_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program named crontab, alone on the PATH, that keeps its table in a file."""
    folder, table = tmp_path / "bin", tmp_path / "table"
    folder.mkdir()
    (folder / "crontab").write_text(
        f"""#!/bin/sh
case $1 in
-l) if [ -f {table} ]; then while IFS= read -r line; do printf '%s\\n' "$line"; done < {table}
    else echo "no crontab for me" >&2; exit 1; fi ;;
-r) : > {table}.gone ;;
-) while IFS= read -r line; do printf '%s\\n' "$line"; done > {table} ;;
esac
"""
    )
    (folder / "crontab").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    return table


@pytest.mark.skipif(not Path("/proc").exists(), reason="a Mac has launchd, not cron")
def test_the_commands_install_and_remove_a_line_of_this_installation(crontab_program, monkeypatch, capsys):
    crontab_program.write_text(CRONTAB + LATIN, "latin-1")
    monkeypatch.setenv("LDM_HOME", "/somewhere/ldm")
    cli_timer.change_timer(install=True, dry_run=True)
    told = capsys.readouterr().out
    assert told.startswith("run   crontab -\n      */15 * * * * LDM_HOME=")
    assert "backup" not in told
    assert crontab_program.read_text("latin-1") == CRONTAB + LATIN
    cli_timer.change_timer(install=True)
    assert "cron" in capsys.readouterr().out
    line = crontab_program.read_text("latin-1").removeprefix(CRONTAB + LATIN)
    assert "LDM_HOME=/somewhere/ldm" in line
    assert f"{shlex.quote(sys.executable)} -I -m crystal sync --quiet" in line
    cli_timer.change_timer(install=False)
    assert capsys.readouterr().out == "the timer is removed\n"
    assert crontab_program.read_text("latin-1") == CRONTAB + LATIN
    cli_timer.change_timer(install=False)
    assert capsys.readouterr().out == "there is no crystal timer\n"


def test_a_program_that_is_missing_or_hangs_is_an_answer_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cli_timer, "COMMAND_SECONDS", 0.01)
    assert cli_timer.run(("sleep", "60"), None).returncode == 126
    monkeypatch.setenv("PATH", str(tmp_path))
    assert cli_timer.run(("crontab", "-l"), None).returncode == 127
