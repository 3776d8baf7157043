-- An execution that failed, its run and its dead letter say which part of Belay ended them.

-- +goose Up
SET LOCAL lock_timeout = '500ms';

ALTER TABLE executions ADD COLUMN failed_by smallint; -- NULL if the owner of the run reported the failure
ALTER TABLE runs ADD COLUMN failed_by smallint;
ALTER TABLE dead_letters ADD COLUMN failed_by smallint;

UPDATE meta SET oldest = 12;
