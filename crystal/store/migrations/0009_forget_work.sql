-- Forgetting notes fewer kinds of work. What is left of those that go is found again from the open tombstones.

UPDATE forget_work SET kind = 'file' WHERE kind = 'document';
UPDATE forget_work SET kind = 'session', detail = json_array(json_extract(detail, '$'), json('true')) WHERE kind = 'daily';
DELETE FROM forget_work WHERE kind IN ('title', 'summary', 'outbox', 'swept');

-- How far two machines have each other's tombstones is a number and a hash, without a random name for the numbers.
UPDATE meta SET value = json_remove(value, '$.series') WHERE key = 'forgotten_relay';
DELETE FROM meta WHERE key LIKE 'forgotten\_series %' ESCAPE '\';
