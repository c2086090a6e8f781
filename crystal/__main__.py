"""The command ``crystal``, also as ``python -m crystal``. It answers where a package that it needs is missing."""

import sys

from crystal.config.packages import answer, broken_package


def main() -> None:
    """Run the command line; the process ends with the documented exit code."""
    try:
        from crystal.cli.app import main as run
    except Exception as error:
        broken = broken_package(error)
        if broken is None:
            raise
        sys.exit(answer(sys.argv[1:], broken))
    run()


if __name__ == "__main__":
    main()
