-- Sessions that ended are found by their end, to be deleted after the retention. The index is built beside the servers, which go
-- on writing.

-- +goose NO TRANSACTION
-- +goose Up
UPDATE meta SET oldest = 1;

DROP INDEX CONCURRENTLY IF EXISTS workers_ended; -- half built, if this was interrupted
CREATE INDEX CONCURRENTLY workers_ended ON workers (ended_at, id)
WHERE ended_at IS NOT NULL;
