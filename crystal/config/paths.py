"""Determine the paths of crystal's files: the ``~/.ldm`` tree, the settings file and the agents' own folders.

This module converts an environment and a home folder into absolute paths, and creates folders and files that only the
user can read. It never reads ``os.environ`` itself.
"""

import contextlib
import errno
import os
import re
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path

from crystal.config.harness import Place
from crystal.config.harnesses import Root, distinct_roots, searched_places
from crystal.errors import CrystalError, UnavailableError, UsageError
from crystal.hook.event import is_of_another_program
from crystal.model.named_tuple import NamedTuple

if sys.platform != "win32":
    import fcntl

SOURCES_FILE = "sources.json"
"""The list of sources, beside the archives."""
VAULT_FILE = "vault.json"
"""The list of the files that crystal keeps in a vault, beside the archives."""
MEMORY_FILES = "files.json"
"""The list of agents' files that have a block of memories, beside the archives."""
MEMORY_RECORD = "memories.jsonl"
"""The name of the record of memories, in an agent's folder."""
AGENT_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
AGENT_ID_WORDS = "1 to 64 letters, digits, '.', '_' or '-', the first a letter or a digit"


class Places(NamedTuple):
    """Absolute paths of everything crystal reads or writes on this machine; none of them need exist.

    ``data_dir_source`` is the reason for the place of ``data_dir``, in words for ``crystal config``.
    """

    ldm_home: Path
    data_dir: Path
    config_file: Path
    claude_dirs: tuple[Path, ...]
    transcript_roots: tuple[Root, ...]
    data_dir_source: str = "default"

    @property
    def db(self) -> Path:
        """Return the path of the store."""
        return self.data_dir / "crystal.db"

    @property
    def spool(self) -> Path:
        """Return the folder where hooks leave their notes for the worker."""
        return self.data_dir / "spool"

    @property
    def stalled(self) -> Path:
        """Return the file in which the worker writes why capture has stopped, in one line; absent while it works."""
        return self.data_dir / "stalled"

    @property
    def machine_json(self) -> Path:
        """Return this machine's register of agents, see ``register_agent``."""
        return self.ldm_home / "config.json"

    @property
    def access(self) -> Path:
        """Return the list of tokens that may query this memory over HTTP; absent before the first."""
        return self.data_dir / "access.json"

    @property
    def access_requests(self) -> Path:
        """Return the list of sign-ins over HTTP that wait for the user."""
        return self.data_dir / "access-requests.json"

    @property
    def access_log(self) -> Path:
        """Return the log of requests over HTTP."""
        return self.data_dir / "access.log"

    @property
    def models(self) -> Path:
        """Return the folder with a folder for each installed model."""
        return self.ldm_home / "models"

    def agent_folder(self, agent: str) -> Path:
        """Return the folder of an agent's transcripts, sessions, daily logs and journals.

        Raises:
            UsageError: ``agent`` cannot be a single path component on every system.
        """
        return self.ldm_home / "agents" / checked_agent_id(agent) / "memory"


def checked_agent_id(agent: str) -> str:
    """Return ``agent`` if it is a valid agent id.

    Raises:
        UsageError: It is not; ids become folder names, so nothing else is accepted.
    """
    if not AGENT_ID.fullmatch(agent):
        raise UsageError(f"agent id {agent!r} cannot be used", hint=f"an agent id is {AGENT_ID_WORDS}")
    return agent


def resolve_places(env: Mapping[str, str], home: Path, *, data_dir: Path | None = None) -> Places:
    """Determine all places. An empty variable counts as unset; ``~`` is ``home``; relative paths refer to the cwd.

    Args:
        env: The environment, usually ``os.environ``.
        home: The user's home folder.
        data_dir: Given by the user for this run; takes precedence over everything.
    """
    ldm_home = env_place(env, "LDM_HOME", home) or absolute(home / ".ldm", home)
    found, source = _data_dir(env, home, ldm_home, data_dir)
    config_file = env_place(env, "CRYSTAL_CONFIG", home) or user_config_dir(env, home) / "config.toml"
    roots = _roots(env, home)
    return Places(ldm_home, found, config_file, (roots[0].folder.parent,), roots, source)


_VARIABLES = sorted({place.variable for *_, place in searched_places() if place.variable} | {"XDG_DATA_HOME"})


def _roots(env: Mapping[str, str], home: Path) -> tuple[Root, ...]:
    """Return the folders of conversations; for one home cached, because each answer needs them."""
    moved = tuple((name, env[name]) for name in _VARIABLES if env.get(name))
    is_fixed = home.is_absolute() and all(os.path.isabs(folder) for _, folder in moved)  # noqa: PTH117 - any text
    return (_fixed_roots if is_fixed else _fixed_roots.__wrapped__)(home, moved)


