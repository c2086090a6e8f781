"""A real PostgreSQL for tests: started as an unprivileged user, on a socket in a temporary folder."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

OPTIONS = ("-c", "listen_addresses=", "-c", "max_connections=60", "-c", "shared_buffers=64MB")


def programs() -> Path | None:
    """The folder of initdb and postgres; Debian does not put it on PATH."""
    on_path = shutil.which("initdb")
    found = [Path(on_path).resolve().parent] if on_path else sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    return found[-1] if found else None


def _user() -> str | None:
    """Who runs it: PostgreSQL refuses root."""
    if os.geteuid() != 0:
        return None
    return next((name for name in ("postgres", "nobody") if name in {one.pw_name for one in pwd.getpwall()}), None)


class Postgres:
    """A cluster of one's own. ``kill`` and ``start`` play an outage.

    ``fsync`` is off unless asked for: a process that is killed loses nothing that the system was told. ``of``: the
    server that this one stands by for.
    """

    def __init__(self, *, fsync: bool = False, of: Postgres | None = None) -> None:
        bins = programs()
        if bins is None:
            pytest.skip("PostgreSQL is not installed (Debian: apt-get install postgresql)")
        self._bins, self._user = bins, _user()
        # Not pytest's own folder: that is closed to the other user, and too long a name for a socket.
        self.folder = Path(tempfile.mkdtemp(prefix="crystal-pg-", dir="/tmp"))
        if self._user:
            shutil.chown(self.folder, self._user)
        self._log = (self.folder.parent / f"{self.folder.name}.log").open("wb")
        self._fsync = "on" if fsync else "off"
        data = str(self.folder / "data")
        if of is None:
            self._run("initdb", *f"-D {data} -U crystal -A trust -E UTF8 --locale=C --no-sync".split())
            with (self.folder / "data" / "pg_hba.conf").open("r+", encoding="utf-8") as rules:
                others = rules.read()
                rules.seek(0)
                rules.write("local all secret scram-sha-256\n" + others)
        else:
            self._run("pg_basebackup", *f"-D {data} -R -h {of.folder} -U crystal -c fast --no-sync".split())
        self.start()

    def _run(self, program: str, *given: str) -> None:
        command = [str(self._bins / program), *given]
        subprocess.run(command, check=True, stdout=self._log, stderr=self._log, user=self._user, cwd="/")

    def start(self) -> None:
        """Start, and wait until it takes connections."""
        command = [str(self._bins / "postgres"), "-D", str(self.folder / "data"), "-k", str(self.folder), *OPTIONS]
        command += ["-c", f"fsync={self._fsync}"]
        self._process = subprocess.Popen(command, stdout=self._log, stderr=self._log, user=self._user, cwd="/")
        for _ in range(600):
            asked = [str(self._bins / "pg_isready"), "-q", "-h", str(self.folder), "-d", "postgres"]
            if subprocess.run(asked, check=False).returncode == 0:
                return
            assert self._process.poll() is None, Path(self._log.name).read_text("utf-8", "replace")
        raise AssertionError("PostgreSQL does not answer")

    def kill(self) -> None:
        """Stop at once, as a crash does: what is committed comes back from the log."""
        self._process.send_signal(signal.SIGQUIT)
        self._process.wait(30)

    def promote(self) -> None:
        """Make a standby the primary."""
        self._run("pg_ctl", "-D", str(self.folder / "data"), "-w", "promote")

    def url(self, database: str, user: str = "crystal") -> str:
        return f"postgresql://{user}@/{database}?host={self.folder}"

    def database(self, name: str) -> str:
        """Make an empty database; its address."""
        import psycopg

        with psycopg.connect(self.url("postgres"), autocommit=True) as db:
            db.execute(f'CREATE DATABASE "{name}"')
        return self.url(name)

    def close(self) -> None:
        self.kill()
        self._log.close()
        Path(self._log.name).unlink()
        shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def running(**chosen: Any) -> Iterator[Postgres]:
    server = Postgres(**chosen)
    try:
        yield server
    finally:
        server.close()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """One for all tests of a process; each makes a database of its own."""
    with running() as server:
        yield server
