"""The timers that run ``crystal sync`` and ``crystal relay poll``: systemd, launchd or cron, whichever is there.

The hooks sweep at every session start already; the timer is for what happens between, and for machines whose client
is used without hooks. A home machine asks its relay on a timer of its own. Texts are built by pure functions; a plan
says what would be done (``TimerPlan.text``); only ``apply`` does it, through the runner that it is given.
"""

from __future__ import annotations

import plistlib
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from crystal.config.paths import make_private_dir, refused, write_private
from crystal.errors import CrystalError, NotConfigured, Unavailable, UsageProblem

BY_HAND = (
    "nothing is lost without: the hooks sweep at every session start; or let any scheduler run: crystal sync, and on"
    " a home machine: crystal relay poll"
)

Kind = Literal["systemd", "launchd", "cron"]


@dataclass(frozen=True, slots=True)
class Schedule:
    """What runs how often, and what the schedulers know it by.

    Attributes:
        command: The command, as people type it.
        minutes: From the end of one run to the next; cron and launchd count from the beginning.
        boot_minutes: After the start of the machine.
        jitter_seconds: Up to so many more, so that not all machines ask at once.
        purpose: What a run does, in words.
    """

    command: str
    name: str
    minutes: int
    boot_minutes: int
    jitter_seconds: int
    purpose: str

    @property
    def unit(self) -> str:
        """What systemd calls it."""
        return f"crystal-{self.name}"

    @property
    def label(self) -> str:
        """What launchd calls it."""
        return f"com.crystal-memory.{self.name}"

    @property
    def mark(self) -> str:
        """The end of its line in a crontab."""
        return f"# crystal-{self.name}"


SWEEP = Schedule("crystal sync", "sync", 15, 2, 0, "capture what no hook told of")
POLL = Schedule("crystal relay poll", "poll", 2, 1, 20, "fetch what the devices sent")
SCHEDULES = (SWEEP, POLL)
MINUTES, UNIT, LABEL, MARK = SWEEP.minutes, SWEEP.unit, SWEEP.label, SWEEP.mark


@dataclass(frozen=True, slots=True)
class Ran:
    """How a command ended. ``code`` is 127 where there is no such program."""

    code: int
    stdout: str = ""
    stderr: str = ""


Runner = Callable[[Sequence[str], "str | None"], Ran]
"""Runs a command with a text on stdin, in the C locale: the words of ``crontab`` are compared."""


@dataclass(frozen=True, slots=True)
class Host:
    """The machine that the timer is for.

    Attributes:
        platform: As ``sys.platform`` says it.
        home: The user's home folder.
        config_home: ``XDG_CONFIG_HOME`` or ``~/.config``.
        user_id: The number of the user, for launchd.
    """

    platform: str
    home: Path
    config_home: Path
    user_id: int

    @property
    def systemd_folder(self) -> Path:
        """Where the user's own systemd units live."""
        return self.config_home / "systemd" / "user"

    @property
    def plist(self) -> Path:
        """The launchd job of the sweep."""
        return self.plist_of(SWEEP)

    def plist_of(self, schedule: Schedule) -> Path:
        """A launchd job of ours."""
        return self.home / "Library" / "LaunchAgents" / f"{schedule.label}.plist"


