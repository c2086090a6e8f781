-- Of the hash of a text half as much is enough: to find equal texts, and to see that one is damaged. Nearly all chunks
-- have their vector: the queue of the others is an index of them alone, see vectors.py.

DROP TRIGGER mirror_text_changed;
DROP TRIGGER index_chunk_changed;
DROP INDEX chunks_sha;
UPDATE chunks SET text_sha256 = substr(text_sha256, 1, 8);
CREATE INDEX chunks_sha ON chunks(text_sha256);
CREATE TRIGGER mirror_text_changed AFTER UPDATE OF turn, start, text_sha256 ON chunks
WHEN NEW.source <> 'file' AND EXISTS (SELECT 1 FROM mirror_home)
BEGIN INSERT INTO mirror_rows VALUES ('text', NEW.id, 0) ON CONFLICT DO NOTHING; END;
CREATE TRIGGER index_chunk_changed
AFTER UPDATE OF turn, start, text_sha256, source, role, session, project, agent, device, branch, subagent, ts ON chunks
WHEN EXISTS (SELECT 1 FROM index_state)
BEGIN INSERT INTO index_log (chunk, what) VALUES (NEW.id, 'changed'); END;

DROP INDEX chunks_pending;
CREATE INDEX chunks_pending ON chunks(vector_generation, ts) WHERE vector_generation <= 0;
INSERT INTO meta (key, value) SELECT 'pages_are_sparse', '1' WHERE EXISTS (SELECT 1 FROM chunks) ON CONFLICT DO NOTHING;
