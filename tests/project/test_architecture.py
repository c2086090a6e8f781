"""The shape of the code, where a tool of its own (ruff, mypy, import-linter) does not watch it already."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from crystal.errors import CrystalError
from crystal.store.driver import HINTS, TRANSLATION
from tests.support.copied_hook import HOOK_FILES
from tests.support.table import each_row

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGE = ROOT / "crystal"
MIGRATIONS = PACKAGE / "store" / "migrations"
SOURCES = sorted([*PACKAGE.rglob("*.py"), *(ROOT / "relay_worker").rglob("*.py")])

# A statement, not a word: upper case, as the conventions ask of SQL, and at the start of the text.
SQL = re.compile(
    r"\s*(SELECT\s|INSERT\s+(OR\s+\w+\s+)?INTO\s|UPDATE\s+\w+\s+SET\s|DELETE\s+FROM\s|REPLACE\s+INTO\s|WITH\s+\w+[^;]*\bAS\s*\("
    r"|CREATE\s+(TEMP\s+)?(TABLE|INDEX|VIRTUAL|TRIGGER|VIEW)\s|DROP\s+(TABLE|INDEX|TRIGGER|VIEW)\s|ALTER\s+TABLE\s"
    r"|PRAGMA\s|BEGIN(\s+IMMEDIATE)?\s*$|COMMIT\s*$|ROLLBACK\s*$|VACUUM\b|ATTACH\s)"
)
HOMELESS = set("utils util helpers helper common misc base manager managers tools core lib".split())
# What the hook's file may load besides what the bare interpreter has loaded already.
HOOK_MAY_LOAD = set("event os os.path posixpath genericpath stat _stat _collections_abc time abc _abc".split())
# What must not be paid for by who only wants the Python API, or only `crystal --help`.
HEAVY = {"numpy", "httpx", "keyring", "typer", "rich", "apsw", "re2", "orjson", "pydantic", "cryptography"}
HEAVY |= {"huggingface_hub", "onnx", "onnxruntime", "tokenizers", "jinja2", "starlette", "uvicorn"}


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def strings_of(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of every string that is not a docstring; of f-strings, the part before the first value."""
    tree = ast.parse(source)
    silent = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            silent.update(id(part) for part in node.values[1:])
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in silent:
            yield node.lineno, node.value


