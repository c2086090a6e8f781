"""The reader of Roo Code's conversations, which have the form of Cline's."""

from crystal.transcript.cline import ClineReader

READER = ClineReader("history_item.json")
