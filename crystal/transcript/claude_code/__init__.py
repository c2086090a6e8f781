"""Everything that is known about Claude Code's transcripts, see ``reader``."""
