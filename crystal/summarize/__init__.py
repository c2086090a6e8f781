"""Session summaries and the daily log: what a person opens to see what happened, in files of their own.

The room reads turns that are redacted already and writes Markdown into an agent's folder. It never touches a
transcript, never starts a coding agent, and pays only under a cap. ``choose_model`` (in ``models``) pulls in the
network; simple summaries do without it.
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
