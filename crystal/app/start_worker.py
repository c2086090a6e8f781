"""Start the detached worker from a command: deferred work continues without the terminal."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from crystal.config.paths import Places
from crystal.hook import event as hook
from crystal.hook import session_start

WORK_SHARE = 0.5
"""The worker uses one core at most, and rests as long as it worked."""
NICENESS = 10
"""Linux takes the priority of reading and writing from this too."""
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def start_worker(places: Places) -> None:
    """Start a worker in a session of its own: it outlives this process and its terminal. Returns at once.

    If another worker runs, the new one ends at once.
    """
    env = {
        **os.environ,
        "LDM_HOME": str(places.ldm_home),
        "CRYSTAL_DATA_DIR": str(places.data_dir),
        "CRYSTAL_CONFIG": str(places.config_file),
        "CLAUDE_CONFIG_DIR": str(places.claude_dirs[0]),
    }
    env.pop("CRYSTAL_HOOK_WAIT", None)
    root = str(Path(hook.SCRIPT).resolve().parents[2])
    command = [sys.executable, "-I", "-X", "utf8", "-c", hook.WORKER, root]
    if sys.platform == "win32":  # untested
        session_start.start_worker_on_windows(env, command, 0)
        return
    import subprocess  # noqa: PLC0415 - a turn loads this module, and starts nothing with it

    worker = subprocess.Popen(
        command,
        env=env,
        cwd=os.sep,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    worker.returncode = 0  # no code waits for it: without this Python warns that it still runs


def lower_priority() -> None:
    """Lower this process's priority below everything else. Only for a separate process; cannot be undone."""
    os.environ.update(ONE_THREAD)  # read when NumPy and onnxruntime are loaded
    if hasattr(os, "nice"):
        os.nice(NICENESS)
