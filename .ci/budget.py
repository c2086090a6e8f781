"""Compare the lines of code of each package with its budget in pyproject.toml; exit 1 where one is exceeded.

Usage: python .ci/budget.py [--write]

A line of code is one that is neither blank, nor a comment, nor part of a docstring. ``--write`` sets each budget to
today's size, rounded up to the next 50.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TABLE = re.compile(r'(?<=^\[tool\.crystal\.budget\]\n)(?:".+" = \d+\n)*', re.MULTILINE)


def lines_of_code(path: Path) -> int:
    """Count the lines of a Python file that hold code."""
    text = path.read_text(encoding="utf-8")
    lines = {at for at, line in enumerate(text.splitlines(), 1) if line.strip() and not line.lstrip().startswith("#")}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def sizes(root: Path) -> dict[str, int]:
    """Count the lines of each package; the flat files of ``crystal`` and all of ``relay_worker`` are one each."""
    found: dict[str, int] = {}
    for path in sorted([*root.glob("crystal/**/*.py"), *root.glob("relay_worker/**/*.py")]):
        parts = path.relative_to(root).parts
        package = "/".join(parts[:2]) if parts[0] == "crystal" and parts[2:] else parts[0]
        found[package] = found.get(package, 0) + lines_of_code(path)
    return found


def main(root: Path, *, write: bool) -> int:
    """Print the table, or write the budgets; return the exit code."""
    settings, found = (root / "pyproject.toml").read_text(encoding="utf-8"), sizes(root)
    if write:
        rows = "".join(f'"{package}" = {-(-size // 50) * 50}\n' for package, size in found.items())
        (root / "pyproject.toml").write_text(TABLE.sub(rows, settings), encoding="utf-8")
        return 0
    budgets = {name: int(most) for name, most in re.findall(r'"(.+)" = (\d+)', TABLE.findall(settings)[0])}
    for package in sorted(found | budgets):
        size, most = found.get(package, 0), budgets.get(package, 0)
        note = "  no such package: delete its row" if not size else "  over" if size > most else ""
        print(f"{package:22}{size:7,}{most:8,}{note}")
    print(f"{'lines of code, budget':22}{sum(found.values()):7,}{sum(budgets.values()):8,}")
    wrong = [name for name in found | budgets if not 0 < found.get(name, 0) <= budgets.get(name, 0)]
    if wrong:
        print(f"over budget: {', '.join(wrong)}")
        print("delete, or raise the budget in pyproject.toml and say why in the commit")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(ROOT, write="--write" in sys.argv[1:]))
