"""Run jobs by themselves with systemd, launchd or cron, whichever is available.

``crystal sync`` and, on a home machine, ``crystal relay poll`` run on a timer; ``crystal watch`` runs from login on.
Pure functions build the texts; a plan shows what would be done (``describe``); only ``apply`` does it, through the
given runner.
"""

from __future__ import annotations

import plistlib
import shlex
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from crystal.config.paths import make_private_dir, system_errors, write_private
from crystal.errors import NotConfiguredError, UnavailableError, UsageError

BY_HAND = (
    "let any scheduler run: crystal sync, and on a home machine: crystal relay poll; without one, each start of a"
    " session of Claude Code runs crystal sync"
)
WATCH_BY_HAND = "start at each login: crystal watch --quiet; or capture every 15 minutes: crystal sync --install-timer"

Kind = Literal["systemd", "launchd", "cron"]


@dataclass(frozen=True, slots=True)
class Schedule:
    """A job, its interval, and its names in the schedulers.

    Attributes:
        command: The command as typed.
        minutes: From the end of one run to the next; cron and launchd count from the beginning. 0: always running.
        boot_minutes: Delay after boot.
        jitter_seconds: Maximum random extra delay, so that machines do not all poll at the same time.
        purpose: Description of a run.
    """

    command: str
    name: str
    minutes: int
    boot_minutes: int
    jitter_seconds: int
    purpose: str

    @property
    def unit(self) -> str:
        """Return the name of the systemd unit."""
        return f"crystal-{self.name}"

    @property
    def enabled(self) -> str:
        """Return the name of the systemd unit that starts it."""
        return f"{self.unit}.timer" if self.minutes else f"{self.unit}.service"

    @property
    def label(self) -> str:
        """Return the label of the launchd job."""
        return f"com.crystal-memory.{self.name}"

    @property
    def mark(self) -> str:
        """Return the end of its line in a crontab."""
        return f"# crystal-{self.name}"


SWEEP = Schedule("crystal sync", "sync", 15, 2, 0, "capture what the hooks missed")
POLL = Schedule("crystal relay poll", "poll", 2, 1, 20, "fetch what the devices sent")
WATCH = Schedule("crystal watch", "watch", 0, 0, 0, "capture what agents write, as soon as they write it")
SCHEDULES = (SWEEP, POLL, WATCH)
RETRY_SECONDS = 60
"""Seconds after which a failed job that should always run is started again."""


Ran = subprocess.CompletedProcess[str]
"""Result of a command. The return code is 127 if the program does not exist."""

Runner = Callable[[Sequence[str], "str | None"], Ran]
"""Runs a command with a text on stdin, in the C locale, because messages of ``crontab`` are compared."""


@dataclass(frozen=True, slots=True)
class Host:
    """Machine that the timer is for.

    Attributes:
        platform: The value of ``sys.platform``.
        home: The user's home folder.
        config_home: ``XDG_CONFIG_HOME`` or ``~/.config``.
        user_id: The numeric user id, for launchd.
    """

    platform: str
    home: Path
    config_home: Path
    user_id: int

    @property
    def systemd_folder(self) -> Path:
        """Return the folder of the user's own systemd units."""
        return self.config_home / "systemd" / "user"

    def plist_of(self, schedule: Schedule) -> Path:
        """Return the path of a job's launchd file."""
        return self.home / "Library" / "LaunchAgents" / f"{schedule.label}.plist"

    def files_of(self, schedule: Schedule) -> list[Path]:
        """Return the existing files of a job; a crontab is not among them."""
        units = [self.systemd_folder / f"{schedule.unit}{end}" for end in (".timer", ".service")]
        return [path for path in (*units, self.plist_of(schedule)) if path.exists()]


@dataclass(frozen=True, slots=True)
class Job:
    """The command of the timer: absolute words, and the folders that its environment must name. Never a key."""

    words: tuple[str, ...]
    environment: Mapping[str, str]
    schedule: Schedule = SWEEP


@dataclass(frozen=True, slots=True)
class TimerStep:
    """One action: write or remove a file, or run a command.

    Attributes:
        path: The file to write (``text`` given) or remove.
        words: The command to run, with ``text`` on its stdin.
        required: True if its failure stops the plan.
    """

    path: Path | None = None
    words: tuple[str, ...] = ()
    text: str | None = None
    required: bool = True


Steps = tuple[TimerStep, ...]
"""Planned actions, in order; empty if there is nothing to do."""


def describe(steps: Steps) -> str:
    """Describe the steps for ``--dry-run``."""
    return "".join(map(_described, steps)) or "nothing to do\n"


