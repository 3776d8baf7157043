-- Dead letters are listed by time. The indexes are built beside the servers, which go on writing.

-- +goose NO TRANSACTION
-- +goose Up
UPDATE meta SET oldest = 12;

DROP INDEX CONCURRENTLY IF EXISTS dead_letters_at; -- half built, if this was interrupted
CREATE INDEX CONCURRENTLY dead_letters_at ON dead_letters (at, execution, generation);

DROP INDEX CONCURRENTLY IF EXISTS dead_letters_open_at;
CREATE INDEX CONCURRENTLY dead_letters_open_at ON dead_letters (at, execution, generation)
WHERE resolution IS NULL;
