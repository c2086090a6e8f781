-- What the agent said a command is for: how something is done here is asked in such words.

ALTER TABLE work_calls ADD COLUMN about TEXT NOT NULL DEFAULT ''; -- what the agent said that the command does
