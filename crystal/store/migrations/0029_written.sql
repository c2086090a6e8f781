-- When a file of lines was written, so that one that was replaced by another of the same size is read again.

ALTER TABLE capture_state ADD COLUMN written INTEGER NOT NULL DEFAULT 0; -- when the file was written, 0 if that is not known
