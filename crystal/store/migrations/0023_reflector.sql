-- Memories that are learned from sessions: what taught them, how far each session was read, what each run did.

CREATE TABLE learned_from (                -- the lines that taught a memory; commands count here before they are one
    id         INTEGER PRIMARY KEY,        -- the row
    memory     TEXT NOT NULL,              -- the memory's id (mem-...), which follows from what was learned where
    line       TEXT NOT NULL,              -- id of the transcript line
    session    TEXT NOT NULL,              -- the session's own id
    kind       TEXT NOT NULL,              -- preference, correction, convention, decision, command, cause, fact
    confidence REAL NOT NULL,              -- of this line alone, 0 to 1
    at         INTEGER NOT NULL,           -- when it was said
    UNIQUE (memory, line)
);
CREATE INDEX learned_from_line ON learned_from(line);
CREATE TRIGGER mirror_learned_new AFTER INSERT ON learned_from WHEN EXISTS (SELECT 1 FROM mirror_home)
BEGIN INSERT INTO mirror_rows VALUES ('learned', NEW.id, 0) ON CONFLICT DO NOTHING; END;
CREATE TRIGGER mirror_learned_gone AFTER DELETE ON learned_from WHEN EXISTS (SELECT 1 FROM mirror_home)
BEGIN INSERT INTO mirror_rows VALUES ('learned', OLD.id, 0) ON CONFLICT DO NOTHING; END;

-- The cursor: a session is due while it has newer turns. It moves in the transaction that writes what they taught.
ALTER TABLE sessions ADD COLUMN reflected_turn INTEGER NOT NULL DEFAULT 0; -- the newest turn that was read for memories

CREATE TABLE reflector_runs (              -- runs that read something
    id        INTEGER PRIMARY KEY,         -- the row
    at        INTEGER NOT NULL,            -- when it began
    ms        INTEGER NOT NULL,            -- how long it took
    sessions  INTEGER NOT NULL,            -- how many sessions were read
    turns     INTEGER NOT NULL,            -- how many turns of them were new
    extracted INTEGER NOT NULL,            -- statements found
    inserted  INTEGER NOT NULL,            -- new memories and proposals
    confirmed INTEGER NOT NULL,            -- known memories that were said again
    replaced  INTEGER NOT NULL,            -- older memories that a newer one contradicts
    archived  INTEGER NOT NULL,            -- memories that nothing confirmed for long
    skipped   INTEGER NOT NULL,            -- refused before, forgotten, secret, or said before already
    usd       REAL NOT NULL                -- what a model cost
);
CREATE INDEX reflector_runs_at ON reflector_runs(at);

-- What each session was told is a log: why is part of it.
CREATE TABLE injection_logs (              -- what was told to the agent at the start of a session
    id         INTEGER PRIMARY KEY,        -- the row
    at         INTEGER NOT NULL,           -- when
    session_id TEXT NOT NULL,              -- the agent's id of the session
    source     TEXT NOT NULL,              -- startup, resume, clear, compact
    candidates INTEGER NOT NULL,           -- how many memories and sessions there were
    chosen     TEXT NOT NULL,              -- JSON: the ids of those that were told
    omitted    INTEGER NOT NULL,           -- how many memories were not, because there was no room
    tokens     INTEGER NOT NULL,           -- how long it was, about
    why        TEXT NOT NULL DEFAULT '{}', -- JSON: how many were chosen and left, by reason
    UNIQUE (session_id, source)
);
INSERT INTO injection_logs (id, at, session_id, source, candidates, chosen, omitted, tokens)
SELECT id, at, session_id, source, candidates, chosen, omitted, tokens FROM injections;
DROP TABLE injections;
CREATE INDEX injection_logs_at ON injection_logs(at);
