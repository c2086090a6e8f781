"""The command ``crystal``, also as ``python -m crystal``. It answers where a package that it needs is missing."""

import atexit
import contextlib
import gc
import sys

from crystal import __version__

MANY_OBJECTS = 500_000
"""New objects after which a search looks for garbage: it loads packages above all, and ends."""


def main() -> None:
    """Run the command line; the process ends with the documented exit code."""
    if sys.argv[1:] == ["--version"]:
        # Scripts ask often, and the command line takes 100 ms to load. It also says why a line cannot be written.
        with contextlib.suppress(OSError):
            print(f"crystal {__version__}", flush=True)
            return
    if sys.argv[1:] == ["statusline"]:
        from crystal.hook.statusline import main as print_line

        print_line()
        return
    try:
        if sys.argv[1:2] == ["search"]:
            gc.set_threshold(MANY_OBJECTS)
            atexit.register(gc.freeze)  # Python would look through all objects as it ends: a tenth of a search
            from crystal.cli.plain_search import run_plainly

            if run_plainly(sys.argv[2:]):
                return
        from crystal.cli.app import main as run
    except KeyboardInterrupt:  # while it loads: nothing has begun
        sys.exit(130)
    except Exception as error:
        from crystal.config.packages import answer, broken_package

        broken = broken_package(error)
        if broken is None:
            raise
        sys.exit(answer(sys.argv[1:], broken))
    run()


if __name__ == "__main__":
    main()
