-- Large bodies in a bucket, of a relay with PostgreSQL. SQLite has its own in a folder, and needs only the indexes.

CREATE TABLE bucket (
    id     INTEGER PRIMARY KEY,             -- one row
    folder TEXT NOT NULL                    -- where this relay's bodies are, so that several relays can share a bucket
);

CREATE TABLE unnamed (                      -- files of the bucket that no row names: not yet, or no longer
    file TEXT PRIMARY KEY,
    due  INTEGER NOT NULL                   -- when it may be deleted, by the database's clock; 0: it is being deleted
) WITHOUT ROWID;

CREATE INDEX blobs_with_file ON blobs(file) WHERE file IS NOT NULL;

CREATE INDEX objects_with_file ON objects(file) WHERE file IS NOT NULL;
