-- Texts are compressed together: one by one they take almost twice as much. Old ones are moved later: see
-- text_blocks.py.

CREATE TABLE text_blocks (                 -- texts of chunks, compressed together
    id    INTEGER PRIMARY KEY AUTOINCREMENT,  -- never used twice: a process may remember what it read
    first INTEGER NOT NULL,                -- the lowest chunk whose text is in it
    last  INTEGER NOT NULL,                -- the highest one
    texts INTEGER NOT NULL,                -- how many texts are in it
    body  BLOB NOT NULL                    -- see the function pack_block
);
INSERT INTO meta (key, value) SELECT 'pages_are_sparse', '1' WHERE EXISTS (SELECT 1 FROM chunks) ON CONFLICT DO NOTHING;
