"""Find the project of a folder, and its identity when the folder is renamed, moved or cloned.

``find_project`` reads small files of git and runs nothing. ``first_commit`` runs git once; callers keep its result.
Neither raises, whatever is found where git's files should be. A linked worktree belongs to its main work tree.
"""

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from crystal.model.capture import Project
from crystal.model.named_tuple import NamedTuple
from crystal.model.repository_address import repository_identity, without_credentials

MARKER_FILE = ".crystal-project"
"""File whose first line identifies the project of its folder and of all folders below."""
MARKER_ID = r"[A-Za-z0-9][A-Za-z0-9._-]{7,63}"
GIT_SECONDS = 3.0
_MAX_MARKER_BYTES = 4096
_MAX_POINTER = 64 * 1024
_MAX_CONFIG = 1024 * 1024
# Patterns as text: ``re`` compiles each when it is first used.
_WORKTREE = r"(.+?)[/\\](?:\.claude[/\\]worktrees|\.worktrees)[/\\][^/\\]"
_SHORT = r"(?!(?:https?|ssh|git|file)://|[A-Za-z]:[/\\])(?:[\w.-]*@)?[\w-]+:"
"""Beginning of an address with a name that git's settings may write out, as it has no dot."""
_SECTION = r'\[\s*([\w.-]+)(?:\s+"((?:[^"\\]|\\.)*)")?\s*\]'


class _Repository(NamedTuple):
    """Root of a work tree, the folder of its own git files, and the folder shared by all its work trees."""

    root: Path
    git_dir: Path
    common_dir: Path


class _Setting(NamedTuple):
    """A setting in a git config file, of ``[section "name"]``."""

    section: str
    name: str
    key: str
    value: str


def find_project(cwd: str) -> Project:
    """Return the project of a folder.

    The folder is walked up to the first git repository; ``git_root`` is the main work tree's root and ``remote`` the
    identity of ``origin``'s repository, else ``marker:ID`` if a marker file names one. Without a
    repository, the folder of the nearest marker file is the root. A missing folder is a separate project, named after
    its last part; but a worktree in ``<root>/.claude/worktrees`` or ``<root>/.worktrees`` belongs to its root, because
    worktrees are deleted when their work is done.
    """
    alone = Project(cwd=cwd, name=_last_part(cwd))
    folder = Path(cwd)
    if not folder.is_absolute():
        return alone
    if not _is_folder(folder):
        made = re.match(_WORKTREE, cwd)
        if made is None:
            return alone
        folder = Path(made[1])
        if not _is_folder(folder):
            is_home = len(folder.parts) <= 3  # as /home/you: worktrees of any project may be there
            return alone if is_home else alone._replace(git_root=made[1], name=folder.name)
    folder = _normal(folder)
    repository = _find_repository(folder)
    if repository is None:
        return _marked_project(alone, folder)
    root = _main_root(repository)
    return Project(
        cwd=cwd,
        git_root=_storable(str(root)),
        remote=_origin(repository.common_dir / "config") or _marker_at(root),
        name=_storable(root.name.removesuffix(".git")) or alone.name,
    )


