"""Import the optional packages that installed models need."""

from __future__ import annotations

import importlib
from typing import Any

from crystal.config.packages import install_command
from crystal.errors import NotConfiguredError

PACKAGES = ("huggingface-hub", "onnx", "onnxruntime", "tokenizers")
"""Packages that the extra ``local`` installs."""


def import_package(module: str) -> Any:
    """Import a module of one of ``PACKAGES``.

    Raises:
        NotConfiguredError: It is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        name = module.partition(".")[0].replace("_", "-")
        raise NotConfiguredError(f"the package {name} is not installed", hint=install_command(*PACKAGES)) from error
