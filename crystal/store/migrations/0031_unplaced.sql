-- Rows whose place in their file is unknown come before all others: ledger.UNPLACED was 2000000, and is -1. A transcript
-- of the same name on another machine is looked for with each segment that arrives.

UPDATE segments SET generation = -1 WHERE generation = 2000000;
UPDATE capture_state SET generation = -1 WHERE generation = 2000000;
DROP INDEX capture_state_session;
CREATE INDEX capture_state_session ON capture_state(session_id, transcript);