def find_kind(host: Host, run: Runner, schedule: Schedule = SWEEP) -> Kind:
    """Find a scheduler of this machine that a user may use.

    Raises:
        NotConfiguredError: The machine has no scheduler; cron cannot run a job all the time.
    """
    hint = BY_HAND if schedule.minutes else WATCH_BY_HAND
    if host.platform == "win32":
        raise NotConfiguredError(f"Windows cannot run {schedule.command} by itself yet", hint=hint)
    if host.platform == "darwin":
        return "launchd"
    if host.platform == "linux" and run(("systemctl", "--user", "show-environment"), None).returncode == 0:
        return "systemd"
    if schedule.minutes and _read_crontab(run) is not None:
        return "cron"
    without = "no systemd user session and no crontab" if schedule.minutes else "no systemd user session"
    raise NotConfiguredError(f"this machine cannot run {schedule.command} by itself: there is {without}", hint=hint)


def plan_install(kind: Kind, job: Job, host: Host, run: Runner) -> Steps:
    """Plan to install the timer, or to update an older one. Changes nothing.

    Raises:
        UsageError: A path holds a line break, which no scheduler supports.
        NotConfiguredError: ``kind`` is cron and the crontab cannot be read.
    """
    if any(letter in word for word in (*job.words, *job.environment.values()) for letter in "\n\r\0"):
        raise UsageError("a path of this installation holds a line break", hint="install crystal in another folder")
    plist = host.plist_of(job.schedule)
    if kind == "systemd":
        return tuple(_installation(job, host))
    if kind == "launchd":
        start = TimerStep(words=("launchctl", "bootstrap", f"gui/{host.user_id}", str(plist)))
        return (TimerStep(path=plist, text=launchd_plist(job)), _bootout(job.schedule, host), start)
    before = _read_crontab(run)
    if before is None:
        raise NotConfiguredError("the crontab of this user cannot be read", hint=BY_HAND)
    after = crontab_with(before, cron_line(job), job.schedule)
    return (TimerStep(words=("crontab", "-"), text=after),) if after != before else ()


def _installation(job: Job, host: Host) -> Iterator[TimerStep]:
    """Yield the steps for systemd. A service that always runs is restarted, because its text may be new."""
    folder, schedule = host.systemd_folder, job.schedule
    yield TimerStep(path=folder / f"{schedule.unit}.service", text=systemd_service(job))
    if schedule.minutes:
        yield TimerStep(path=folder / schedule.enabled, text=systemd_timer(schedule))
    yield _systemctl("daemon-reload")
    yield _systemctl("enable", "--now", schedule.enabled)
    if not schedule.minutes:
        yield _systemctl("restart", schedule.enabled)


def plan_remove(host: Host, run: Runner, schedules: Sequence[Schedule] = (SWEEP,)) -> Steps:
    """Plan to remove our timers of every kind. Changes nothing."""
    steps: list[TimerStep] = []
    before = after = _read_crontab(run) if host.platform != "win32" else None
    for schedule in schedules:
        steps += _removal(schedule, host)
        after = None if after is None else crontab_with(after, "", schedule)
    if after != before:
        steps.append(TimerStep(words=("crontab", "-"), text=after) if after else TimerStep(words=("crontab", "-r")))
    return tuple(steps)


def _removal(schedule: Schedule, host: Host) -> Iterator[TimerStep]:
    plist = host.plist_of(schedule)
    units = [path for path in host.files_of(schedule) if path != plist]
    if units:
        yield _systemctl("disable", "--now", schedule.enabled, required=False)
        yield _systemctl("stop", f"{schedule.unit}.service", required=False)
        yield from (TimerStep(path=path) for path in units)
        yield _systemctl("daemon-reload", required=False)
    if plist.exists():
        yield _bootout(schedule, host)
        yield TimerStep(path=plist)


def _systemctl(*words: str, required: bool = True) -> TimerStep:
    return TimerStep(words=("systemctl", "--user", *words), required=required)


def _bootout(schedule: Schedule, host: Host) -> TimerStep:
    return TimerStep(words=("launchctl", "bootout", f"gui/{host.user_id}/{schedule.label}"), required=False)


def apply(steps: Steps, run: Runner, undo: str = "--remove-timer") -> None:
    """Execute the steps in order; ``undo`` is the option that removes what they installed.

    Raises:
        UnavailableError: A file cannot be written, or a required command failed; the earlier steps were done; repeating
            everything, or removing, is safe.
    """
    for step in steps:
        if step.path is not None and step.text is not None:
            make_private_dir(step.path.parent)
            write_private(step.path, step.text.encode("utf-8", "surrogateescape"))
        elif step.path is not None:
            with system_errors(step.path):
                step.path.unlink(missing_ok=True)
        else:
            ran = run(step.words, step.text)
            if ran.returncode != 0 and step.required:
                said = (ran.stderr.strip() or ran.stdout.strip() or f"exit code {ran.returncode}").splitlines()[0]
                hint = f"to undo it: the same command with {undo}"
                raise UnavailableError(f"{shlex.join(step.words)}: {said}", hint=hint)


