"""A folder for copies of conversations that nobody has cleaned yet: it goes even if its process is killed."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from crystal.config.paths import make_private_dir
from crystal.config.temporary_files import may_live


@contextlib.contextmanager
def working_folder(parent: Path) -> Iterator[Path]:
    """Yield a new folder, deleted at the end of the block. Delete what killed processes left beside it."""
    make_private_dir(parent)
    for one in parent.iterdir():
        process = one.name.partition("-")[0]
        if process != str(os.getpid()) and not may_live(process):
            shutil.rmtree(one, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=f"{os.getpid()}-", dir=parent) as folder:
        yield Path(folder)
