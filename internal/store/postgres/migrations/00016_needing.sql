-- The executions that fail while no worker can take them are found by an index that is built beside the servers, which
-- go on writing.

-- +goose NO TRANSACTION
-- +goose Up
UPDATE meta SET oldest = 12;

DROP INDEX CONCURRENTLY IF EXISTS executions_needing; -- half built, if this was interrupted
CREATE INDEX CONCURRENTLY executions_needing ON executions (lane, ready_at, id)
WHERE ready_at IS NOT NULL AND position('"on_no_worker":"fail"' IN policy) > 0;
