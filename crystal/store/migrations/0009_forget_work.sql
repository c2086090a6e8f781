-- Forgetting notes fewer kinds of work. What is left of those that go is found again from the open tombstones.

UPDATE forget_work SET kind = 'file' WHERE kind = 'document';
DELETE FROM forget_work WHERE kind IN ('daily', 'title', 'summary', 'outbox', 'swept');