@lru_cache(maxsize=8)
def _fixed_roots(home: Path, moved: tuple[tuple[str, str], ...]) -> tuple[Root, ...]:
    env = dict(moved)
    return distinct_roots(
        Root(home_of(place, env, home) / place.folder, name, number) for name, number, place in searched_places()
    )


def home_of(place: Place, env: Mapping[str, str], home: Path) -> Path:
    """Return the home folder of a harness: as set in its variable, else the default.

    Programs that keep their data in ``~/.local/share`` follow ``XDG_DATA_HOME``.
    """
    moved = env_place(env, place.variable, home) if place.variable else None
    if moved:
        return Path(os.path.normpath(moved / place.below))
    usual, moved_data = place.default_home(home), env_place(env, "XDG_DATA_HOME", home)
    if moved_data and usual.is_relative_to(data := home / ".local" / "share"):
        return moved_data / usual.relative_to(data)
    return absolute(usual, home)


def absolute(path: Path | str, home: Path, *, name: str = "path") -> Path:
    """Expand a leading ``~`` and make the path absolute, without following symbolic links.

    Raises:
        UsageError: ``~name`` is an unknown user, or the path is relative and the current folder is gone.
    """
    if isinstance(path, Path) and path.is_absolute() and ".." not in path.parts:
        return path
    text = os.fspath(path)
    if text == "~" or text.startswith(("~/", "~" + os.sep)):
        text = str(home / text[2:].lstrip("/" + os.sep))
    elif text.startswith("~"):
        try:
            text = str(Path(text).expanduser())
        except RuntimeError as error:
            problem = f"{name} is {text!r}, but there is no such user"
            raise UsageError(problem, hint="write the folder in full, or ./~name") from error
    try:
        return Path(os.path.abspath(text))  # noqa: PTH100 - Path.resolve would follow links, Path.absolute keeps ".."
    except OSError as error:
        problem = f"{name} is {text!r}, relative to a current folder that no longer exists"
        raise UsageError(problem, hint="change to a folder that exists, or write the path in full") from error


def user_config_dir(env: Mapping[str, str], home: Path) -> Path:
    """Return the user's folder for crystal's settings, the same as ``platformdirs.user_config_path("crystal")``.

    platformdirs itself reads ``os.environ``, takes 24 ms at every start, and has changed its answer on macOS between
    versions, which would lose the user's settings. A test compares the two.
    """
    if sys.platform == "win32":
        local = env.get("LOCALAPPDATA", "").strip()
        return Path(local or home / "AppData" / "Local") / "crystal" / "crystal"
    chosen = env.get("XDG_CONFIG_HOME", "").strip()
    if Path(chosen).is_absolute():
        return absolute(chosen, home) / "crystal"
    if sys.platform == "darwin":
        return absolute(home, home) / "Library" / "Application Support" / "crystal"
    return absolute(home, home) / ".config" / "crystal"


def make_private_dir(path: Path) -> None:
    """Create a folder and the missing ones above it, each 0700. An existing folder is left unchanged.

    Existing folders are not narrowed: the path may be the user's home, or ``/tmp``.

    Raises:
        UsageError: A file has the name of one of the folders.
        UnavailableError: The system refuses (permissions, full or read-only disk).
    """
    missing: list[Path] = []
    above = path
    while not os.path.isdir(above) and above != above.parent:  # noqa: PTH112 - never raises
        missing.append(above)
        above = above.parent
    with system_errors(path):
        for folder in reversed(missing):
            try:
                folder.mkdir(mode=0o700)
            except FileExistsError:
                if not folder.is_dir():
                    raise


def write_derived(path: Path, data: bytes) -> None:
    """Replace a file that can be rebuilt, readable by its owner only, without waiting for the disk.

    A crash of the system may lose it, or leave the old bytes.

    Raises:
        OSError: The system refuses. The old file is untouched.
    """
    replace_file(path, data, lambda *_: None)


def replace_file(target: Path, data: bytes | Iterable[bytes], finish: Callable[[Path, int], None]) -> None:
    """Replace a file as a whole, by bytes or pieces of them.

    ``finish`` is called with the path and handle of the new file before it is renamed.

    Raises:
        OSError: The system refuses. The old file is untouched.
    """
    from crystal.config.temporary_files import make_temporary  # noqa: PLC0415 - most turns replace no file

    temporary, handle = make_temporary(target)
    try:
        with os.fdopen(handle, "wb") as file:
            file.writelines([data] if isinstance(data, bytes) else data)
            file.flush()
            finish(temporary, handle)
            if sys.platform != "win32":
                temporary.replace(target)
        if sys.platform == "win32":  # an open file cannot be renamed there
            temporary.replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def write_private(path: Path, data: bytes) -> None:
    """Replace a file as a whole, readable by its owner only; after a crash it has the old bytes or the new.

    A symbolic link is kept: its target is replaced.

    Raises:
        UnavailableError: The system refuses. The old file is untouched.
    """
    with system_errors(path):
        write_own(Path(os.path.realpath(path)), data)


