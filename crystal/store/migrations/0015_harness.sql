-- The program that writes a session's transcripts: until now only Claude Code's were read.
ALTER TABLE sessions ADD COLUMN harness TEXT NOT NULL DEFAULT 'claude-code'; -- program that held it
ALTER TABLE capture_state ADD COLUMN harness TEXT NOT NULL DEFAULT 'claude-code'; -- program that writes the file