@dataclass(frozen=True, slots=True)
class Job:
    """What the timer runs: absolute words, and the folders that its environment must name. Never a key."""

    words: tuple[str, ...]
    environment: Mapping[str, str]
    schedule: Schedule = SWEEP


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to do: write or remove a file, or run a command.

    Attributes:
        path: The file to write (``text`` given) or remove.
        words: The command to run, with ``text`` on its stdin.
        required: Whether its failure ends the whole.
    """

    path: Path | None = None
    words: tuple[str, ...] = ()
    text: str | None = None
    required: bool = True


@dataclass(frozen=True, slots=True)
class TimerPlan:
    """What would be done. No steps: there is nothing to do."""

    steps: tuple[Step, ...]

    def text(self) -> str:
        """The steps in words, for ``--dry-run``."""
        return "".join(_told(step) for step in self.steps) or "nothing to do\n"


def find_kind(host: Host, run: Runner) -> Kind:
    """Find the scheduler of this machine that a user may use.

    Raises:
        NotConfigured: There is none.
    """
    if host.platform == "win32":
        raise NotConfigured("no timer can be installed on Windows yet", hint=BY_HAND)
    if host.platform == "darwin":
        return "launchd"
    if host.platform == "linux" and run(("systemctl", "--user", "show-environment"), None).code == 0:
        return "systemd"
    if _read_crontab(run) is not None:
        return "cron"
    raise NotConfigured("neither a systemd user session nor a crontab is there for a timer", hint=BY_HAND)


def plan_install(kind: Kind, job: Job, host: Host, run: Runner) -> TimerPlan:
    """Plan to install the timer, or to bring an older one up to date. Nothing is changed.

    Raises:
        UsageProblem: A path holds a line break, which none of the schedulers can be told.
        NotConfigured: ``kind`` is cron and the crontab cannot be read.
    """
    if any(letter in word for word in (*job.words, *job.environment.values()) for letter in "\n\r\0"):
        raise UsageProblem("a path of this installation holds a line break", hint="install crystal in another folder")
    unit, label = job.schedule.unit, job.schedule.label
    if kind == "systemd":
        folder = host.systemd_folder
        return TimerPlan(
            (
                Step(path=folder / f"{unit}.service", text=systemd_service(job)),
                Step(path=folder / f"{unit}.timer", text=systemd_timer(job.schedule)),
                Step(words=("systemctl", "--user", "daemon-reload")),
                Step(words=("systemctl", "--user", "enable", "--now", f"{unit}.timer")),
            )
        )
    if kind == "launchd":
        plist = host.plist_of(job.schedule)
        return TimerPlan(
            (
                Step(path=plist, text=launchd_plist(job)),
                Step(words=("launchctl", "bootout", f"gui/{host.user_id}/{label}"), required=False),
                Step(words=("launchctl", "bootstrap", f"gui/{host.user_id}", str(plist))),
            )
        )
    before = _read_crontab(run)
    if before is None:
        raise NotConfigured("the crontab of this user cannot be read", hint=BY_HAND)
    after = crontab_with(before, cron_line(job), job.schedule)
    return TimerPlan((Step(words=("crontab", "-"), text=after),) if after != before else ())


def plan_remove(host: Host, run: Runner, schedules: Sequence[Schedule] = (SWEEP,)) -> TimerPlan:
    """Plan to take timers of ours out, of whatever kind. Nothing is changed."""
    steps: list[Step] = []
    for schedule in schedules:
        steps += _removal(schedule, host)
    before = _read_crontab(run) if host.platform != "win32" else None
    if before is not None:
        left = before
        for schedule in schedules:
            left = crontab_without(left, schedule)
        if left != before:
            steps.append(Step(words=("crontab", "-"), text=left) if left else Step(words=("crontab", "-r")))
    return TimerPlan(tuple(steps))


def _removal(schedule: Schedule, host: Host) -> list[Step]:
    steps: list[Step] = []
    unit, plist = schedule.unit, host.plist_of(schedule)
    units = [path for path in (host.systemd_folder / f"{unit}{end}" for end in (".timer", ".service")) if path.exists()]
    if units:
        steps.append(Step(words=("systemctl", "--user", "disable", "--now", f"{unit}.timer"), required=False))
        steps.append(Step(words=("systemctl", "--user", "stop", f"{unit}.service"), required=False))
        steps.extend(Step(path=path) for path in units)
        steps.append(Step(words=("systemctl", "--user", "daemon-reload"), required=False))
    if plist.exists():
        steps.append(Step(words=("launchctl", "bootout", f"gui/{host.user_id}/{schedule.label}"), required=False))
        steps.append(Step(path=plist))
    return steps


def apply(plan: TimerPlan, run: Runner) -> None:
    """Do the steps in their order.

    Raises:
        Unavailable: A file cannot be written, or a required command failed; the steps before it have been done, and
            doing the whole again, or removing, is safe.
    """
    for step in plan.steps:
        if step.path is not None and step.text is not None:
            make_private_dir(step.path.parent)
            write_private(step.path, step.text.encode("utf-8", "surrogateescape"))
        elif step.path is not None:
            _remove(step.path)
        else:
            ran = run(step.words, step.text)
            if ran.code != 0 and step.required:
                raise _failed(step, ran)


def installed(host: Host, run: Runner, schedule: Schedule = SWEEP) -> tuple[Kind, ...]:
    """The kinds of schedulers in which a timer of ours is set up on this machine."""
    found: list[Kind] = []
    if (host.systemd_folder / f"{schedule.unit}.timer").exists():
        found.append("systemd")
    if host.plist_of(schedule).exists():
        found.append("launchd")
    if host.platform != "win32" and schedule.mark in (_read_crontab(run) or ""):
        found.append("cron")
    return tuple(found)


# --- the texts


def systemd_service(job: Job) -> str:
    """The unit that runs the job once.

    Source: systemd.service(5), systemd.syntax(7): quotes, backslashes, ``%`` and ``$`` mean something there.
    """
    environment = "".join(
        f"Environment={_systemd_word(f'{name}={value}')}\n" for name, value in job.environment.items()
    )
    words = job.words
    if any(letter in words[0] for letter in "\"'\\$"):  # which systemd takes in every word but the first
        words = ("/bin/sh", "-c", 'exec "$0" "$@"', *words)
    command = " ".join(_systemd_word(word).replace("$", "$$") for word in words)
    return f"""\
