-- Files that a person adds. Their chunks are of this machine, and do not travel.

DROP TABLE sources;
DROP TABLE source_files;
DROP TABLE source_collections;

CREATE TABLE source_collections (          -- folders of files; the list beside the archive, sources.json, says which
    id        INTEGER PRIMARY KEY,         -- the row
    name      TEXT NOT NULL UNIQUE,        -- as the user calls it
    path      TEXT NOT NULL,               -- the folder, without links
    project   INTEGER REFERENCES projects(id),  -- the git project that it belongs to, NULL: none
    added_at  INTEGER NOT NULL,            -- when it was added
    synced_at INTEGER,                     -- when all of it was last read, NULL before the first time
    read_as   TEXT NOT NULL DEFAULT ''     -- how its files were cleaned and split: another way, and they are read anew
);

CREATE TABLE source_files (                -- the files in them
    id         INTEGER PRIMARY KEY,        -- the row
    collection INTEGER NOT NULL REFERENCES source_collections(id),  -- its folder
    path       TEXT NOT NULL,              -- below the folder, with slashes
    stamp      TEXT NOT NULL,              -- size, times and inode when it was read; empty: to be read again
    sha256     BLOB NOT NULL,              -- HMAC-SHA-256 of its content, so that no hash confirms a guess
    chunks     INTEGER NOT NULL,           -- how many it has
    why        TEXT,                       -- why it is not indexed, NULL: it is
    UNIQUE (collection, path)
);

CREATE TABLE sources (                     -- which chunk comes from where in which file
    chunk      INTEGER PRIMARY KEY REFERENCES chunks(id) ON DELETE CASCADE,  -- the chunk
    file       INTEGER NOT NULL REFERENCES source_files(id),  -- its file
    title      TEXT NOT NULL,              -- headings above it, or the class and function; it precedes the chunk's text
    first_line INTEGER NOT NULL,           -- its lines in the file, from 1
    last_line  INTEGER NOT NULL            -- the last of them
);
CREATE INDEX sources_file ON sources(file, first_line);

DROP TRIGGER mirror_text_new;
DROP TRIGGER mirror_text_changed;
DROP TRIGGER mirror_chunk_changed;
DROP TRIGGER mirror_chunk_gone;
DROP TRIGGER mirror_vector_new;
CREATE TRIGGER mirror_text_new AFTER INSERT ON chunks WHEN NEW.source <> 'file' AND EXISTS (SELECT 1 FROM mirror_home)
BEGIN INSERT INTO mirror_rows VALUES ('text', NEW.id, 0) ON CONFLICT DO NOTHING; END;
CREATE TRIGGER mirror_text_changed AFTER UPDATE OF turn, start, text_sha256 ON chunks
WHEN NEW.source <> 'file' AND EXISTS (SELECT 1 FROM mirror_home)
BEGIN INSERT INTO mirror_rows VALUES ('text', NEW.id, 0) ON CONFLICT DO NOTHING; END;
CREATE TRIGGER mirror_chunk_changed
AFTER UPDATE OF source, role, session, project, agent, device, branch, subagent, ts ON chunks
WHEN NEW.source <> 'file' AND EXISTS (SELECT 1 FROM mirror_home)
BEGIN INSERT INTO mirror_rows VALUES ('chunk', NEW.id, 0) ON CONFLICT DO NOTHING; END;
CREATE TRIGGER mirror_chunk_gone AFTER DELETE ON chunks WHEN OLD.source <> 'file' AND EXISTS (SELECT 1 FROM mirror_home)
BEGIN INSERT INTO mirror_rows VALUES ('text', OLD.id, 0) ON CONFLICT DO NOTHING; END;
CREATE TRIGGER mirror_vector_new AFTER UPDATE OF vector_generation ON chunks
WHEN NEW.source <> 'file' AND NEW.vector_generation <> 0
    AND EXISTS (SELECT 1 FROM mirror_home WHERE generation = abs(NEW.vector_generation))
    AND NOT EXISTS (SELECT 1 FROM mirror_rows WHERE kind = 'text' AND key = +NEW.id AND position = 0)
BEGIN INSERT INTO mirror_rows VALUES ('vector', NEW.id, 0) ON CONFLICT DO NOTHING; END;

-- Replaced files of the index are deleted at once, and need no list.
DELETE FROM index_parts WHERE retired_at IS NOT NULL;
ALTER TABLE index_parts DROP COLUMN retired_at;
