"""Claims about the registry of embedding providers: it is complete, the only list, and its recipe works as written."""

from __future__ import annotations

import ast
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from crystal.config.prices import UNKNOWN, price_of
from crystal.config.providers import EMBEDDING_PROVIDERS, EmbeddingProvider, ProviderKind, needs_key, runs_here
from crystal.embedding.chosen_embedder import make_embedder
from crystal.embedding.local.extra import PACKAGES
from tests.support.loopback import Handler, serving
from tests.support.table import each_row

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "how-to" / "add-an-embedding-provider.md"


@each_row("row", EMBEDDING_PROVIDERS.values())
def test_every_row_is_complete(row: EmbeddingProvider) -> None:
    assert hasattr(importlib.import_module(f"crystal.embedding.{row.module}"), row.implementation)
    assert row.kind is ProviderKind.INSTALLED or row.default_model in row.dimensions
    assert row.runs_here != bool(row.base_url)
    assert row.needs_key == bool(row.key_variables)
    assert row.needs_key == bool(row.usd_per_million)
    assert set(row.usd_per_million) <= set(row.dimensions)
    assert runs_here(row.name) == row.runs_here
    assert needs_key(row.name) == row.needs_key
    if row.kind is not ProviderKind.INSTALLED:
        made = make_embedder(row.name)
        assert (made.provider, made.model, made.dimension) == (row.name, row.default_model, row.dimensions[made.model])
    if row.needs_key:
        assert price_of(row.name, row.default_model) != UNKNOWN


def test_who_runs_here_is_never_guessed() -> None:
    assert not runs_here("unknown")
    assert needs_key("unknown")
    assert not needs_key("none")


@pytest.mark.slow
def test_there_is_no_second_list_of_providers() -> None:
    """``voyage`` only embeds, so a list of embedding providers elsewhere would name it."""
    named = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "crystal").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Constant) and node.value == "voyage"
    }
    assert named == {"crystal/config/providers.py"}


@pytest.mark.slow
def test_the_default_model_loads_no_package_of_the_others() -> None:
    code = (
        "import sys\nfrom crystal.embedding.chosen_embedder import make_embedder\nmade = make_embedder('embedded')\n"
        "made.embed_documents(['the deploy failed'])\nmade.embed_query('deploy')\nprint(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    optional = {package.replace("-", "_") for package in PACKAGES} | {"httpx"}
    assert not optional & set(done.stdout.split())


@contextmanager
def acme_server() -> Iterator[str]:
    class Acme(Handler):
        def do_POST(self) -> None:
            made = {"vectors": [[1.0] * 384 for _ in json.loads(self.body())["texts"]], "tokens": 7}
            self.send(200 if self.headers["Authorization"] == "Bearer secret" else 401, made)

    with serving(Acme) as url:
        yield url


EMBED = """
import sys
from crystal.embedding.chosen_embedder import make_embedder
from crystal.config.prices import price_of
made = make_embedder("acme", base_url=sys.argv[1], key="secret")
print(len(made.embed_query("hello")), made.take_tokens(), price_of("acme", made.model).input)
"""


@pytest.mark.slow
def test_the_recipe_for_a_new_provider_works_as_it_is_written(tmp_path: Path) -> None:
    module, row = re.findall(r"```(?:python|text)\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    shutil.copytree(ROOT / "crystal", tmp_path / "crystal", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "crystal" / "embedding" / "acme.py").write_text(module)
    table = tmp_path / "crystal" / "config" / "providers.py"
    text = table.read_text("utf-8")
    end_of_rows = text.index("\n)\n", text.index("_ROWS = (")) + 1
    table.write_text(text[:end_of_rows] + row + text[end_of_rows:])
    home = tmp_path / "acme-home"
    home.mkdir()
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": str(tmp_path)}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        words = (sys.executable, "-P", *words) if sys.version_info >= (3, 11) else (sys.executable, *words)
        return subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, check=False, timeout=60)

    def crystal(*words: str) -> tuple[int, str]:
        done = run("-m", "crystal", *words)
        return done.returncode, done.stdout + done.stderr

    assert crystal("config", "set", "embedding.provider", "acme") == (0, "embedding.provider = acme\n")
    assert "acme API key\tnot found\tneeded" in crystal("config")[1]
    assert "set ACME_API_KEY" in crystal("doctor")[1]
    assert crystal("models", "use", "acme")[0] == 2  # it asks before anything is sent
    env["ACME_API_KEY"] = "secret"
    assert crystal("models", "use", "acme", "--yes") == (0, "acme is chosen\n")
    assert "acme:acme-embed-1" in crystal("models")[1]
    with acme_server() as url:
        done = run("-c", EMBED, url)
    assert (done.stdout, done.stderr) == ("1536 7 0.05\n", "")
