-- Beside the id of an operation stands a sum of what it was and of all that it said, by which another operation under the same id
-- is told from a repetition. What was done before has none, nor has what servers do that do not know these columns.

-- +goose Up
SET LOCAL lock_timeout = '500ms';

ALTER TABLE runs ADD COLUMN op_sum uuid;
ALTER TABLE checkpoints ADD COLUMN op_sum uuid;
ALTER TABLE signals ADD COLUMN op_sum uuid;
ALTER TABLE actions ADD COLUMN op_sum uuid;

UPDATE meta SET oldest = 1;
