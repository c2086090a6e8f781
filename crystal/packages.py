"""Say how to install a package into the environment that this process runs in: pip, pipx, or uv.

Names of packages are given, never ``crystal-memory[extra]``: crystal may have been installed from a checkout, and the
name alone would then be looked for at an index.
"""

from __future__ import annotations

import importlib.util
import shlex
import shutil
import sys
from pathlib import Path

LOCAL_MODELS = ("onnxruntime", "tokenizers")


def install_command(*packages: str) -> str:
    """Return the command that installs packages where this crystal can import them."""
    prefix, python = Path(sys.prefix), shlex.quote(sys.executable)
    words = shlex.join(packages)
    if (prefix / "pipx_metadata.json").exists():
        return f"pipx inject {shlex.quote(prefix.name)} {words}"
    if not (prefix / "uv-receipt.toml").exists() and importlib.util.find_spec("pip") is not None:
        return f"{python} -m pip install {words}"
    if shutil.which("uv") is not None:
        return f"uv pip install --python {python} {words}"
    return f"{python} -m ensurepip && {python} -m pip install {words}"