def modules_after(code: str, *flags: str) -> set[str]:
    """What a fresh interpreter has loaded after running some code."""
    child = subprocess.run(
        [sys.executable, *flags, "-c", f"{code}\nimport sys\nprint(*sorted(sys.modules), file=sys.__stdout__)"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return set(child.stdout.split())


SQL_FOLDERS = (PACKAGE / "store", ROOT / "relay_worker", PACKAGE / "transcript", PACKAGE / "handoff")
"""What reads another program's database queries that program's tables."""


@pytest.mark.slow
def test_sql_of_crystals_own_tables_lives_in_the_store_only() -> None:
    found = [
        f"{name_of(path)}:{line}: {text.strip()[:60]}"
        for path in SOURCES
        if not any(path.is_relative_to(folder) for folder in SQL_FOLDERS)
        for line, text in strings_of(path.read_text(encoding="utf-8"))
        if SQL.match(text)
    ]
    assert not found, "\n".join(found)


@each_row(
    ("text", "is_sql"),
    [
        ("SELECT a FROM b", True),
        ("\n  INSERT OR IGNORE INTO t VALUES (?)", True),
        ("WITH hits(id) AS (SELECT 1) SELECT id FROM hits", True),
        ("PRAGMA user_version", True),
        ("BEGIN IMMEDIATE", True),
        ("select a transcript", False),
        ("UPDATE your settings", False),
        ("-----BEGIN RSA PRIVATE KEY-----", False),
        ("BEGIN RSA", False),
    ],
)
def test_sql_is_told_from_words(text: str, is_sql: bool) -> None:
    assert bool(SQL.match(text)) is is_sql


def test_every_value_is_bound_except_names_of_tables() -> None:
    """``%`` and ``.format`` never build SQL; f-strings may carry names (ruff S608 is off for the generations' tables)."""
    for path in (PACKAGE / "store").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            text = None
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
                text = node.left
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format":
                text = node.func.value
            if isinstance(text, ast.Constant) and isinstance(text.value, str):
                assert not SQL.match(text.value), f"{name_of(path)}:{node.lineno}"


def test_files_stay_readable() -> None:
    long = {name_of(path): size for path in SOURCES if (size := len(path.read_text("utf-8").splitlines())) >= 400}
    assert not long, f"think again before 400 lines: {long}"


def test_every_module_has_a_noun() -> None:
    nameless = [
        name_of(path) for path in SOURCES if HOMELESS & {part.lower() for part in (path.stem, path.parent.name)}
    ]
    assert not nameless, "if a function has no home, its noun is missing"


# Where `except Exception` may stand, and why. Beside these only where it raises again.
BROAD = {
    "crystal/hook/event.py": "the user's session goes on, whatever happens",
    "crystal/embedding/local/encoder.py": "tokenizers raises nothing narrower for a file that it cannot read",
    "crystal/capture/ahead.py": "whatever failed in the other process, the import cleans these bytes itself",
    "crystal/sync/poller.py": "one bad blob must not stop the others; it is recorded",
    "crystal/config/packages.py": "a package that is broken raises anything while it is imported",
    "crystal/mcp/protocol.py": "a bug in one answer must not end the others; it goes to standard error",
    "relay_worker/store/writer.py": "the one who asked gets the error; the thread goes on for the others",
    "crystal/redact/redactor.py": "fails closed: a line that could not be cleaned is not stored",
}


@pytest.mark.slow
def test_exceptions_are_caught_broadly_where_the_conventions_say_so_only() -> None:
    broad = [
        f"{name_of(path)}:{node.lineno}"
        for path in SOURCES
        if name_of(path) not in BROAD
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or (isinstance(node.type, ast.Name) and node.type.id == "Exception"))
        and not any(isinstance(part, ast.Raise) for part in ast.walk(node))
    ]
    assert not broad, "\n".join(broad)


@pytest.mark.slow
def test_imports_respect_the_layers() -> None:
    linter = Path(sys.executable).with_name("lint-imports")
    ran = subprocess.run(
        [str(linter), "--no-cache"],
        cwd=ROOT,
        env={**os.environ, "PYTHONUTF8": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr[-2000:]


def test_the_hook_loads_next_to_nothing() -> None:
    """Compared with a bare interpreter started the same way: what it loads is time in front of the user.

    What loads while it works is pinned in test_hook.py.
    """
    hook = str(PACKAGE / "hook")
    loading = f"import sys; sys.path.insert(0, {hook!r}); import event"
    loaded = modules_after(loading, "-I", "-S") - modules_after("", "-I", "-S")
    assert loaded <= HOOK_MAY_LOAD, sorted(loaded - HOOK_MAY_LOAD)


def test_the_hook_knows_the_standard_library_only() -> None:
    for file in HOOK_FILES:
        for node in ast.walk(ast.parse((PACKAGE / "hook" / file).read_text(encoding="utf-8"))):
            names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or "crystal"]
            assert {name.partition(".")[0] for name in names} <= sys.stdlib_module_names, f"{file}:{node.lineno}"


def test_importing_crystal_loads_nothing_heavy() -> None:
    assert not HEAVY & modules_after("import crystal")


@pytest.mark.slow
def test_asking_for_help_opens_neither_store_nor_network() -> None:
    code = "import sys\nsys.argv = ['crystal', '--help']\nfrom crystal.cli.app import main\ntry:\n    main()\nexcept SystemExit:\n    pass"
    assert not (HEAVY - {"typer", "rich"}) & modules_after(code)


def driver_errors(kind: type[apsw.Error] = apsw.Error) -> Iterator[type[apsw.Error]]:
    for child in kind.__subclasses__():
        yield child
        yield from driver_errors(child)


BUGS = frozenset(
    """
    AbortError BindingsError ConnectionClosedError ConnectionNotClosedError ConstraintError CursorClosedError EmptyError
    ExecTraceAbort ExecutionCompleteError ForkingViolationError IncompleteExecutionError InternalError InterruptError
    InvalidContextError MismatchError MisuseError NoFTS5Error NotFoundError RangeError SQLError SchemaChangeError
    ThreadingViolationError TooBigError VFSFileClosedError VFSNotImplementedError
    """.split()
)
"""Errors of the driver that only a bug in crystal can cause."""


def test_every_error_of_the_driver_is_translated_or_a_bug() -> None:
    mapped = {kind for kinds in TRANSLATION.values() for kind in kinds}
    unmapped = {kind for kind in driver_errors() if kind not in mapped and kind.__name__ not in BUGS}
    assert not unmapped, f"decide what a user can do about: {sorted(kind.__name__ for kind in unmapped)}"


def test_every_error_that_reaches_a_user_has_a_hint() -> None:
    ours = set(TRANSLATION)
    assert all(issubclass(kind, CrystalError) for kind in ours)
    assert ours <= set(HINTS)


def test_migrations_are_numbered_without_gaps() -> None:
    names = sorted(path.name for path in MIGRATIONS.iterdir() if path.suffix == ".sql")
    assert all(re.fullmatch(r"\d{4}_[a-z0-9_]+\.sql", name) for name in names), names
    assert [int(name[:4]) for name in names] == list(range(1, len(names) + 1))


def test_the_pinned_requirements_name_no_address_and_hash_every_file() -> None:
    lines = (ROOT / "requirements" / "dev.txt").read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
    pins = [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
    assert pins
    assert not [line for line in lines if "://" in line or "--index-url" in line or "--find-links" in line]
    assert all(re.match(r"[a-z0-9-]+==\S+ ", pin) and "--hash=sha256:" in pin for pin in pins)


def test_every_dependency_is_pinned() -> None:
    tomllib = pytest.importorskip("tomllib" if sys.version_info >= (3, 11) else "tomli")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"], *(one for extra in project["optional-dependencies"].values() for one in extra)]
    names = {re.split(r"[\[>=<!;~ ]", one)[0].replace(".", "-").lower() for one in wanted} - {"crystal-memory"}
    pinned = set(re.findall(r"^([a-z0-9-]+)==", (ROOT / "requirements" / "dev.txt").read_text("utf-8"), re.MULTILINE))
    assert names <= pinned, f"run .ci/lock: {sorted(names - pinned)}"
