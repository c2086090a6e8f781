"""Forget text: remove it from every file of this machine, and keep it from coming back.

``plan`` lists what would be deleted and changes nothing. ``carry_out`` writes the tombstones, which block the text from
then on, and ``finish`` executes open tombstones: rows, archives, summaries, logs, backups, outbox. It may be killed
anywhere; the next process continues it.
"""
