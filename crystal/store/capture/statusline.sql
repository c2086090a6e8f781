-- What `crystal statusline` (crystal/hook/statusline.py) asks. A file, so that the hook finds it without the store.
WITH own AS (
    SELECT id, offset FROM capture_state WHERE session_id = :session AND subagent IS NULL
    ORDER BY path = :path DESC, updated_at DESC LIMIT 1
)
SELECT
    EXISTS (SELECT 1 FROM private_marks WHERE until_at IS NULL AND session_id IS NULL AND folder IS NULL),
    EXISTS (SELECT 1 FROM private_marks WHERE until_at IS NULL AND session_id = :session),
    (SELECT iif(state = 'skipped', rule, state) FROM segments WHERE transcript = (SELECT id FROM own) ORDER BY id DESC LIMIT 1),
    (SELECT offset FROM own),
    (SELECT sum(json_array_length(chosen)) FROM injection_logs WHERE session_id = :session),
    -- The latest turns only: a session may have very many.
    (SELECT max(ts) FROM turns JOIN sessions ON sessions.session_id = :session AND sessions.id = +turns.session
        WHERE turns.id BETWEEN last_turn - 2000 AND last_turn
            AND role = 'tool_call' AND tool LIKE '%crystal\_search' ESCAPE '\')
