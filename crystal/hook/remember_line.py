"""Compose the line shown after a prompt that asks to remember something; it contains none of the prompt's words.

``event.py`` imports it as a top-level module, without the package, after the note is on the disk.
"""

import os
import sys

# ``event.py`` runs without the package.
remember = __import__("crystal.hook.remember", fromlist=["*"]) if __package__ else __import__("remember")

CHECK = """\
import sys
sys.path.insert(0, sys.argv[1])
import crystal
sys.path.append(sys.path.pop(0))
from crystal.worker import check_words
check_words()
"""
CHECK_SECONDS = 5
NOTHING_LEFT = 3
MIN_SECRET_CHARS = 12


def line_for_user(asked: "dict[str, object]", data_dir: str, env: "dict[str, str]", is_kept: bool) -> str:
    """Return the line with the result of such a prompt for the user; it contains none of its words.

    If something may be private (a setting, capture off), only the worker knows whether this session is.
    """
    if asked["words"] is None:
        return f"not remembered: {asked['length']:,} characters, a memory has at most {remember.MAX_CHARS:,}"
    if not is_kept:
        return "not remembered: nothing can be written; run: crystal doctor"
    if _is_paused(data_dir):
        return "not remembered: capture is paused; resume with: crystal --on"
    private = any(env.get(name, "").strip() for name in ("CRYSTAL_PRIVATE_PROJECTS", "CRYSTAL_PRIVATE_SESSIONS"))
    is_secret = is_nothing_but_secret(str(asked["words"]), env)
    if is_secret:
        return "not remembered: the text is a secret, and crystal stores no secrets"
    unless = ", unless it is private here" if private or os.path.exists(os.path.join(data_dir, "private")) else ""
    unless += ", unless it is a secret" if is_secret is None else ""
    return f"remembered {asked['id']}{unless}; undo: crystal memories deprecate {asked['id']}"


def is_nothing_but_secret(words: str, env: "dict[str, str]") -> "bool | None":
    """Return True if redaction leaves nothing of the words; None if that cannot be found out in time.

    This starts another process, which takes longer than the rest of the hook, so only if the words may be a secret.
    """
    if not _may_be_secret(words):
        return False
    import subprocess  # noqa: PLC0415 - nearly no prompt needs it

    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    command = [sys.executable, "-I", "-X", "utf8", "-c", CHECK, root]
    given = words.encode("utf-8", "surrogatepass")
    try:
        done = subprocess.run(
            command,
            check=False,
            input=given,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=env,
            timeout=CHECK_SECONDS,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return {0: False, NOTHING_LEFT: True}.get(done.returncode)


def _may_be_secret(words: str) -> bool:
    """Return False if redaction certainly leaves a part of the words.

    It removes whole texts only if they are long without spaces, a private span, a block with a heading, or a word list.
    """
    parts = words.split()
    plain = [part for part in parts if len(part.strip(".,;:!?()\"'")) < MIN_SECRET_CHARS]
    is_list = len(parts) >= 12 and all(part.isalpha() and part.islower() for part in parts)
    return is_list or len(plain) < len(parts) / 2 or "<private" in words.lower() or "-----" in words


def _is_paused(data_dir: str) -> bool:
    """Return True if capture is off everywhere, according to the mark file."""
    try:
        with open(os.path.join(data_dir, "private"), "rb") as file:
            return file.read(8) == b"paused\n"
    except OSError:
        return False
