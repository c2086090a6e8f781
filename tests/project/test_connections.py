"""The page about privacy lists every module that opens a connection or starts a program."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.support.docs_blocks import ROOT

OPENS = set(
    "aiohttp anthropic asyncpg boto3 ftplib google http.client http.server httpcore httpx huggingface_hub keyring"
    " multiprocessing openai ollama paramiko psycopg pty requests smtplib socket socketserver ssl subprocess"
    " telnetlib urllib.request urllib3 uvicorn webbrowser websockets xmlrpc.client".split()
)
"""Modules, by the names under which they are imported."""
STARTS = re.compile(
    r"(exec|spawn|posix_spawn|popen|system|fork|forkpty|startfile|create_subprocess|open_connection)\w*"
)
FIRST_NAMES = "|".join({name.partition(".")[0] for name in OPENS})
MAY_OPEN = re.compile(rf"(?:import\s+|from\s+|['\"])(?:{FIRST_NAMES})\b|\b(?:os|asyncio)\s*\.\s*(?:{STARTS.pattern})")


def named(tree: ast.AST) -> Iterator[str]:
    """Everything by which code may open a connection or start a program, wherever in the module."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (one.name for one in names)
            case ast.ImportFrom(module=str(module), names=names, level=0):
                yield from (module, *(f"{module}.{one.name}" for one in names))
            case ast.Call(func=called, args=[ast.Constant(value=str(module)), *_]) if "import" in ast.unparse(called):
                yield module
            case ast.Attribute(value=ast.Name(id="os" | "asyncio"), attr=name) if STARTS.fullmatch(name):
                yield "subprocess"


def opens(source: str) -> bool:
    if not MAY_OPEN.search(source):  # parsing all of them takes seconds
        return False
    parts = {".".join(name.split(".")[:depth]) for name in named(ast.parse(source)) for depth in (1, 2)}
    return bool(OPENS & parts)


def test_every_module_that_opens_a_connection_or_starts_a_program_is_on_the_page() -> None:
    found = {
        path.relative_to(ROOT).as_posix() for path in (ROOT / "crystal").rglob("*.py") if opens(path.read_text("utf-8"))
    }
    page = (ROOT / "docs" / "explanation" / "privacy.md").read_text("utf-8")
    rows = page.partition("### Every connection and program")[2].partition("\n## ")[0].splitlines()
    listed = {path for row in rows if row.startswith("| `") for path in re.findall(r"`(crystal/[\w/]+\.py)`", row)}
    assert listed == found


def test_no_way_to_open_one_is_missed() -> None:
    for source in (
        "import httpx", "def f():\n    import openai", "from urllib import request", "from urllib.request import urlopen",
        "hub = import_package('huggingface_hub')", "os.execve(a, b, c)", "os.posix_spawn(a, b, c)", "os.system(a)",
        "asyncio.create_subprocess_exec(a)", "asyncio.open_connection(a)", "from http import client",
    ):  # fmt: skip
        assert opens(source), source
    for source in ("from urllib.parse import quote", "import asyncio", "from http import HTTPStatus", "os.getpid()"):
        assert not opens(source), source
