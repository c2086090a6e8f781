-- Texts are stored compressed, vectors as signed bytes. What is there is rewritten in this transaction: see recompress.py.

DROP TRIGGER mirror_text_changed;
DROP TRIGGER index_chunk_changed;
DROP VIEW IF EXISTS chunks_vec;

ALTER TABLE chunks RENAME COLUMN text TO body; -- a text, or one compressed: see the function text_of
ALTER TABLE chunks ADD COLUMN text TEXT GENERATED ALWAYS AS (text_of(body)) VIRTUAL; -- the turn's text is its chunks laid over each other at start

-- A text is another one when its hash is: to compress it changes nothing for anybody.
CREATE TRIGGER mirror_text_changed AFTER UPDATE OF turn, start, text_sha256 ON chunks
WHEN EXISTS (SELECT 1 FROM mirror_home)
BEGIN INSERT INTO mirror_rows VALUES ('text', NEW.id, 0) ON CONFLICT DO NOTHING; END;
CREATE TRIGGER index_chunk_changed
AFTER UPDATE OF turn, start, text_sha256, source, role, session, project, agent, device, branch, subagent, ts ON chunks
WHEN EXISTS (SELECT 1 FROM index_state)
BEGIN INSERT INTO index_log (chunk, what) VALUES (NEW.id, 'changed'); END;
