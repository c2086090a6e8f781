"""A home folder in which a test lives, whatever the one who runs it has set."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from crystal.config.harnesses import places_of_all

CLEARED_PREFIXES = (
    "CRYSTAL_", "LDM_", "CLAUDE", "ANTHROPIC_", "XDG_", "AI_AGENT", "CODEX_", "CURSOR_AGENT", "GEMINI_CLI", "OPENCODE"
)  # fmt: skip
CLEARED = (
    *(place.variable for *_, place in places_of_all() if place.variable),
    "OPENAI_API_KEY",
    "OPENAI_BASE_URL",
    "GOOGLE_API_KEY",
    "GEMINI_API_KEY",
    "VOYAGE_API_KEY",
    "OLLAMA_HOST",
)
KEPT = ("CRYSTAL_E2E",)


def live_in(home: Path, patch: pytest.MonkeyPatch) -> None:
    """Let HOME, Claude Code's folder and nothing else of the environment say where things are."""
    for name in list(os.environ):
        if name not in KEPT and (name.startswith(CLEARED_PREFIXES) or name in CLEARED):
            patch.delenv(name)
    patch.setenv("HOME", str(home))
    patch.setenv("USERPROFILE", str(home))
    patch.setenv("CLAUDE_CONFIG_DIR", str(home / ".claude"))
    # The keyring of whoever runs the tests is theirs; children inherit this too.
    patch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")
