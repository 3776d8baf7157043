-- Beside the id of an operation stands a sum of what it was and of all that it said, by which another operation under the same id
-- is told from a repetition. What was done before has none.

-- +goose Up
ALTER TABLE runs ADD COLUMN op_sum BLOB;
ALTER TABLE checkpoints ADD COLUMN op_sum BLOB;
ALTER TABLE signals ADD COLUMN op_sum BLOB;
ALTER TABLE actions ADD COLUMN op_sum BLOB;
