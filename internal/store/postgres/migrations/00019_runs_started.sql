-- The runs of all executions are listed by the time of their start. The index is built beside the servers, which go on
-- writing.

-- +goose NO TRANSACTION
-- +goose Up
UPDATE meta SET oldest = 12;

DROP INDEX CONCURRENTLY IF EXISTS runs_started; -- half built, if this was interrupted
CREATE INDEX CONCURRENTLY runs_started ON runs (started_at, execution, token);
