-- What there is to do is counted without reading through what was done. A default execution never enters these indexes. They
-- are built beside the servers, which go on writing.

-- +goose NO TRANSACTION
-- +goose Up
UPDATE meta SET oldest = 1;

-- Neither due nor owned nor ended: what waits for a signal or a child, is paused, or stands behind a gate.
DROP INDEX CONCURRENTLY IF EXISTS executions_resting; -- half built, if this was interrupted
CREATE INDEX CONCURRENTLY executions_resting ON executions (state)
WHERE ready_at IS NULL AND worker IS NULL AND state < 6;

-- Who resolves a dead letter looks for it by its key, and says that resolution is NULL. It must not be found here instead,
-- whatever the statistics say: hence the second condition, which is always true where the first is.
DROP INDEX CONCURRENTLY IF EXISTS dead_letters_open;
CREATE INDEX CONCURRENTLY dead_letters_open ON dead_letters (reason)
WHERE resolution IS NULL AND resolved_at IS NULL;