[Unit]
Description=Crystal: {job.schedule.purpose}

[Service]
Type=oneshot
{environment}ExecStart={command}
Nice=10
"""


def systemd_timer(schedule: Schedule = SWEEP) -> str:
    """The unit that says when: soon after boot, and a while after each run has ended, so that runs never pile up."""
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
    """The launchd job: at login and every so many minutes, with little claim to the machine."""
    return plistlib.dumps(
        {
            "Label": job.schedule.label,
            "ProgramArguments": list(job.words),
            "EnvironmentVariables": dict(job.environment),
            "StartInterval": job.schedule.minutes * 60,
            "RunAtLoad": True,
            "ProcessType": "Background",
        },
        sort_keys=False,
    ).decode("utf-8")


def cron_line(job: Job) -> str:
    """The line of a crontab. Cron cuts a command at ``%``; its mail about every failure would help nobody."""
    words = [f"{name}={shlex.quote(value)}" for name, value in job.environment.items()]
    words += [shlex.quote(word) for word in job.words]
    line = f"*/{job.schedule.minutes} * * * * {' '.join(words)} >/dev/null 2>&1 {job.schedule.mark}\n"
    return line.replace("%", "\\%")


def crontab_with(crontab: str, line: str, schedule: Schedule = SWEEP) -> str:
    """A crontab with our line at its end, or in the place of an older one of ours. All else stays."""
    lines = crontab.splitlines(keepends=True)
    places = [index for index, one in enumerate(lines) if one.rstrip().endswith(schedule.mark)]
    if not places:
        end = "\n" if crontab and not crontab.endswith("\n") else ""
        return crontab + end + line
    lines[places[0]] = line
    return "".join(one for index, one in enumerate(lines) if index not in places[1:])


def crontab_without(crontab: str, schedule: Schedule = SWEEP) -> str:
    """A crontab without our line. All else stays."""
    return "".join(line for line in crontab.splitlines(keepends=True) if not line.rstrip().endswith(schedule.mark))


def _systemd_word(word: str) -> str:
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'


# --- the machine


def _read_crontab(run: Runner) -> str | None:
    """The user's crontab, empty if there is none yet; None where the user cannot have one."""
    ran = run(("crontab", "-l"), None)
    if ran.code == 0:
        return ran.stdout
    return "" if "no crontab for" in ran.stderr else None


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise refused(error, path) from error


def _failed(step: Step, ran: Ran) -> CrystalError:
    said = (ran.stderr.strip() or ran.stdout.strip() or f"exit code {ran.code}").splitlines()[0]
    return Unavailable(
        f"{shlex.join(step.words)}: {said}", hint="to take the timer out again: --remove-timer of the same command"
    )


def _told(step: Step) -> str:
    if step.path is not None and step.text is None:
        return f"remove {step.path}\n"
    lines = (step.text or "").splitlines()
    if step.path is not None:
        what = f"write {step.path}"
    else:
        what = f"run   {shlex.join(step.words)}"
        lines = [
            line for line in lines if line.endswith(tuple(one.mark for one in SCHEDULES))
        ]  # of a crontab, the others are nobody's business
    return what + "\n" + "".join(f"      {line}\n" for line in lines)