def first_commit(git_root: str) -> str | None:
    """Return ``commit:`` and the id of a repository's first commit; None if git cannot tell within three seconds.

    Runs git without hooks, network or configuration of the user. A shallow clone does not have its first commit.
    """
    import subprocess  # noqa: PLC0415 - every hook's worker finds projects, and git is asked once for each

    env = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "GIT_CONFIG_NOSYSTEM": "1", "HOME": os.devnull}
    env |= {"GIT_NO_REPLACE_OBJECTS": "1", "GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "none"}
    # The folder may belong to another user, which git refuses to read by default; this command runs nothing from it.
    command = ["git", "-c", "safe.directory=*", "-C", git_root, "rev-list", "--max-parents=0", "HEAD", "--"]
    try:
        git_dir = Path(git_root) / ".git"
        if (git_dir / "shallow").exists() or _is_without_commit(git_dir):
            return None
        done = subprocess.run(
            command, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=GIT_SECONDS, check=False
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    ids = done.stdout.decode("ascii", "replace").split()
    if done.returncode != 0 or not ids or not re.fullmatch("[0-9a-f]{40,64}", ids[-1]):
        return None
    return f"commit:{ids[-1]}"


def _is_without_commit(git_dir: Path) -> bool:
    """Return True if a repository has no commit yet, so that git is not run after every turn."""
    heads = git_dir / "refs" / "heads"
    if (git_dir / "packed-refs").exists() or not (_read(git_dir / "HEAD", _MAX_MARKER_BYTES) or "").startswith("ref:"):
        return False
    return heads.is_dir() and not any(heads.iterdir())


def _marked_project(alone: Project, folder: Path) -> Project:
    """Return the project of the nearest marker file in a folder or above, or ``alone``."""
    for place in (folder, *folder.parents):
        identity = _marker_at(place)
        if identity is not None:
            root = _storable(str(place))
            return alone._replace(git_root=root, remote=identity, name=_storable(place.name) or alone.name)
    return alone


def _marker_at(folder: Path) -> str | None:
    text = _read(folder / MARKER_FILE, _MAX_MARKER_BYTES)
    line = "" if text is None else text.partition("\n")[0].strip()
    return f"marker:{line}" if re.fullmatch(MARKER_ID, line) else None


def shared_git_folder(folder: Path) -> Path | None:
    """Return git's folder of a repository's top, for a linked worktree that of its origin; None if it is no top."""
    repository = _repository_at(folder)
    return None if repository is None else repository.common_dir


def linked_trees(root: str) -> list[str]:
    """Return the tops of the linked working trees of a repository, by its main working tree's root, or its own folder.

    Only trees that git still lists: a removed one is not among them.
    """
    found = _repository_at(Path(root))
    common = found.common_dir if found else Path(root)
    try:
        names = sorted(common.glob("worktrees/*/gitdir"))
    except (OSError, ValueError):
        return []
    pointers = [(name.parent, (_read(name, _MAX_POINTER) or "").strip()) for name in names]
    return [_storable(str(_normal(folder / pointer).parent)) for folder, pointer in pointers if pointer]


def work_tree(folder: str) -> tuple[str, str | None] | None:
    """Return the top of the working tree that a folder is in, and its branch, None if none is checked out.

    None for a folder without git. A linked worktree is its own.
    """
    found = _find_repository(Path(folder)) if _is_folder(Path(folder)) else None
    if found is None or found.root == found.git_dir:
        return None
    head = (_read(found.git_dir / "HEAD", _MAX_MARKER_BYTES) or "").strip()
    return str(found.root), head.removeprefix("ref: refs/heads/") if head.startswith("ref: refs/heads/") else None


def _find_repository(folder: Path) -> _Repository | None:
    """Walk up from a folder to the first one with a ``.git`` that git would accept."""
    for place in (folder, *folder.parents):
        repository = _repository_at(place)
        if repository is not None:
            return repository
    return None


def _repository_at(folder: Path) -> _Repository | None:
    git = folder / ".git"
    if not _is_folder(git):
        pointer = _read(git, _MAX_POINTER)
        if pointer is None or not pointer.startswith("gitdir:"):
            return None
        git = _normal(folder / pointer.removeprefix("gitdir:").strip())
    if not _exists(git / "HEAD"):
        return None
    common = (_read(git / "commondir", _MAX_POINTER) or "").strip()
    return _Repository(folder, git, _normal(git / common) if common else git)


def _main_root(repository: _Repository) -> Path:
    """Return the main work tree's root; for a linked worktree that of its origin."""
    common = repository.common_dir
    if common == repository.git_dir:
        return repository.root
    return common.parent if common.name.startswith(".") else common  # .git or .bare, else a bare repository


def _origin(config_path: Path) -> str | None:
    """Return the identity of the repository at the first address of the remote ``origin`` in a git config file."""
    own = [*_settings(_read(config_path, _MAX_CONFIG) or "")]
    written = next((one.value for one in own if one[:3] == ("remote", "origin", "url")), "")
    address = without_credentials(_written_out(written, own))
    return _storable(repository_identity(address)) if address else None


def _written_out(address: str, own: list[_Setting]) -> str:
    """Return an address whose beginning is a short name, such as ``gh:``, as git's ``insteadOf`` writes it out.

    Whole addresses are unchanged: what they are replaced by, such as a mirror's, is of this machine alone.
    """
    if not re.match(_SHORT, address):
        return address
    home = Path(os.path.expanduser("~"))  # noqa: PTH111 - never raises
    files = (Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config") / "git" / "config", home / ".gitconfig")
    every = [*own, *(one for file in files for one in _settings(_read(file, _MAX_CONFIG) or ""))]
    rules = [one for one in every if (one.section, one.key) == ("url", "insteadof") and address.startswith(one.value)]
    best = max(rules, key=lambda one: len(one.value), default=None)
    return best.name + address[len(best.value) :] if best and best.value else address


def _settings(config: str) -> Iterator[_Setting]:
    """Yield the settings with a value in the sections of a git config file."""
    section: tuple[str, str] | None = None
    for line in _logical_lines(config):
        match = re.match(_SECTION, line)
        if match is not None:
            section = (match[1].lower(), match[2] or "")
        key, equals, value = line[match.end() if match else 0 :].partition("=")
        if section and equals:
            yield _Setting(*section, key.strip().lower(), _config_value(value))


def _logical_lines(config: str) -> list[str]:
    return [line.strip() for line in config.replace("\\\r\n", "").replace("\\\n", "").split("\n")]


def _config_value(value: str) -> str:
    """Read a value of a git config file: quotes, escapes and comments."""
    result: list[str] = []
    quoted = False
    chars = iter(value.strip())
    for char in chars:
        if char == '"':
            quoted = not quoted
        elif char == "\\":
            following = next(chars, "")
            result.append({"n": "\n", "t": "\t", "b": ""}.get(following, following))
        elif char in "#;" and not quoted:
            break
        else:
            result.append(char)
    return "".join(result).strip()


def _read(path: Path, limit: int) -> str | None:
    """Read a small regular file as text; None for anything else: missing, a pipe, a device, too large, unreadable."""
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode) or found.st_size > limit:
            return None
        with path.open("rb") as file:
            return file.read(limit).decode("utf-8", "surrogateescape")
    except (OSError, ValueError):
        return None


def _is_folder(path: Path) -> bool:
    try:
        return stat.S_ISDIR(path.stat().st_mode)
    except (OSError, ValueError):
        return False


def _exists(path: Path) -> bool:
    """Return True if a path exists, including a broken link (git sometimes keeps HEAD as one)."""
    try:
        path.lstat()
    except (OSError, ValueError):
        return False
    return True


def _normal(path: Path) -> Path:
    """Remove ``..`` from a path without accessing the disk; symbolic links are not resolved."""
    return Path(os.path.normpath(path))


def _last_part(path: str) -> str:
    """Return the last part of a path of any system."""
    parts = [part for part in re.split(r"[/\\]", path) if part]
    return parts[-1] if parts else path


def _storable(text: str) -> str:
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace").replace("\0", "\ufffd")
