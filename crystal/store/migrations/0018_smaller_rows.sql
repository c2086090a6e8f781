-- Rows without their texts are small: an index that only spares reading them is not needed. Of the hash of a text the
-- first half is enough. To shorten it changes no text: nobody is told.

DROP INDEX chunks_origin;
DROP TRIGGER mirror_text_changed;
DROP TRIGGER index_chunk_changed;
UPDATE chunks SET text_sha256 = substr(text_sha256, 1, 16);
CREATE TRIGGER mirror_text_changed AFTER UPDATE OF turn, start, text_sha256 ON chunks
WHEN EXISTS (SELECT 1 FROM mirror_home)
BEGIN INSERT INTO mirror_rows VALUES ('text', NEW.id, 0) ON CONFLICT DO NOTHING; END;
CREATE TRIGGER index_chunk_changed
AFTER UPDATE OF turn, start, text_sha256, source, role, session, project, agent, device, branch, subagent, ts ON chunks
WHEN EXISTS (SELECT 1 FROM index_state)
BEGIN INSERT INTO index_log (chunk, what) VALUES (NEW.id, 'changed'); END;
