-- The schema as it was before the first release; what changed since is in the migrations after it.

CREATE TABLE meta (
    key TEXT PRIMARY KEY,                        -- what is remembered about the store itself
    value TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE projects (
    id INTEGER PRIMARY KEY,
    cwd TEXT NOT NULL UNIQUE,                    -- the folder as the transcript names it
    git_root TEXT,                               -- the main work tree's root, also for linked worktrees
    remote TEXT,                                 -- origin's address without user and password
    name TEXT NOT NULL,                          -- last part of git_root, else of cwd
    own_name TEXT,                               -- the name that a person gave it: `name` follows it
    joined_to TEXT                               -- the identity that a person joined it to: `remote` follows it
);
CREATE INDEX projects_root ON projects(git_root);
CREATE INDEX projects_identity ON projects(remote);

CREATE TABLE sessions (
    id INTEGER PRIMARY KEY,
    session_id TEXT NOT NULL UNIQUE,             -- Claude Code's own id
    agent TEXT NOT NULL,                         -- crystal's agent id, e.g. cc-laptop
    device TEXT NOT NULL,                        -- the machine where it was captured
    project INTEGER REFERENCES projects(id),     -- of the first turn that has a folder
    branch TEXT,                                 -- of the latest turn that names one
    title TEXT,                                  -- given by the user or the client; else made by the summary
    started_at INTEGER,                          -- time of the earliest turn
    last_at INTEGER,                             -- time of the latest turn
    ended_at INTEGER,                            -- when SessionEnd was seen, NULL while it may go on
    last_turn INTEGER NOT NULL DEFAULT 0,        -- id of the newest turn of this session
    summarized_turn INTEGER NOT NULL DEFAULT 0,  -- last_turn when the summary was written: due when lower
    summary_path TEXT,                           -- relative to the agent's folder
    summary_mode TEXT,                           -- how it was made: llm; simple; deferred (simple, a model is to
                                                 -- follow)
    summary_title TEXT,                          -- the title that the summary made: a title unlike it was given
    logged_turn INTEGER NOT NULL DEFAULT 0,      -- last_turn when the daily log line was written
    harness TEXT NOT NULL DEFAULT 'claude-code', -- program that held it
    reflected_turn INTEGER NOT NULL DEFAULT 0    -- the newest turn that was read for memories
);
CREATE INDEX sessions_last ON sessions(last_at);
CREATE INDEX sessions_project ON sessions(project, last_at);

CREATE TABLE capture_roots (
    path TEXT PRIMARY KEY,                       -- a folder of transcripts that crystal knows
    met_at INTEGER NOT NULL                      -- what was in it then counts as seen, see rule before-crystal
) WITHOUT ROWID;

CREATE TABLE capture_state (
    id INTEGER PRIMARY KEY,
    device TEXT NOT NULL,                        -- the machine where the file lives
    transcript TEXT NOT NULL,                    -- file stem; <session>/<stem> for a subagent's
    agent TEXT NOT NULL,
    session_id TEXT NOT NULL,
    subagent TEXT,                               -- the subagent's id, NULL for a session's own transcript
    path TEXT NOT NULL,                          -- where the file was seen last
    dev INTEGER NOT NULL DEFAULT 0,              -- device number of that file
    inode INTEGER NOT NULL DEFAULT 0,
    generation INTEGER NOT NULL DEFAULT 0,       -- how often the file was found replaced
    offset INTEGER NOT NULL DEFAULT 0,           -- the watermark: all before it is in the ledger
    tail_hash BLOB NOT NULL DEFAULT x'',         -- keyed hash of the bytes just before offset
    archive TEXT,                                -- archive file, relative to the LDM home, NULL before the first
                                                 -- capture
    updated_at INTEGER NOT NULL,
    harness TEXT NOT NULL DEFAULT 'claude-code', -- program that writes the file
    UNIQUE (device, transcript)
);
CREATE INDEX capture_state_session ON capture_state(session_id);
CREATE INDEX capture_state_archive ON capture_state(archive);

CREATE TABLE segments (
    id INTEGER PRIMARY KEY,
    transcript INTEGER NOT NULL REFERENCES capture_state(id),
    generation INTEGER NOT NULL,
    start INTEGER NOT NULL,                      -- first byte
    stop INTEGER NOT NULL,                       -- just after the last byte
    state TEXT NOT NULL CHECK (state IN ('captured', 'private', 'skipped')),
    rule TEXT,                                   -- why it is private or skipped
    raw_hash BLOB,                               -- keyed hash of the bytes in the file, NULL when private or skipped
    archive_offset INTEGER,                      -- where its frame starts in the archive file
    archive_length INTEGER,                      -- how long the frame is
    clean_hash BLOB,                             -- SHA-256 of the archived lines, decompressed
    clean_length INTEGER,
    captured_at INTEGER NOT NULL,
    UNIQUE (transcript, generation, start),
    CHECK (stop > start),
    CHECK ((state = 'captured') = (clean_hash IS NOT NULL))
);

CREATE TABLE private_marks (
    id INTEGER PRIMARY KEY,
    session_id TEXT,                             -- NULL: everything
    reason TEXT NOT NULL,                        -- off, session, environment
    from_at INTEGER NOT NULL,
    last_at INTEGER NOT NULL,                    -- when it was last confirmed
    until_at INTEGER,                            -- NULL while it lasts
    folder TEXT                                  -- only what was said in this folder or below, NULL: anywhere
);

CREATE TABLE private_lines (
    uuid TEXT PRIMARY KEY                        -- a line left out: its copies in other files are left out too
) WITHOUT ROWID;

CREATE TABLE redactions (
    kind TEXT PRIMARY KEY,                       -- kind of secret
    count INTEGER NOT NULL                       -- how many were taken out since the beginning
) WITHOUT ROWID;

CREATE TABLE turns (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    uuid TEXT NOT NULL,                          -- the transcript line's own id
    part INTEGER NOT NULL,                       -- index of the block in the line
    session INTEGER NOT NULL REFERENCES sessions(id),
    segment INTEGER REFERENCES segments(id),
    offset INTEGER NOT NULL,                     -- of the line in its transcript
    role TEXT NOT NULL,                          -- user, assistant, thinking, tool_call, tool_result, subagent,
                                                 -- summary
    tool TEXT,                                   -- name of the tool, for calls and results
    subagent TEXT,
    ts INTEGER,
    project INTEGER REFERENCES projects(id),
    branch TEXT,
    message_id TEXT,                             -- the API message that the line is a part of
    model TEXT,
    full_length INTEGER NOT NULL,                -- characters, before a long result was cut to head and tail
    UNIQUE (uuid, part)
);
CREATE INDEX turns_session ON turns(session, ts, offset, part);
CREATE INDEX turns_segment ON turns(segment);

CREATE TABLE turn_copies (
    session INTEGER NOT NULL REFERENCES sessions(id),
    turn INTEGER NOT NULL REFERENCES turns(id),
    PRIMARY KEY (session, turn)
) WITHOUT ROWID;
CREATE INDEX turn_copies_turn ON turn_copies(turn);

CREATE TABLE chunks (
    id INTEGER PRIMARY KEY AUTOINCREMENT,        -- never used twice: vectors hang on it
    turn INTEGER REFERENCES turns(id),           -- NULL for what no transcript said
    start INTEGER NOT NULL,                      -- characters into the turn's text
    body TEXT NOT NULL,                          -- a text, or one compressed: see the function text_of
    text_sha256 BLOB NOT NULL,                   -- the same text is embedded once
    source TEXT NOT NULL,                        -- kind of source: conversation, file, memory
    role TEXT NOT NULL,
    session INTEGER REFERENCES sessions(id),
    project INTEGER REFERENCES projects(id),
    agent TEXT NOT NULL,
    device TEXT NOT NULL,
    branch TEXT,
    subagent TEXT,
    ts INTEGER,
    vector_generation INTEGER NOT NULL DEFAULT 0, -- newest embedding generation that has its vector: the queue; -n:
                                                  -- the provider of generation n refuses the text
    memory INTEGER REFERENCES memories(id),      -- the memory that it is a part of, else NULL
    text TEXT GENERATED ALWAYS AS (text_of(body)) VIRTUAL -- the turn's text is its chunks laid over each other at
                                                          -- start
);
CREATE INDEX chunks_turn ON chunks(turn);
CREATE INDEX chunks_session ON chunks(session);
CREATE INDEX chunks_project ON chunks(project, ts);
CREATE INDEX chunks_ts ON chunks(ts);
CREATE INDEX chunks_sha ON chunks(text_sha256);
CREATE INDEX chunks_pending ON chunks(vector_generation, ts);
CREATE INDEX chunks_memory ON chunks(memory) WHERE memory IS NOT NULL;

CREATE TABLE embedding_generations (
    id INTEGER PRIMARY KEY,
    provider TEXT NOT NULL,
    model TEXT NOT NULL,
    dimension INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    serving INTEGER NOT NULL DEFAULT 0,          -- 1: searches use it
    UNIQUE (provider, model, dimension)
);

CREATE TABLE problems (
    room TEXT PRIMARY KEY,                       -- embedding, summary, capture ...
    message TEXT NOT NULL,
    since INTEGER NOT NULL,                      -- first failure since it last worked
    at INTEGER NOT NULL,                         -- latest failure
    tries INTEGER NOT NULL,                      -- failures in a row with the same cause
    retry_at INTEGER,                            -- not before
    cause TEXT                                   -- fingerprint of the settings that failed: others may try at once
) WITHOUT ROWID;

CREATE TABLE costs (
    id INTEGER PRIMARY KEY,
    at INTEGER NOT NULL,
    purpose TEXT NOT NULL,                       -- embedding, summary
    provider TEXT NOT NULL,
    model TEXT NOT NULL,
    input_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    usd REAL NOT NULL
);
CREATE INDEX costs_at ON costs(at);

CREATE TABLE hook_runs (
    at INTEGER NOT NULL,
    event TEXT NOT NULL,
    ms REAL NOT NULL
);

CREATE TABLE memories (
    id INTEGER PRIMARY KEY AUTOINCREMENT,        -- never used twice
    uid TEXT NOT NULL UNIQUE,                    -- mem- and 12 hexadecimal digits: the same on every machine
    text TEXT NOT NULL,                          -- what to remember
    category TEXT NOT NULL CHECK (category IN ('fact', 'preference', 'event', 'opinion', 'skill')),
    key TEXT UNIQUE,                             -- exact look-up, NULL for most
    project INTEGER REFERENCES projects(id),     -- where it holds, NULL: everywhere
    status TEXT NOT NULL CHECK (status IN ('active', 'deprecated')), -- deprecated: kept, and not found
    source TEXT NOT NULL,                        -- by which door it came: cli, mcp, prompt, python, or a caller's own
                                                 -- name
    agent TEXT NOT NULL,                         -- crystal's agent id of the machine where it was asked for
    device TEXT NOT NULL,                        -- that machine's name
    session TEXT,                                -- Claude Code's id of the session in which it was asked for
    created_at INTEGER NOT NULL,                 -- when it was first remembered
    updated_at INTEGER NOT NULL                  -- when it was last changed: the newest version wins between machines
);

CREATE TABLE source_collections (
    id INTEGER PRIMARY KEY,                      -- the row
    name TEXT NOT NULL UNIQUE,                   -- as the user calls it
    path TEXT NOT NULL,                          -- the folder, without links
    project INTEGER REFERENCES projects(id),     -- the git project that it belongs to, NULL: none
    added_at INTEGER NOT NULL,                   -- when it was added
    synced_at INTEGER,                           -- when all of it was last read, NULL before the first time
    read_as TEXT NOT NULL DEFAULT ''             -- how its files were cleaned and split: another way, and they are
                                                 -- read anew
);

CREATE TABLE source_files (
    id INTEGER PRIMARY KEY,                      -- the row
    collection INTEGER NOT NULL REFERENCES source_collections(id), -- its folder
    path TEXT NOT NULL,                          -- below the folder, with slashes
    stamp TEXT NOT NULL,                         -- size, times and inode when it was read; empty: to be read again
    sha256 BLOB NOT NULL,                        -- HMAC-SHA-256 of its content, so that no hash confirms a guess
    chunks INTEGER NOT NULL,                     -- how many it has
    why TEXT,                                    -- why it is not indexed, NULL: it is
    UNIQUE (collection, path)
);

CREATE TABLE sources (
    chunk INTEGER PRIMARY KEY REFERENCES chunks(id) ON DELETE CASCADE, -- the chunk
    file INTEGER NOT NULL REFERENCES source_files(id), -- its file
    title TEXT NOT NULL,                         -- headings above it, or the class and function; it precedes the
                                                 -- chunk's text
    first_line INTEGER NOT NULL,                 -- its lines in the file, from 1
    last_line INTEGER NOT NULL                   -- the last of them
);
CREATE INDEX sources_file ON sources(file, first_line);

CREATE TABLE relay_peers (
    id INTEGER PRIMARY KEY,                      -- the row
    device_id BLOB NOT NULL UNIQUE,              -- 16 random bytes given at pairing; the link's keys are derived with
                                                 -- it
    side TEXT NOT NULL CHECK (side IN ('home', 'device')), -- what the other end is to this machine
    name TEXT NOT NULL UNIQUE,                   -- what the user calls the other machine
    agent TEXT,                                  -- the agent id that a device was paired with
    generation INTEGER NOT NULL,                 -- of the device's keys that are in use
    accepted_from INTEGER NOT NULL,              -- blobs of older generations are refused
    up_prefix BLOB NOT NULL,                     -- the first 8 bytes of every stream from the device
    down_prefix BLOB NOT NULL,                   -- the first 8 bytes of every stream to the device
    token_id TEXT,                               -- the device's token at the relay, to revoke it
    paired_at INTEGER NOT NULL,                  -- when it joined, by our clock
    revoked_at INTEGER,                          -- from then on nothing of it is taken
    heard_at INTEGER,                            -- when something authentic of it came last, by our clock
    serials_in TEXT NOT NULL DEFAULT '{}',       -- JSON: of the newest document taken, by channel: an older one is a
                                                 -- replay
    serial_out INTEGER NOT NULL DEFAULT 0,       -- of the newest document sent
    told TEXT,                                   -- JSON: what is remembered of its newest documents, NULL before the
                                                 -- first
    sent TEXT,                                   -- JSON: fingerprints of the newest documents to it, by channel; when
    stale TEXT NOT NULL DEFAULT '{}',            -- JSON: serials that a newer document of it must exceed, by channel
    forked_at INTEGER,                           -- when two copies of the device were last seen
    vouches INTEGER NOT NULL DEFAULT 0           -- 1: was home before, and may send what other devices said
);

CREATE TABLE relay_agents (
    agent TEXT PRIMARY KEY,                      -- the id
    peer INTEGER NOT NULL REFERENCES relay_peers(id) -- whose it is
) WITHOUT ROWID;

CREATE TABLE relay_out (
    id INTEGER PRIMARY KEY,                      -- the row
    stream BLOB NOT NULL UNIQUE,                 -- 16 bytes: prefix of the link, then random
    peer INTEGER NOT NULL REFERENCES relay_peers(id), -- for whom
    channel INTEGER NOT NULL,                    -- see docs/spec/envelope.md
    lane TEXT NOT NULL,                          -- live; past (backfill, behind all that is live); latest (documents)
    generation INTEGER NOT NULL,                 -- of the keys that seal it
    last_seq INTEGER NOT NULL DEFAULT 0,         -- of the newest sealed blob
    last_tag BLOB NOT NULL,                      -- its tag: the next one names it
    verified INTEGER NOT NULL DEFAULT 0,         -- receipts with the right tag cover the blobs to here
    opened_at INTEGER NOT NULL,                  -- when its first blob was sealed
    closed_at INTEGER,                           -- when another stream took its place
    because TEXT                                 -- why it was opened: first; fork; resend; rotated; handover
);
CREATE UNIQUE INDEX relay_out_open ON relay_out(peer, channel, lane) WHERE closed_at IS NULL;

CREATE TABLE outbox (
    stream INTEGER NOT NULL REFERENCES relay_out(id), -- in which stream
    seq INTEGER NOT NULL,                        -- its number there
    tag BLOB NOT NULL,                           -- the blob's last 32 bytes
    created_at INTEGER NOT NULL,                 -- when it was sealed first
    sent_at INTEGER,                             -- when the relay took it, NULL while it waits
    again INTEGER NOT NULL DEFAULT 0,            -- 1: the relay had it once, and is asked to keep it anew
    receipted_at INTEGER,                        -- when the receipt came; kept for some days after, for a restored
                                                 -- home
    sealed BLOB NOT NULL,                        -- the blob as it is sent
    PRIMARY KEY (stream, seq)
);
CREATE INDEX outbox_waiting ON outbox(created_at) WHERE receipted_at IS NULL;
CREATE INDEX outbox_unsent ON outbox(stream, seq) WHERE sent_at IS NULL AND receipted_at IS NULL;
CREATE INDEX outbox_receipted ON outbox(receipted_at) WHERE receipted_at IS NOT NULL;

CREATE TABLE relay_in (
    id INTEGER PRIMARY KEY,                      -- the row
    stream BLOB NOT NULL UNIQUE,                 -- 16 bytes, as the relay lists it
    peer INTEGER REFERENCES relay_peers(id),     -- who seals it, NULL until a blob of it opened
    channel INTEGER NOT NULL DEFAULT 0,          -- 0 until a blob of it opened
    lane TEXT,                                   -- live, past, latest; NULL until a blob of it opened
    last_seq INTEGER NOT NULL DEFAULT 0,         -- all to here is committed, or skipped on record
    last_tag BLOB NOT NULL,                      -- the tag of that blob: the next one must name it
    head INTEGER NOT NULL DEFAULT 0,             -- the newest seq that the relay or the sender told of
    listed INTEGER NOT NULL DEFAULT 0,           -- the newest seq that the relay listed
    state TEXT NOT NULL DEFAULT 'ok',            -- ok; waiting; fork; wrong-key; revoked; damaged; left
    code TEXT,                                   -- why it stands still: the code of the envelope's error
    detail TEXT,                                 -- the same in words
    since INTEGER,                               -- since when
    tries INTEGER NOT NULL DEFAULT 0,            -- how often it was tried since
    retry_at INTEGER,                            -- not before
    resend INTEGER,                              -- the sender is asked to send again from here
    forked INTEGER NOT NULL DEFAULT 0,           -- 1: a copy of its device has left it; another may go on in it
    opened_at INTEGER NOT NULL                   -- when it was met first
);

CREATE TABLE relay_claims (
    source INTEGER NOT NULL REFERENCES relay_in(id), -- of heartbeats: copies of one device have one each
    stream BLOB NOT NULL,                        -- the stream that it speaks of
    head INTEGER NOT NULL,                       -- the newest number in it
    PRIMARY KEY (stream, source)
) WITHOUT ROWID;
CREATE INDEX relay_claims_source ON relay_claims(source);

CREATE TABLE relay_fragments (
    stream INTEGER NOT NULL REFERENCES relay_in(id), -- in which stream
    seq INTEGER NOT NULL,                        -- its number there
    body BLOB NOT NULL,                          -- the opened part
    PRIMARY KEY (stream, seq)
);

CREATE TABLE relay_skips (
    stream BLOB NOT NULL,                        -- in which stream
    seq INTEGER NOT NULL,                        -- the number that was left out
    code TEXT,                                   -- why it could not be taken
    at INTEGER NOT NULL,                         -- when it was decided
    PRIMARY KEY (stream, seq)
) WITHOUT ROWID;

CREATE TABLE relay_files (
    device TEXT NOT NULL,                        -- whose file
    transcript TEXT NOT NULL,                    -- its key
    stream BLOB NOT NULL,                        -- whose segments go to the other generation
    sent_as INTEGER NOT NULL,                    -- the generation that the device names
    generation INTEGER NOT NULL,                 -- the generation that it has in this ledger
    PRIMARY KEY (device, transcript, stream, sent_as)
) WITHOUT ROWID;

CREATE TABLE mirror_home (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    stream BLOB NOT NULL,                        -- 16 random bytes: the stream that objects are sealed in
    position INTEGER NOT NULL DEFAULT 0,         -- of the newest object
    number INTEGER NOT NULL DEFAULT 0,           -- of the newest sealed object, merged ones counted
    generation INTEGER NOT NULL DEFAULT 0,       -- the embedding generation whose vectors are sent
    is_changed INTEGER NOT NULL DEFAULT 0,       -- 1: the list of objects is not that of the newest manifest
    published_at INTEGER NOT NULL DEFAULT 0,     -- when nothing was left to publish, as the newest manifest says
    looked_at INTEGER NOT NULL DEFAULT 0         -- when the relay was asked last which objects it has
);

CREATE TABLE mirror_keys (
    id INTEGER PRIMARY KEY,
    link BLOB NOT NULL,                          -- 32 random bytes
    made_at INTEGER NOT NULL
);

CREATE TABLE mirror_objects (
    last INTEGER PRIMARY KEY,                    -- the newest position in it
    first INTEGER NOT NULL,                      -- the oldest
    marks BLOB NOT NULL,                         -- 8 random bytes for each position: which history it belongs to
    number INTEGER NOT NULL DEFAULT 0,           -- the seq that it is sealed with
    sha256 BLOB,                                 -- of the sealed object, its first 16 bytes the id; NULL until it is
                                                 -- uploaded
    size INTEGER NOT NULL DEFAULT 0,             -- sealed
    raw INTEGER NOT NULL DEFAULT 0,              -- before sealing
    level INTEGER NOT NULL DEFAULT 0,            -- how often it was merged
    sealed_by INTEGER REFERENCES mirror_keys(id),
    made_at INTEGER NOT NULL,
    stale INTEGER NOT NULL DEFAULT 0             -- 1: the relay has lost it; 2: it holds what was deleted
);

CREATE TABLE mirror_rows (
    kind TEXT NOT NULL,                          -- see KINDS in crystal/store/sync/mirror_content.py
    key BLOB NOT NULL,                           -- the row's id, or its key as text
    position INTEGER NOT NULL,                   -- 0: changed since, and not published yet; an absent row is a
                                                 -- deletion
    PRIMARY KEY (kind, key, position)
) WITHOUT ROWID;
CREATE INDEX mirror_rows_position ON mirror_rows(position, kind);

CREATE TABLE mirror_trash (
    object BLOB PRIMARY KEY,                     -- the id at the relay
    since INTEGER NOT NULL                       -- it is deleted some time after
) WITHOUT ROWID;

CREATE TABLE mirror_applied (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    position INTEGER NOT NULL,                   -- everything to here is applied
    mark BLOB NOT NULL,                          -- the mark of that position
    published_at INTEGER                         -- its time, by the home machine's clock
);

CREATE TABLE index_state (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    format INTEGER NOT NULL,                     -- of the files: another one is built anew
    version INTEGER NOT NULL DEFAULT 0,          -- rises with every change of the list of files
    upto INTEGER NOT NULL DEFAULT 0,             -- the newest entry of the log that was looked at
    to_read INTEGER,                             -- chunks to this id are still to be read, NULL when all are in
    generations TEXT NOT NULL DEFAULT '{}',      -- JSON: embedding generations whose vectors are in or noted, with
                                                 -- models
    made_at INTEGER NOT NULL                     -- when the building began
);

CREATE TABLE index_parts (
    name TEXT PRIMARY KEY,                       -- of the file, never used twice
    kind TEXT NOT NULL CHECK (kind IN ('words', 'vectors')),
    of TEXT,                                     -- for vectors: the words file whose documents they belong to
    generation INTEGER,                          -- for vectors: the embedding generation
    documents INTEGER NOT NULL,                  -- how many it has
    bytes INTEGER NOT NULL,                      -- how long the file is
    mtime_ns INTEGER NOT NULL,                   -- when the file was written: another time, and it is looked through
    checksum INTEGER NOT NULL,                   -- CRC-32 of its directory, which has those of its content
    made_at INTEGER NOT NULL                     -- when it was made
) WITHOUT ROWID;

CREATE TABLE index_log (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    chunk INTEGER NOT NULL,                      -- its id
    what TEXT NOT NULL                           -- new, changed, gone; vector: it has been embedded
);

CREATE TABLE memory_history (
    id INTEGER PRIMARY KEY,                      -- the row
    memory INTEGER NOT NULL REFERENCES memories(id), -- which one
    text TEXT NOT NULL,                          -- its words then
    category TEXT NOT NULL,                      -- its category then
    status TEXT NOT NULL,                        -- its status then
    from_at INTEGER NOT NULL,                    -- since when it was so
    until_at INTEGER NOT NULL                    -- when it was changed
);
CREATE INDEX memory_history_memory ON memory_history(memory, until_at);

CREATE TABLE tombstones (
    id INTEGER PRIMARY KEY AUTOINCREMENT,        -- in the order in which this machine learnt of them
    uid TEXT NOT NULL UNIQUE,                    -- 32 hexadecimal digits: the same on every machine
    kind TEXT NOT NULL CHECK (kind IN ('lines', 'session', 'project', 'before', 'memory')),
    value TEXT NOT NULL,                         -- JSON: ids of lines, of a session, of memories; folders of a
                                                 -- project
    until_at INTEGER,                            -- session, project, before: what was said before this moment
    made_at INTEGER NOT NULL,                    -- when it was forgotten
    device TEXT NOT NULL,                        -- on which machine
    done_at INTEGER,                             -- when nothing of it was left here, NULL while there is work
    heard_at INTEGER                             -- on a device: when home said that it has it, by home's clock, NULL:
                                                 -- not yet
);
CREATE INDEX tombstones_open ON tombstones(id) WHERE done_at IS NULL;

CREATE TABLE forgotten_sessions (
    session_id TEXT PRIMARY KEY                  -- Claude Code's id
) WITHOUT ROWID;

CREATE TABLE forget_work (
    id INTEGER PRIMARY KEY,                      -- the row
    kind TEXT NOT NULL,                          -- archive, file, outbox
    target TEXT NOT NULL,                        -- which: a path relative to the LDM home, a stream
    detail TEXT NOT NULL,                        -- JSON: where in it; numbers, never words
    made_at INTEGER NOT NULL                     -- when it was noted
);

CREATE TABLE refusals (
    peer INTEGER NOT NULL,                       -- whose, 0: of nobody that is paired
    code TEXT NOT NULL,                          -- why: a code of the envelope; unknown; revoked; untried; budget
    streams INTEGER NOT NULL,                    -- how many streams the relay lists, 0 where blobs were fetched
    blobs INTEGER NOT NULL,                      -- how many blobs: listed now, or refused since the first
    first_at INTEGER NOT NULL,                   -- since when
    last_at INTEGER NOT NULL,                    -- the latest
    PRIMARY KEY (peer, code)
) WITHOUT ROWID;

CREATE TABLE text_blocks (
    id INTEGER PRIMARY KEY AUTOINCREMENT,        -- never used twice: a process may remember what it read
    first INTEGER NOT NULL,                      -- the lowest chunk whose text is in it
    last INTEGER NOT NULL,                       -- the highest one
    texts INTEGER NOT NULL,                      -- how many texts are in it
    body BLOB NOT NULL                           -- see the function pack_block
);

CREATE TABLE snapshot_records (
    transcript INTEGER NOT NULL,                 -- row of capture_state
    record TEXT NOT NULL,                        -- the record's id
    state TEXT NOT NULL CHECK (state IN ('captured', 'private', 'skipped', 'recovered', 'lost')),
    hash BLOB,                                   -- keyed hash of what it said, NULL when private or unknown
    size INTEGER NOT NULL,                       -- bytes of its newest state
    superseded INTEGER NOT NULL DEFAULT 0,       -- bytes of its earlier states, which are in the archive
    PRIMARY KEY (transcript, record)
) WITHOUT ROWID;

CREATE TABLE snapshot_stamps (
    path TEXT NOT NULL,                          -- the file or database
    conversation TEXT NOT NULL,                  -- key of a conversation in it; empty for all of it
    stamp TEXT NOT NULL,                         -- differs whenever the content does
    PRIMARY KEY (path, conversation)
) WITHOUT ROWID;

CREATE TABLE record_counts (
    transcript INTEGER NOT NULL,                 -- row of capture_state
    kind TEXT NOT NULL,                          -- said: it gave turns; silent: known to give none; else the unknown
                                                 -- kind
    is_unknown INTEGER NOT NULL,                 -- 1 for an unknown kind, which may be called said or silent, too
    number INTEGER NOT NULL,                     -- of such records since they are counted
    PRIMARY KEY (transcript, is_unknown, kind)
) WITHOUT ROWID;

CREATE TABLE learned_from (
    id INTEGER PRIMARY KEY,                      -- the row
    memory TEXT NOT NULL,                        -- the memory's id (mem-...), which follows from what was learned
                                                 -- where
    line TEXT NOT NULL,                          -- id of the transcript line
    session TEXT NOT NULL,                       -- the session's own id
    kind TEXT NOT NULL,                          -- preference, correction, convention, decision, command, cause, fact
    confidence REAL NOT NULL,                    -- of this line alone, 0 to 1
    at INTEGER NOT NULL,                         -- when it was said
    UNIQUE (memory, line)
);
CREATE INDEX learned_from_line ON learned_from(line);

CREATE TABLE reflector_runs (
    id INTEGER PRIMARY KEY,                      -- the row
    at INTEGER NOT NULL,                         -- when it began
    ms INTEGER NOT NULL,                         -- how long it took
    sessions INTEGER NOT NULL,                   -- how many sessions were read
    turns INTEGER NOT NULL,                      -- how many turns of them were new
    extracted INTEGER NOT NULL,                  -- statements found
    inserted INTEGER NOT NULL,                   -- new memories and proposals
    confirmed INTEGER NOT NULL,                  -- known memories that were said again
    replaced INTEGER NOT NULL,                   -- older memories that a newer one contradicts
    archived INTEGER NOT NULL,                   -- memories that nothing confirmed for long
    skipped INTEGER NOT NULL,                    -- refused before, forgotten, secret, or said before already
    usd REAL NOT NULL                            -- what a model cost
);
CREATE INDEX reflector_runs_at ON reflector_runs(at);

CREATE TABLE injection_logs (
    id INTEGER PRIMARY KEY,                      -- the row
    at INTEGER NOT NULL,                         -- when
    session_id TEXT NOT NULL,                    -- the agent's id of the session
    source TEXT NOT NULL,                        -- startup, resume, clear, compact
    candidates INTEGER NOT NULL,                 -- how many memories and sessions there were
    chosen TEXT NOT NULL,                        -- JSON: the ids of those that were told
    omitted INTEGER NOT NULL,                    -- how many memories were not, because there was no room
    tokens INTEGER NOT NULL,                     -- how long it was, about
    why TEXT NOT NULL DEFAULT '{}',              -- JSON: how many were chosen and left, by reason
    UNIQUE (session_id, source)
);
CREATE INDEX injection_logs_at ON injection_logs(at);

CREATE TRIGGER mirror_project_new AFTER INSERT ON projects WHEN EXISTS (SELECT 1 FROM mirror_home)
BEGIN INSERT INTO mirror_rows VALUES ('project', NEW.id, 0) ON CONFLICT DO NOTHING; END;

CREATE TRIGGER mirror_project_changed AFTER UPDATE ON projects WHEN EXISTS (SELECT 1 FROM mirror_home)
    AND (OLD.cwd, OLD.git_root, OLD.remote, OLD.name) IS NOT (NEW.cwd, NEW.git_root, NEW.remote, NEW.name)
BEGIN INSERT INTO mirror_rows VALUES ('project', NEW.id, 0) ON CONFLICT DO NOTHING; END;

CREATE TRIGGER mirror_project_gone AFTER DELETE ON projects WHEN EXISTS (SELECT 1 FROM mirror_home)
BEGIN INSERT INTO mirror_rows VALUES ('project', OLD.id, 0) ON CONFLICT DO NOTHING; END;

CREATE TRIGGER mirror_session_new AFTER INSERT ON sessions WHEN EXISTS (SELECT 1 FROM mirror_home)
BEGIN INSERT INTO mirror_rows VALUES ('session', NEW.id, 0) ON CONFLICT DO NOTHING; END;

CREATE TRIGGER mirror_session_changed AFTER UPDATE ON sessions WHEN EXISTS (SELECT 1 FROM mirror_home)
BEGIN INSERT INTO mirror_rows VALUES ('session', NEW.id, 0) ON CONFLICT DO NOTHING; END;

CREATE TRIGGER mirror_session_gone AFTER DELETE ON sessions WHEN EXISTS (SELECT 1 FROM mirror_home)
BEGIN INSERT INTO mirror_rows VALUES ('session', OLD.id, 0) ON CONFLICT DO NOTHING; END;

CREATE TRIGGER mirror_private_new AFTER INSERT ON private_lines WHEN EXISTS (SELECT 1 FROM mirror_home)
BEGIN INSERT INTO mirror_rows VALUES ('private', NEW.uuid, 0) ON CONFLICT DO NOTHING; END;

CREATE TRIGGER mirror_private_gone AFTER DELETE ON private_lines WHEN EXISTS (SELECT 1 FROM mirror_home)
BEGIN INSERT INTO mirror_rows VALUES ('private', OLD.uuid, 0) ON CONFLICT DO NOTHING; END;

CREATE TRIGGER mirror_copy_new AFTER INSERT ON turn_copies WHEN EXISTS (SELECT 1 FROM mirror_home)
BEGIN INSERT INTO mirror_rows VALUES ('copy', NEW.session || ':' || NEW.turn, 0) ON CONFLICT DO NOTHING; END;

CREATE TRIGGER mirror_copy_gone AFTER DELETE ON turn_copies WHEN EXISTS (SELECT 1 FROM mirror_home)
BEGIN INSERT INTO mirror_rows VALUES ('copy', OLD.session || ':' || OLD.turn, 0) ON CONFLICT DO NOTHING; END;

CREATE TRIGGER mirror_turn_gone AFTER DELETE ON turns WHEN EXISTS (SELECT 1 FROM mirror_home)
BEGIN INSERT INTO mirror_rows VALUES ('turn', OLD.id, 0) ON CONFLICT DO NOTHING; END;

CREATE TRIGGER index_chunk_new AFTER INSERT ON chunks WHEN EXISTS (SELECT 1 FROM index_state)
BEGIN INSERT INTO index_log (chunk, what) VALUES (NEW.id, 'new'); END;

CREATE TRIGGER index_chunk_gone AFTER DELETE ON chunks WHEN EXISTS (SELECT 1 FROM index_state)
BEGIN INSERT INTO index_log (chunk, what) VALUES (OLD.id, 'gone'); END;

CREATE TRIGGER index_chunk_vector AFTER UPDATE OF vector_generation ON chunks
WHEN NEW.vector_generation > 0 AND EXISTS (SELECT 1 FROM index_state)
BEGIN INSERT INTO index_log (chunk, what) VALUES (NEW.id, 'vector'); END;

CREATE TRIGGER mirror_memory_new AFTER INSERT ON memories WHEN EXISTS (SELECT 1 FROM mirror_home)
BEGIN INSERT INTO mirror_rows VALUES ('memory', NEW.id, 0) ON CONFLICT DO NOTHING; END;

CREATE TRIGGER mirror_memory_changed AFTER UPDATE ON memories WHEN EXISTS (SELECT 1 FROM mirror_home)
BEGIN INSERT INTO mirror_rows VALUES ('memory', NEW.id, 0) ON CONFLICT DO NOTHING; END;

CREATE TRIGGER mirror_memory_gone AFTER DELETE ON memories WHEN EXISTS (SELECT 1 FROM mirror_home)
BEGIN INSERT INTO mirror_rows VALUES ('memory', OLD.id, 0) ON CONFLICT DO NOTHING; END;

CREATE TRIGGER mirror_turn_new AFTER INSERT ON turns WHEN EXISTS (SELECT 1 FROM mirror_home)
BEGIN INSERT INTO mirror_rows VALUES ('turn', NEW.id, 0) ON CONFLICT DO NOTHING; END;

CREATE TRIGGER index_chunk_changed
AFTER UPDATE OF turn, start, text_sha256, source, role, session, project, agent, device, branch, subagent, ts ON chunks
WHEN EXISTS (SELECT 1 FROM index_state)
BEGIN INSERT INTO index_log (chunk, what) VALUES (NEW.id, 'changed'); END;

CREATE TRIGGER mirror_turn_changed
AFTER UPDATE OF uuid, part, session, offset, role, tool, subagent, ts, project, branch, message_id, model, full_length
ON turns WHEN EXISTS (SELECT 1 FROM mirror_home)
BEGIN INSERT INTO mirror_rows VALUES ('turn', NEW.id, 0) ON CONFLICT DO NOTHING; END;

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

CREATE TRIGGER mirror_learned_new AFTER INSERT ON learned_from WHEN EXISTS (SELECT 1 FROM mirror_home)
BEGIN INSERT INTO mirror_rows VALUES ('learned', NEW.id, 0) ON CONFLICT DO NOTHING; END;

CREATE TRIGGER mirror_learned_gone AFTER DELETE ON learned_from WHEN EXISTS (SELECT 1 FROM mirror_home)
BEGIN INSERT INTO mirror_rows VALUES ('learned', OLD.id, 0) ON CONFLICT DO NOTHING; END;
