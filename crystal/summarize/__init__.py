"""Write session summaries and the daily log: Markdown files that show a person what happened.

The package reads redacted turns and writes Markdown into an agent's folder. It never changes a transcript, never starts
a coding agent, and pays only under a cap. Only ``choose_model`` (in ``models``) imports network code; simple summaries
do not need it.
"""
