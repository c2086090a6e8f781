-- A project keeps its name and its identity when its folder is renamed or moved, and as a person says.

ALTER TABLE projects ADD COLUMN own_name TEXT; -- the name that a person gave it: `name` follows it
ALTER TABLE projects ADD COLUMN joined_to TEXT; -- the identity that a person joined it to: `remote` follows it
CREATE INDEX projects_root ON projects(git_root);
CREATE INDEX projects_identity ON projects(remote);
