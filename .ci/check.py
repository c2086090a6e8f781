"""Run what is quick before a commit: lint, types, imports, line budgets, and the fast tests of what has changed.

Usage: python .ci/check.py [BRANCH]

What has changed is told by git, against BRANCH (main, where none is given). For a changed module the tests that name
it run, or else all tests of its package. The whole takes a minute at most: test files that did not get their turn are
named, and left to ``make test`` and to CI, which run everything.
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
MIN_TEST_SECONDS = 15.0
# As the oldest Python, unless the libraries of this one are written for newer ones only.
TYPES_OF = "3.10" if sys.version_info < (3, 12) else f"3.{sys.version_info.minor}"
STEPS = (
    ("ruff check", [BIN / "ruff", "check", "--quiet", "."]),
    ("ruff format", [BIN / "ruff", "format", "--check", "--quiet", "."]),
    ("import-linter", [BIN / "lint-imports"]),
    ("line budgets", [sys.executable, ".ci/budget.py"]),
    ("mypy", [BIN / "mypy", "--python-version", TYPES_OF]),
)


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
    """Run test files, two at a time, until a moment; tell whether none of those that ran failed."""
    with ThreadPoolExecutor(2) as pool:
        answers = dict(zip(tests, pool.map(lambda test: _run_one(test, moment), tests), strict=True))
    print(*(answer for answer in answers.values() if answer), sep="\n", end="")
    late = [test for test, answer in answers.items() if answer is None]
    print(f"tests: {len(tests) - len(late)} of {len(tests)} test files of what has changed ran")
    if late:
        print(f"no time was left for: {' '.join(late[:5])}{' ...' * (len(late) > 5)}\nrun all of them: make test")
    return not any(answers.values())


def _run_one(test: str, moment: float) -> str | None:
    """Run one file; return what it prints if it fails, "" if it passes, None if time runs out."""
    left = moment - time.monotonic()
    if left < 0:
        return None
    words = [sys.executable, "-m", "pytest", "-q", "--no-header", "-m", "not slow and not e2e", test]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as process:
        try:
            printed = process.communicate(timeout=left)[0]
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # and what the tests started
            return None
    return "" if process.returncode in (0, 5) else printed


def main(branches: list[str]) -> int:
    """Run every step even after one failed; return the exit code."""
    begin, failed = time.monotonic(), []
    os.chdir(ROOT)
    for name, words in STEPS:
        ran = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        print(f"{name}: {'ok' if ran.returncode == 0 else 'FAILED'}, {time.monotonic() - begin:.0f} s", flush=True)
        if ran.returncode or name == "line budgets":
            print(ran.stdout.rstrip(), flush=True)
        failed += [name] * bool(ran.returncode)
    if not run_tests(
        tests_of(changed_files(branches), ROOT), max(begin + SECONDS, time.monotonic() + MIN_TEST_SECONDS)
    ):
        failed.append("tests")
    print(f"check: {'failed: ' + ', '.join(failed) if failed else 'ok'}, {time.monotonic() - begin:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["main", "origin/main"]))
