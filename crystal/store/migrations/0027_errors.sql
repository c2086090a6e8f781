-- Errors of commands that failed, so that they are recognised when they come again.

CREATE TABLE work_errors (                 -- lines that tell of an error
    error INTEGER NOT NULL,                -- keyed hash of the line without paths, numbers, times and the like
    turn  INTEGER NOT NULL REFERENCES turns(id), -- the command
    PRIMARY KEY (error, turn)
) WITHOUT ROWID;
CREATE INDEX work_errors_turn ON work_errors(turn);

DROP TRIGGER work_gone;
CREATE TRIGGER work_gone AFTER DELETE ON turns
BEGIN
    DELETE FROM work_errors WHERE turn = OLD.id OR turn IN (SELECT turn FROM work_calls WHERE result = OLD.id);
    DELETE FROM work_calls WHERE turn = OLD.id;
    DELETE FROM work_lines WHERE turn = OLD.id;
    UPDATE work_calls SET result = NULL, exit = NULL, passed = NULL, failed = NULL WHERE result = OLD.id;
END;
