"""Add crystal's hooks to Claude Code's settings file, and remove them, without changing any other byte.

A change is planned first (``plan_install``, ``plan_uninstall``: nothing is written, ``plan.diff()`` shows it), then
applied (``apply``). A file that cannot be parsed is refused with the position of the error, and is not changed.

The backup next to the file (``settings.json.crystal-backup``) holds its content before crystal's entries were added. It
is written only if there are none in the file, so that it never holds a change of ours. It is deleted when uninstalling
has restored exactly these bytes.
"""