# --- the texts


def systemd_service(job: Job) -> str:
    """Return the unit that runs the job, once or always.

    Source: systemd.service(5), systemd.syntax(7): quotes, backslashes, ``%`` and ``$`` are special there.
    """
    environment = "".join(
        f"Environment={_systemd_word(f'{name}={value}')}\n" for name, value in job.environment.items()
    )
    words = job.words
    if any(letter in words[0] for letter in "\"'\\$"):  # systemd expands these in every word but the first
        words = ("/bin/sh", "-c", 'exec "$0" "$@"', *words)
    command = " ".join(_systemd_word(word).replace("$", "$$") for word in words)
    kind, install = "Type=oneshot\n", ""
    if not job.schedule.minutes:
        kind = f"Restart=on-failure\nRestartSec={RETRY_SECONDS}\n"
        install = "\n[Install]\nWantedBy=default.target\n"
    return f"""\
[Unit]
Description=Crystal: {job.schedule.purpose}

[Service]
{kind}{environment}ExecStart={command}
Nice=10
{install}"""


def systemd_timer(schedule: Schedule = SWEEP) -> str:
    """Return the timer unit: soon after boot, and some time after each run has ended, so that runs never overlap."""
    jitter = f"RandomizedDelaySec={schedule.jitter_seconds}\n" if schedule.jitter_seconds else ""
    return f"""\
[Unit]
Description=Crystal: {schedule.command} every {schedule.minutes} minutes

[Timer]
OnBootSec={schedule.boot_minutes}min
OnUnitInactiveSec={schedule.minutes}min
AccuracySec={"1min" if schedule.minutes > 5 else "10s"}
{jitter}
[Install]
WantedBy=timers.target
"""


def launchd_plist(job: Job) -> str:
    """Return the launchd job: at login, and every few minutes or until it succeeds, with low priority."""
    every = {"StartInterval": job.schedule.minutes * 60}
    resident = {"KeepAlive": {"SuccessfulExit": False}, "ThrottleInterval": RETRY_SECONDS}
    return plistlib.dumps(
        {
            "Label": job.schedule.label,
            "ProgramArguments": list(job.words),
            "EnvironmentVariables": dict(job.environment),
            **(every if job.schedule.minutes else resident),
            "RunAtLoad": True,
            "ProcessType": "Background",
        },
        sort_keys=False,
    ).decode("utf-8")


def cron_line(job: Job) -> str:
    """Return the line of a crontab. Cron ends a command at ``%``; mail about every failure is suppressed."""
    words = [f"{name}={shlex.quote(value)}" for name, value in job.environment.items()]
    words += [shlex.quote(word) for word in job.words]
    line = f"*/{job.schedule.minutes} * * * * {' '.join(words)} >/dev/null 2>&1 {job.schedule.mark}\n"
    return line.replace("%", "\\%")


def crontab_with(crontab: str, line: str, schedule: Schedule = SWEEP) -> str:
    """Return a crontab with our line at its end, or in place of an older line; an empty line removes it.

    Other lines are unchanged.
    """
    lines = crontab.splitlines(keepends=True)
    places = [index for index, one in enumerate(lines) if one.rstrip().endswith(schedule.mark)]
    if not places:
        end = "\n" if line and crontab and not crontab.endswith("\n") else ""
        return crontab + end + line
    lines[places[0]] = line
    return "".join(one for index, one in enumerate(lines) if index not in places[1:])


def _systemd_word(word: str) -> str:
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'


# --- the machine


def _read_crontab(run: Runner) -> str | None:
    """Return the user's crontab, empty if it does not exist; None if the user may not have one."""
    ran = run(("crontab", "-l"), None)
    if ran.returncode == 0:
        return ran.stdout
    return "" if "no crontab for" in ran.stderr else None


def _described(step: TimerStep) -> str:
    if step.path is None:
        marks = tuple(schedule.mark for schedule in SCHEDULES)
        # Show only our lines of a crontab: the others are private.
        what, lines = (
            f"run   {shlex.join(step.words)}",
            [one for one in (step.text or "").splitlines() if one.endswith(marks)],
        )
    elif step.text is None:
        what, lines = f"remove {step.path}", []
    else:
        what, lines = f"write {step.path}", step.text.splitlines()
    return "".join([f"{what}\n", *(f"      {line}\n" for line in lines)])
