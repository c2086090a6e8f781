"""Provide a folder for unredacted copies of conversations, which is deleted even if its process is killed."""

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from crystal.config.paths import make_private_dir

if sys.platform != "win32":
    import fcntl


@contextlib.contextmanager
def working_folder(parent: Path) -> Iterator[Path]:
    """Yield a new folder, deleted at the end of the block; first delete those of killed processes.

    A lock shows whether another process uses ``parent``; process ids would differ in another container.
    """
    make_private_dir(parent)
    with contextlib.ExitStack() as lock:
        if sys.platform != "win32":
            lock.callback(os.close, handle := os.open(parent, os.O_RDONLY))
            with contextlib.suppress(OSError):  # also where the file system has no such lock
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                for one in parent.iterdir():
                    shutil.rmtree(one, ignore_errors=True)
            with contextlib.suppress(OSError):
                fcntl.flock(handle, fcntl.LOCK_SH)
        yield Path(lock.enter_context(tempfile.TemporaryDirectory(dir=parent)))
