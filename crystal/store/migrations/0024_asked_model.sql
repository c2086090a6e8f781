-- What the reflector asked a model, where the user has chosen one.

ALTER TABLE reflector_runs ADD COLUMN asked INTEGER NOT NULL DEFAULT 0; -- how often a model was asked
ALTER TABLE reflector_runs ADD COLUMN unusable INTEGER NOT NULL DEFAULT 0; -- its answers without the requested form
