"""crystal: the memory of your coding agent.

``from crystal import Crystal`` is its Python API; see docs/reference/python.md. Importing this package loads nothing
else: the hook and the command line start through it.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as type checkers understand it, without the time that importing ``typing`` takes

if TYPE_CHECKING:
    from crystal.api import Crystal

__version__ = "0.1.0"
__all__ = ["Crystal", "__version__"]


def __getattr__(name: str) -> object:
    if name == "Crystal":
        from crystal.api import Crystal

        return Crystal
    raise AttributeError(f"module 'crystal' has no attribute {name!r}")
