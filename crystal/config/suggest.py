"""Say which setting somebody may have meant."""

from __future__ import annotations

from collections.abc import Iterable


def meant(key: str, known: Iterable[str]) -> str | None:
    """Return a hint for a key that is no setting; None if none of the known keys is like it."""
    tail = key.lower().rpartition(".")[2].replace("-", "_")
    if tail.endswith(("key", "token", "secret", "password")):
        return "secrets do not belong in this file: use the environment, .env in the data folder, or the keyring"
    if tail in ("data_dir", "ldm_home"):
        return f"the hook reads no file: set the variable {'LDM_HOME' if tail == 'ldm_home' else 'CRYSTAL_DATA_DIR'}"
    import difflib  # noqa: PLC0415 - as in table.py

    names = list(known)
    tails = {name.rpartition(".")[2]: name for name in names}
    near = difflib.get_close_matches(key.lower().replace("-", "_"), names, n=1, cutoff=0.7)
    near = near or [tails[name] for name in difflib.get_close_matches(tail, tails, n=1, cutoff=0.8)]
    return f"did you mean {near[0]}?" if near else None
