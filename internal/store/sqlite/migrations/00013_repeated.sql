-- An execution notes the run of which a write was repeated before its first try arrived.

-- +goose Up
ALTER TABLE executions ADD COLUMN repeated INTEGER NOT NULL DEFAULT 0; -- the token of that run
