"""Session summaries and the daily log: Markdown files that show a person what happened.

The package reads redacted turns and writes Markdown into an agent's folder. It never changes a transcript, never starts
a coding agent, and pays only under a cap. Only ``choose_model`` (in ``models``) imports network code; simple summaries
do not need it.
"""

from crystal.summarize.daily import DailyReport, log_sessions
from crystal.summarize.due import SummaryReport, is_due, summarize_again, summarize_anew, summarize_due, summary_path_of

__all__ = [
    "DailyReport",
    "SummaryReport",
    "is_due",
    "log_sessions",
    "summarize_again",
    "summarize_anew",
    "summarize_due",
    "summary_path_of",
]
