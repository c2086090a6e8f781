"""Report required packages that cannot be loaded, and how to install them: by pip, pipx, or uv.

Standard library only: this must work without any of them.

Commands name packages, never ``crystal-memory[extra]``: crystal may have been installed from a checkout, and an index
may not have it.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

from crystal.errors import NotConfiguredError


def install_command(*packages: str) -> str:
    """Return the command that installs packages where this crystal can import them."""
    prefix, python, words = Path(sys.prefix), shlex.quote(sys.executable), shlex.join(packages)
    if (prefix / "pipx_metadata.json").exists():
        return f"pipx inject {shlex.quote(prefix.name)} {words}"
    if not (prefix / "uv-receipt.toml").exists() and importlib.util.find_spec("pip") is not None:
        return f"{python} -m pip install {words}"
    if shutil.which("uv") is not None:
        return f"uv pip install --python {python} {words}"
    return f"{python} -m ensurepip && {python} -m pip install {words}"


def reinstall_command(package: str) -> str:
    """Return the command that installs a package again, even if a broken one is in its place."""
    command = install_command(package)
    if command.startswith("pipx"):
        return f"{command} --force"
    return f"{command} --reinstall" if command.startswith("uv") else f"{command} --force-reinstall"


_LOADED = "ahocorasick_rs apsw cryptography numpy orjson rich sqlite_vec typer".split()
_ASKED_BY_NAME = frozenset(
    """certifi confusable_homoglyphs httpcore httpx jinja2 markdown_it markupsafe mcp_types mnemonic msgspec pathspec
    pygments segno spake2 starlette tomlkit uvicorn""".split()
)
"""Packages of the relay, of servers and of agents, which load slowly: only their presence is checked."""

PACKAGES = {
    **{name: name.replace("_", "-") for name in (*_LOADED, *sorted(_ASKED_BY_NAME))},
    "markdown_it": "markdown-it-py",
    "re2": "google-re2",
    "backports.zstd" if sys.version_info < (3, 14) else "compression.zstd": "backports.zstd",
}
"""Distribution by module."""

_BUILT_WITH = {"_ctypes": "libffi", "_ssl": "OpenSSL", "zlib": "zlib"}
"""Modules of Python itself that it lacks if it was built without a library."""

_COMPILED = {"cryptography": "hazmat/bindings/_rust*.so", "numpy": "_core/_multiarray_umath*", "sqlite_vec": "vec0*"}
"""Slow packages: only their compiled part is loaded."""


def broken_packages(*, deep: bool = False) -> Iterator[NotConfiguredError]:
    """Load the packages that every command may need, or only find slow ones; yield an error for each failure.

    Args:
        deep: Load them all, however long that takes.
    """
    lacking = [_without(module) for module in _BUILT_WITH if importlib.util.find_spec(module) is None]
    yield from lacking
    for module in () if lacking else PACKAGES:  # which fail for the same reason
        try:
            spec = importlib.util.find_spec(module)
            if spec is None:
                raise ModuleNotFoundError(f"no module named {module!r}", name=module)
            if _is_empty(spec):
                raise ImportError(f"nothing is in it: {spec.origin or 'an empty folder'}", name=module)
            if deep or not (module in _ASKED_BY_NAME or _is_compiled_part_sound(module, spec.origin)):
                importlib.import_module(module)
        except Exception as error:  # noqa: BLE001 - a broken package raises anything; this only translates
            yield _broken(module, error)


def _is_empty(spec: ModuleSpec) -> bool:
    """Return True if a package consists of empty files or folders, which Python could import."""
    files = [path for folder in spec.submodule_search_locations or () for path in Path(folder).glob("[!_]*")]
    return not any(path.is_dir() or path.stat().st_size for path in (*files, Path(spec.origin or os.devnull)))


def _is_compiled_part_sound(module: str, origin: str | None) -> bool:
    """Return True if the system loads a package's compiled part, with the libraries that it needs."""
    if module not in _COMPILED or origin is None:
        return False
    import ctypes  # noqa: PLC0415 - for this alone

    parts = list(Path(origin).parent.glob(_COMPILED[module]))
    try:
        return bool(parts) and all(ctypes.CDLL(str(part)) for part in parts)
    except OSError:
        return False  # the import that follows reports why


def broken_package(error: BaseException) -> NotConfiguredError | None:
    """Return the error for the package whose import failed; None if the error has another cause."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, ImportError) and seen.name in _BUILT_WITH:
            return _without(seen.name)
        module = _missing(seen) or _raising(seen)
        if module is not None:
            return _broken(module, seen)
        seen = seen.__cause__ or seen.__context__
    return None


def _missing(error: BaseException) -> str | None:
    """Return the package that is missing, or that lacks a name because its release is unknown to crystal."""
    if isinstance(error, AttributeError) and isinstance(error.obj, ModuleType):
        return _known(error.obj.__name__)
    if not isinstance(error, ImportError) or not error.name:
        return None
    # "cannot import name 'zstd' from 'backports'" names the parent package
    return _known(error.name) or next((known for known in PACKAGES if known.rpartition(".")[0] == error.name), None)


def _raising(error: BaseException) -> str | None:
    """Return the package whose module code raised an error during its import."""
    found, step = None, error.__traceback__
    while step is not None:
        if step.tb_frame.f_code.co_name == "<module>":
            found = _known(str(step.tb_frame.f_globals.get("__name__", ""))) or found
        step = step.tb_next
    return found


def _known(name: str) -> str | None:
    return next((known for known in PACKAGES if name == known or name.startswith(f"{known}.")), None)


def _broken(module: str, error: BaseException) -> NotConfiguredError:
    name = PACKAGES[module]
    if isinstance(error, ModuleNotFoundError) and error.name == module:
        words = f"the package {name} is not installed"
    else:
        words = f"the package {name} cannot be loaded: {type(error).__name__}: {str(error)[:200]}"
    return NotConfiguredError(words, hint=reinstall_command(name))


def _without(module: str) -> NotConfiguredError:
    library = _BUILT_WITH[module]
    hint = f"install {library} and its headers, then build this Python again; or install crystal with another Python"
    words = f"Python was built without {library} (no module {module}): {sys.executable}"
    return NotConfiguredError(words, hint=hint)


def answer(words: list[str], broken: NotConfiguredError) -> int:
    """Print the error of a broken package, in the format of doctor and status for these; return the exit code."""
    message, fix = broken.message, broken.hint
    if words[:1] == ["doctor"] and "--json" in words:
        check = {"name": "software", "verdict": "failure", "message": message, "fix": fix}
        print(json.dumps({"schema": 1, "ok": False, "checks": [check]}))
        return 1
    if words[:1] == ["status"] and "--json" in words:
        why = {"code": "software", "message": message, "fix": fix}
        capture = {"state": "not capturing", "reasons": [why], "remarks": []}
        problem = {"message": message, "fix": fix}
        print(json.dumps({"schema": 1, "capture": capture, "ok": False, "problem": problem}))
        return broken.exit_code
    if words[:1] in (["doctor"], ["status"]):
        if words[0] == "status":
            print(f"NOT capturing: {message} (fix: {fix})")
        print(f"FAIL  software: {message}\n      fix: {fix}")
        return 1 if words[0] == "doctor" else broken.exit_code
    print(f"crystal: error: {message}\ncrystal: hint: {fix}", file=sys.stderr)
    return broken.exit_code
