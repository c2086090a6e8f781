-- What was done: edits of files and commands, found in tool calls and results; derived from the turns at any time.

CREATE TABLE work_calls (                  -- edits that were made, and commands that were run
    turn    INTEGER NOT NULL REFERENCES turns(id), -- the call
    part    INTEGER NOT NULL,              -- several files of one call are counted
    is_edit INTEGER NOT NULL,              -- 1: an edit of a file, 0: a command
    what    TEXT NOT NULL,                 -- the file as the tool names it, or the command on one line
    key     INTEGER NOT NULL,              -- keyed hash of the file's own name, or of the command without redirections
    result  INTEGER REFERENCES turns(id),  -- NULL until it is there
    exit    INTEGER,                       -- 0: it succeeded; else its status, or 1
    passed  INTEGER,                       -- tests that passed, NULL: no known runner says so
    failed  INTEGER,                       -- tests that failed
    added   INTEGER NOT NULL,              -- lines that the edit adds
    removed INTEGER NOT NULL,              -- lines that it removes
    PRIMARY KEY (turn, part)
) WITHOUT ROWID;
CREATE INDEX work_calls_key ON work_calls(key);
CREATE INDEX work_calls_result ON work_calls(result);

CREATE TABLE work_lines (                  -- lines that edits added, without short ones
    line INTEGER NOT NULL,                 -- keyed hash of the line without spaces
    turn INTEGER NOT NULL REFERENCES turns(id), -- the call that added it
    part INTEGER NOT NULL,                 -- which file of the call
    PRIMARY KEY (line, turn, part)
) WITHOUT ROWID;
CREATE INDEX work_lines_turn ON work_lines(turn);

-- Triggers, not cascades: a mirror is applied without foreign keys.
CREATE TRIGGER work_gone AFTER DELETE ON turns
BEGIN
    DELETE FROM work_calls WHERE turn = OLD.id;
    DELETE FROM work_lines WHERE turn = OLD.id;
    UPDATE work_calls SET result = NULL, exit = NULL, passed = NULL, failed = NULL WHERE result = OLD.id;
END;
