-- What PostgreSQL has besides the tables of ../migrations. Run after every upgrade, so it can be run again.

-- Bodies are sealed, so they cannot be compressed.
ALTER TABLE blobs ALTER COLUMN body SET STORAGE EXTERNAL;
ALTER TABLE objects ALTER COLUMN body SET STORAGE EXTERNAL;

-- Every server hears of a revoked token, whoever revoked it.
CREATE OR REPLACE FUNCTION tell_revoked() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('crystal_relay', json_build_array('', 'token', NEW.id)::text);
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER tell_revoked AFTER UPDATE OF revoked_at ON tokens
    FOR EACH ROW EXECUTE FUNCTION tell_revoked();
