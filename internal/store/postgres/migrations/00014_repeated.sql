-- An execution notes the run of which a write was repeated before its first try arrived.

-- +goose Up
SET LOCAL lock_timeout = '500ms';

ALTER TABLE executions ADD COLUMN repeated bigint; -- the token of that run

UPDATE meta SET oldest = 12;
