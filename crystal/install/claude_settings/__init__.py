"""Add crystal's hooks to Claude Code's settings file, and remove them, without changing any other byte.

A change is planned first (``plan_install``, ``plan_uninstall``: nothing is written, ``plan.diff()`` shows it), then
applied (``apply``). A file that cannot be parsed is refused with the position of the error, and is not changed.

The backup next to the file (``settings.json.crystal-backup``) has its content before crystal's entries were added. It
is written only if the file has no such entries, so it never contains a change by crystal. It is deleted when
uninstalling has restored exactly these bytes.
"""
