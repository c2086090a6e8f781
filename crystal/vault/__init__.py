"""Memories as plain files in a folder of the person's: what a note says, and which file may be replaced."""
