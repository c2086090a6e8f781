from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest

from crystal.config.load import load_config
from crystal.config.table import SETTINGS
from crystal.credentials.api_keys import variables_of

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def generator() -> dict[str, Any]:
    return runpy.run_path(str(DOCS / "generate_configuration.py"))


def test_the_page_is_what_the_code_says(generator: dict[str, Any]) -> None:
    assert (DOCS / "reference/configuration.md").read_text(encoding="utf-8") == generator["render"](), (
        "run: python docs/generate_configuration.py"
    )


def test_the_page_names_every_key_and_every_variable() -> None:
    page = (DOCS / "reference/configuration.md").read_text(encoding="utf-8")
    for key, setting in SETTINGS.items():
        assert f"#### `{key}`" in page
        assert setting.kind.accepts in page
        assert all(f"`{alias.variable}`" in page for alias in setting.variables)
    for provider in ("openai", "google", "voyage"):
        row = next(line for line in page.splitlines() if line.startswith(f"| {provider} |"))
        assert re.findall(r"`(\w+)`", row) == list(variables_of(provider))


def test_the_examples_of_the_page_are_settings_that_load(home: Path) -> None:
    page = (DOCS / "reference/configuration.md").read_text(encoding="utf-8")
    examples = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    assert len(examples) == 2
    for number, example in enumerate(examples):
        file = home / f"{number}.toml"
        file.write_text(example)
        config = load_config({"CRYSTAL_CONFIG": str(file)}, home)
        assert any(source == f"file {file}" for source in config.sources.values())