def write_own(path: Path, data: bytes) -> None:
    """Replace a file that only crystal uses in the same way; a symbolic link is replaced, its target left unchanged."""
    with system_errors(path):
        replace_file(path, data, lambda _, handle: os.fsync(handle))
        with contextlib.suppress(OSError):  # not supported by some file systems
            sync_folder(path.parent)


def open_to_others(path: Path) -> bool:
    """Return whether group or others may read, write or enter ``path``; False if it is absent, and on Windows."""
    if sys.platform == "win32":
        return False
    try:
        return bool(stat.S_IMODE(path.stat().st_mode) & 0o077)
    except OSError:
        return False


@contextlib.contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Hold the folder's advisory lock while a file in it is read, changed and written back.

    If the file system has no such lock (some network mounts, Windows), the block runs without it.
    """
    if sys.platform == "win32":
        yield
        return
    with system_errors(folder):
        handle = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def refused(error: OSError, path: Path) -> CrystalError:
    """Return an error that says what the operating system refused to do with ``path``, and how to fix it."""
    message = f"{path}: {(error.strerror or str(error)).lower()}"
    if error.errno in (errno.EEXIST, errno.ENOTDIR):
        there = next((one for one in (path, *path.parents) if os.path.exists(one)), path)  # noqa: PTH110 - never raises
        if not os.path.isdir(there):  # noqa: PTH112
            message = f"{there} is not a folder, which crystal needs there"
    if error.errno in (errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP):
        return UsageError(message, hint="another file or folder is at that path; move it, or choose another place")
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return UnavailableError(message, hint="free some disk space, then run the command again")
    from crystal.config.file_access import owner_in_the_way, way_in  # noqa: PLC0415 - only when something is refused

    message += owner_in_the_way(path)
    return UnavailableError(message, hint=way_in(path) or "check that its disk is present and can be written")


def delete_file(path: Path) -> None:
    """Delete a file if it exists.

    Raises:
        UsageError, UnavailableError: The system refuses.
    """
    with system_errors(path), contextlib.suppress(FileNotFoundError):
        path.unlink()


def _data_dir(env: Mapping[str, str], home: Path, ldm_home: Path, explicit: Path | None) -> tuple[Path, str]:
    if explicit is not None:
        return absolute(explicit, home, name="the data folder"), "flag"
    chosen = env_place(env, "CRYSTAL_DATA_DIR", home)
    if chosen is not None:
        return chosen, "environment CRYSTAL_DATA_DIR"
    usual = ldm_home / "memory"
    openclaw = env_place(env, "OPENCLAW_HOME", home) or absolute(home / ".openclaw", home)
    legacy = openclaw / "memory-crystal"
    # In a folder without access, os.path returns False where Path raises.
    is_there = os.path.isdir(legacy) and not os.path.exists(usual / "crystal.db")  # noqa: PTH110, PTH112
    if is_there and not is_of_another_program(str(legacy / "crystal.db")):
        return legacy, f"legacy folder, because {usual / 'crystal.db'} does not exist"
    return usual, "environment LDM_HOME" if env.get("LDM_HOME", "").strip() else "default"


def env_place(env: Mapping[str, str], name: str, home: Path) -> Path | None:
    """Return the path in an environment variable, or None if it is not set."""
    value = env.get(name, "")
    return absolute(value, home, name=name) if value.strip() else None


@contextlib.contextmanager
def system_errors(path: Path) -> Iterator[None]:
    """Translate errors of the system into ``CrystalError``."""
    try:
        yield
    except OSError as error:
        raise refused(error, path) from error


def append_durably(handle: int, data: bytes, size: int) -> None:
    """Write all bytes at the position of an open file of ``size`` bytes, or remove the part that was written.

    Raises:
        OSError: The system refuses.
    """
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(handle, left) :]
        os.fsync(handle)
    except OSError:
        with contextlib.suppress(OSError):
            os.ftruncate(handle, size)
        raise


def sync_folder(folder: Path) -> None:
    """Make new and renamed names in a folder durable. On Windows, this is impossible and nothing is done.

    Raises:
        OSError: The system refuses.
    """
    if sys.platform == "win32":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
