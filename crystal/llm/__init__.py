"""Ask the model that the user has chosen: one prompt, one answer, paid under a daily cap and recorded in the ledger.

Summaries, deep search and the reflector use it. Only ``chat`` imports network code, only ``programs`` starts a process.
"""
