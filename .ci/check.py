"""Run what is quick before a commit: lint, types, imports, line budgets, and the fast tests of what has changed.

Usage: python .ci/check.py [BRANCH]

What has changed is told by git, against BRANCH (main, where none is given). For a changed module the tests that name
it run, or else all tests of its package; mypy runs beside them. The whole takes a minute at most: test files that did
not get their turn are named, and left to ``make test`` and to CI, which run everything.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
SECONDS = 55.0
# So many test files in one process: each process loads crystal and the test tools anew.
FILES = 4
# As the oldest Python, unless the libraries of this one are written for newer ones only.
TYPES_OF = "3.10" if sys.version_info < (3, 12) else f"3.{sys.version_info.minor}"
STEPS = (
    ("ruff check", [BIN / "ruff", "check", "--quiet", "."]),
    ("ruff format", [BIN / "ruff", "format", "--check", "--quiet", "."]),
    ("import-linter", [BIN / "lint-imports"]),
    ("line budgets", [sys.executable, ".ci/budget.py"]),
)
TYPES = ("mypy", [BIN / "mypy", "--python-version", TYPES_OF])


def changed_files(branches: list[str]) -> list[str]:
    """Name the files that differ from where this branch left the first of ``branches`` that exists, new ones too."""
    base = next(filter(None, (_git("merge-base", branch, "HEAD") for branch in branches)), ["HEAD"])
    return sorted({*_git("diff", "--name-only", base[0]), *_git("ls-files", "--others", "--exclude-standard")})


def _git(*words: str) -> list[str]:
    ran = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return ran.stdout.splitlines() if ran.returncode == 0 else []


def tests_of(changed: list[str], root: Path) -> list[str]:
    """Choose test files for the changed files: those that changed themselves first, then the smallest."""
    texts = {path.relative_to(root).as_posix(): path.read_text("utf-8") for path in root.glob("tests/**/test_*.py")}
    chosen = {test for path in changed for test in _tests_of_one(path, texts)}
    return sorted(chosen, key=lambda test: (test not in changed, len(texts[test])))


def _tests_of_one(path: str, texts: dict[str, str]) -> Iterator[str]:
    if path in texts:
        yield path
    elif path.endswith(".md"):
        yield "tests/project/test_docs.py"
    elif path.endswith(".py") and path.startswith(("crystal/", "relay_worker/", "tests/support/")):
        package, _, module = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".").rpartition(".")
        names = re.compile(rf"\b{package}\.{module}\b|from {package} import .*\b{module}\b")
        naming = [test for test, text in texts.items() if names.search(text)]
        parts = path.split("/")
        folder = "tests/relay_worker/" if parts[0] == "relay_worker" else f"tests/{parts[1]}/"
        yield from naming or [test for test in texts if test.startswith(folder)]


def run_tests(tests: list[str], moment: float) -> bool:
    """Run test files in two processes, until a moment; tell whether none of those that ran failed."""
    parts = [tests[at : at + FILES] for at in range(0, len(tests), FILES)]
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda part: _run_part(part, moment), parts))
    print(*(answer for answer in answers if answer), sep="\n", end="")
    late = [test for part, answer in zip(parts, answers, strict=True) if answer is None for test in part]
    print(f"tests: {len(tests) - len(late)} of {len(tests)} test files of what has changed ran")
    if late:
        print(f"no time was left for: {' '.join(late[:5])}{' ...' * (len(late) > 5)}\nrun all of them: make test")
    return not any(answers)


def _run_part(tests: list[str], moment: float) -> str | None:
    """Run some files; return what is printed if one fails, "" if all pass, None if time runs out."""
    left = moment - time.monotonic()
    if left < 0:
        return None
    words = [sys.executable, "-m", "pytest", "-q", "--no-header", "-m", "not slow and not e2e", *tests]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as process:
        try:
            printed = process.communicate(timeout=left)[0]
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # and what the tests started
            return None
    return "" if process.returncode in (0, 5) else printed


def is_well(name: str, words: list[str | Path], begin: float) -> bool:
    """Run one step and print how it ended, and when."""
    ran = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    shown = ran.stdout.rstrip() if ran.returncode or name == "line budgets" else ""
    print(f"{name}: {'ok' if ran.returncode == 0 else 'FAILED'}, {time.monotonic() - begin:.0f} s\n{shown}".rstrip())
    return ran.returncode == 0


def main(branches: list[str]) -> int:
    """Run every step even after one failed; return the exit code."""
    begin = time.monotonic()
    os.chdir(ROOT)
    with ThreadPoolExecutor(1) as pool:
        types = pool.submit(is_well, *TYPES, begin)
        failed = [name for name, words in STEPS if not is_well(name, words, begin)]
        failed += ["tests"] * (not run_tests(tests_of(changed_files(branches), ROOT), begin + SECONDS))
    failed += ["mypy"] * (not types.result())
    print(f"check: {'failed: ' + ', '.join(failed) if failed else 'ok'}, {time.monotonic() - begin:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["main", "origin/main"]))
