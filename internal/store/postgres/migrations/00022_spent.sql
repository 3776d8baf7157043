-- The descendants that are paused because the budget of their root is spent are found by an index that is built beside
-- the servers, which go on writing.

-- +goose NO TRANSACTION
-- +goose Up
UPDATE meta SET oldest = 12;

DROP INDEX CONCURRENTLY IF EXISTS executions_spent; -- half built, if this was interrupted
CREATE INDEX CONCURRENTLY executions_spent ON executions (spent_by, id)
WHERE spent_by IS NOT NULL AND parent IS NOT NULL;
