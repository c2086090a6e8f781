-- The parent of a line names a result's tool when it is stored; nobody reads it later.
DROP TRIGGER mirror_turn_changed;
ALTER TABLE turns DROP COLUMN parent_uuid;
CREATE TRIGGER mirror_turn_changed
AFTER UPDATE OF uuid, part, session, offset, role, tool, subagent, ts, project, branch, message_id, model, full_length
ON turns WHEN EXISTS (SELECT 1 FROM mirror_home)
BEGIN INSERT INTO mirror_rows VALUES ('turn', NEW.id, 0) ON CONFLICT DO NOTHING; END;
INSERT INTO meta (key, value) SELECT 'pages_are_sparse', '1' WHERE EXISTS (SELECT 1 FROM turns) ON CONFLICT DO NOTHING;
