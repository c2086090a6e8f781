"""What every test gets without asking: a machine with nothing on it, and no way out to the network."""

from __future__ import annotations

import functools
import gc
import inspect
import ipaddress
import itertools
import os
import re
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers

from crystal.app import project_finder, projects
from crystal.app.context import default_paths
from crystal.store import Store, upgrade
from crystal.transcript import project
from tests.support.command import crystal
from tests.support.examples import QUICK, THOROUGH
from tests.support.fresh_store import copy_schema
from tests.support.homes import live_in
from tests.support.store_factory import open_store

# Two cores shared by many make every deadline a lie; a slow example is found by the clock of the whole run.
# Before a merge a property is tried more often: .ci/run says --hypothesis-profile=thorough.
settings.register_profile("quick", deadline=None, print_blob=True, max_examples=QUICK)
settings.register_profile("thorough", settings.get_profile("quick"), max_examples=THOROUGH)
settings.load_profile("quick")

# Every worker reads every test, and the tests start hundreds of processes: none of them compiles everything anew.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

MEMORY_DISK = Path("/dev/shm")
MEMORY_DISK_BYTES = 4 << 30
REASON_LINES = 6
ALL_SLOW = re.compile(r"^pytestmark = \[?\s*pytest\.mark\.slow\b", re.MULTILINE)

_connect = socket.socket.connect
_connect_ex = socket.socket.connect_ex
_getaddrinfo = socket.getaddrinfo
_numbers = itertools.count()


def pytest_configure(config: pytest.Config) -> None:
    """Keep the tests' folders in memory where there is room: a disk makes each commit wait."""
    config.pluginmanager.register(FailuresAtOnce(config))
    # A worker that a test runs in this process would take its priority away for all tests that follow.
    os.nice = lambda _: 0
    if config.option.hypothesis_profile in (None, "quick"):
        # The constants of all loaded modules, from which a few examples may be drawn, take each worker 0.6 s to read.
        patch = pytest.MonkeyPatch()
        patch.setattr(providers, "_get_local_constants", providers.Constants)
    gc.disable()  # while tests are collected: looking through them again and again takes a fifth of that time
    if _has_memory_disk():
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY_DISK))
        tempfile.tempdir = os.environ.get("TMPDIR") or str(MEMORY_DISK)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave the files of slow tests unread where none is asked for: every worker would import what they import."""
    if not _is_without_slow(config) or collection_path.suffix != ".py":
        return None
    return True if ALL_SLOW.search(collection_path.read_text("utf-8")) else None


def pytest_pycollect_makeitem(collector: pytest.Collector, obj: object) -> list[pytest.Item] | None:
    """Make none of a slow test's items where none is asked for: with their parameters they are most of all items."""
    marks = getattr(obj, "pytestmark", ()) if inspect.isfunction(obj) else ()
    return [] if _is_without_slow(collector.config) and any(mark.name == "slow" for mark in marks) else None


def _is_without_slow(config: pytest.Config) -> bool:
    return config.option.markexpr == "not slow"


def pytest_collection_finish() -> None:
    """Let the garbage collector pass over what collection made, and come less often: thousands of tests stay."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)
    gc.enable()


def _has_memory_disk() -> bool:
    """Tell whether there is a disk in memory with room, memory behind it, and programs may run from it."""
    if not MEMORY_DISK.is_dir() or os.statvfs(MEMORY_DISK).f_flag & os.ST_NOEXEC:
        return False
    free = re.search(r"MemAvailable: *(\d+) kB", Path("/proc/meminfo").read_text("utf-8"))
    left = int(free[1]) * 1024 if free else 0
    return min(shutil.disk_usage(MEMORY_DISK).free, left) > MEMORY_DISK_BYTES


class FailuresAtOnce:
    """Prints why a test failed at the moment it does: whoever stops a run, or waits for it, knows it already."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        printer = self._config.pluginmanager.get_plugin("terminalreporter")
        if printer and report.failed and not hasattr(self._config, "workerinput"):
            reason = report.longreprtext.rstrip().splitlines()[-REASON_LINES:]
            head = f"{report.nodeid}, {report.when}, {report.duration:.0f} s:"
            printer.write("\n" + "\n".join([head, *reason]) + "\n")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Run one test more at a time than there are processors: many wait for a process or a clock."""
    return (os.cpu_count() or 1) + 1


class NetworkTouched(AssertionError):
    """A test tried to leave this machine."""


@pytest.fixture
def tmp_path(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Path]:
    """Make a new folder. pytest's own fixture lists the folders of all tests, and moves a link, each time.

    What a slow test leaves may be large, so it is deleted if the test passed.
    """
    folder = tmp_path_factory.getbasetemp() / f"{request.node.originalname[:30]}{next(_numbers)}"
    folder.mkdir(mode=0o700)
    failures = request.session.testsfailed
    yield folder
    if request.session.testsfailed == failures and any(map(request.node.get_closest_marker, ("slow", "e2e"))):
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home folder of this test's own; HOME, the environment and Claude Code's folder point into it."""
    home = tmp_path / "home"
    home.mkdir()
    live_in(home, monkeypatch)
    return home


@pytest.fixture
def store(home: Path) -> Iterator[Store]:
    """This machine's memory, empty and open."""
    places = default_paths()
    places.data_dir.mkdir(parents=True)
    with open_store(places.data_dir) as store:
        yield store


@pytest.fixture
def ready(home: Path) -> None:
    """Set crystal up on this machine, whose past is left alone."""
    assert crystal("init", "--yes", "--no-import").code == 0


@pytest.fixture(autouse=True, scope="session")
def _migrated_once() -> Iterator[None]:
    """Make each new database a copy of one: all migrations take 25 ms. The tests of the store itself apply each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(upgrade, "_apply", copy_schema)
        yield


@pytest.fixture(autouse=True, scope="session")
def _checkout_known() -> Iterator[None]:
    """Ask git once for the first commit of this checkout, in which the tests run: it takes 30 ms of each search."""
    checkout = str(Path(__file__).resolve().parent.parent)
    of_checkout = functools.cache(project.first_commit)

    def first_commit(root: str) -> str | None:
        return of_checkout(root) if root == checkout else project.first_commit(root)

    with pytest.MonkeyPatch.context() as patch:
        for module in (project_finder, projects):
            patch.setattr(module, "first_commit", first_commit)
        yield


@pytest.fixture(autouse=True)
def _loopback_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse every connection that would leave this machine, by name or by address."""

    def connect(self: socket.socket, address: object) -> None:
        _refuse_remote(self.family, address)
        _connect(self, address)

    def connect_ex(self: socket.socket, address: object) -> int:
        _refuse_remote(self.family, address)
        return _connect_ex(self, address)

    def getaddrinfo(host: object, *args: object, **more: object) -> object:
        name = host.decode() if isinstance(host, bytes) else host
        if name and not _is_loopback(str(name)):
            raise NetworkTouched(f"a test looked up {name}; only loopback is allowed")
        return _getaddrinfo(host, *args, **more)

    monkeypatch.setattr(socket.socket, "connect", connect)
    monkeypatch.setattr(socket.socket, "connect_ex", connect_ex)
    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)


def _refuse_remote(family: int, address: object) -> None:
    if family not in (socket.AF_INET, socket.AF_INET6):
        return
    host = address[0]
    if not _is_loopback(host):
        raise NetworkTouched(f"a test connected to {host}; only loopback is allowed")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return host.lower() in ("localhost", "ip6-localhost", "testserver") or host.lower().endswith(".localhost")
