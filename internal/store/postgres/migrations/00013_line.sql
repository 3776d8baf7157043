-- The lines of gates are found by an index that is built beside the servers, which go on writing.

-- +goose NO TRANSACTION
-- +goose Up
UPDATE meta SET oldest = 12;

DROP INDEX CONCURRENTLY IF EXISTS executions_line; -- half built, if this was interrupted
CREATE INDEX CONCURRENTLY executions_line ON executions (gate, (coalesce(gate_rank, 0)), due_at, id)
WHERE gate IS NOT NULL;
